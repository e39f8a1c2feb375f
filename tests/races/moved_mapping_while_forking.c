#include "input.h"
/* mremap of views during another thread's fork */
#define SZ (1<<18)
static volatile int stop;
static void*forker(void*x){ while(!stop){ int p=fork(); if(!p)_exit(0); waitpid(p,0,0);} return 0;}
int main(){ setvbuf(stdout,0,_IONBF,0); Src s; src_open(&s); char*a=aligned_alloc(4096,SZ); memset(a,0,SZ); 
 size_t bz=atoi(getenv("MB")?:"100")<<20; char*big=malloc(bz); memset(big,1,bz);
 char*area=mmap(0,8<<20,PROT_NONE,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);
 pthread_t t; time_t t0=time(0); long n=0,bad=0,fail=0; pthread_create(&t,0,forker,0);
 while(time(0)-t0<6){ n++; char*r=mmap(area+(1<<20),SZ,3,MAP_PRIVATE|MAP_ANONYMOUS|MAP_FIXED,-1,0); memset(r,1,SZ);
   src_recv(&s,a,SZ,7); memcpy(r,a,SZ); 
   char*q=mremap(r,SZ,SZ,MREMAP_MAYMOVE|MREMAP_FIXED,area+(4<<20)); if(q==MAP_FAILED){fail++;munmap(r,SZ);continue;}
   for(int i=0;i<SZ;i+=4096) if(q[i]!=7){bad++;break;} munmap(q,SZ); }
 stop=1; printf("rounds=%ld fail=%ld LOST=%ld\n",n,fail,bad); _exit(0);}
