#include "input.h"
/* madvise(DONTNEED) of views during another thread's fork must read as zeros after */
#define SZ (1<<18)
static volatile int stop;
static void*forker(void*x){ while(!stop){ int p=fork(); if(!p)_exit(0); waitpid(p,0,0);} return 0;}
int main(){ setvbuf(stdout,0,_IONBF,0); Src s; src_open(&s); char*a=aligned_alloc(4096,SZ); memset(a,0,SZ); char*r=mmap(0,SZ,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); memset(r,1,SZ);
 size_t bz=atoi(getenv("MB")?:"100")<<20; char*big=malloc(bz); memset(big,1,bz);
 src_recv(&s,a,SZ,7); memcpy(r,a,SZ);
 pthread_t t; pthread_create(&t,0,forker,0); time_t t0=time(0); long n=0,bad=0,lost=0;
 while(time(0)-t0<6){ n++; src_recv(&s,a,SZ,7); memcpy(r,a,SZ); 
   madvise(r,SZ,MADV_DONTNEED); for(int i=0;i<SZ;i+=4096) if(r[i]!=0){bad++;break;} }
 stop=1; printf("rounds=%ld stale-after-DONTNEED=%ld\n",n,bad); _exit(0);}
