#include "input.h"
#include <malloc.h>
/* T1 frees a viewed malloc block (hooked free: forget, then munmap); T2 mallocs the same addresses, memcpy twice into it, checks.
   argv[1] = number of CPU hogs beside the monitor */
#define SZ (1<<20)
static Src s1,s2; static char*volatile reg; static volatile int go;
static void pin(int tid,int cpu){cpu_set_t c;CPU_ZERO(&c);CPU_SET(cpu,&c);sched_setaffinity(tid,sizeof c,&c);}
static void*t1(void*x){ for(;;){ while(!go) sched_yield(); char*r=reg; go=0; free(r); reg=0; } }
static void*hog(void*x){ pin(0,1); for(;;); }
int main(int c,char**v){ setvbuf(stdout,0,_IONBF,0); mallopt(-3,65536); src_open(&s1);src_open(&s2); char*a=aligned_alloc(4096,SZ),*a2=aligned_alloc(4096,SZ); memset(a,0,SZ);memset(a2,0,SZ);
 char*d=aligned_alloc(4096,SZ);memset(d,0,SZ); src_recv(&s1,a2,SZ,77); memcpy(d,a2,SZ);
 usleep(50000); int m=monitor_tid(); pin(0,0); pthread_t t; pthread_create(&t,0,t1,0); 
 if(c>1&&m>0){ pin(m,1); pthread_t h; for(int i=0;i<atoi(v[1]);i++)pthread_create(&h,0,hog,0);}
 long bad=0,hit=0; time_t t0=time(0); long n=0;
 while(time(0)-t0<8){ n++;
  char*r=malloc(SZ); memset(r,1,SZ); src_recv(&s1,a,SZ,n&63); memcpy(r,a,SZ);
  char*p0=r; reg=r; go=1; while(go) sched_yield();
  char*q=0; char*hold[64]; int nh=0;
  while(reg&&nh<60){ q=malloc(SZ); if(q==p0)break; hold[nh++]=q; q=0; sched_yield(); }
  if(q){ hit++; memset(q,5,SZ); memcpy(q,a2,SZ); memcpy(q,a2,SZ); while(reg)sched_yield(); usleep(1000);
    for(long i=0;i<SZ;i+=512) if(q[i]!=77){bad++; if(bad<4)printf("WRONG BYTE at q+%ld: %d want 77 (round %ld)\n",i,q[i],n);break;} free(q);}
  while(reg)sched_yield(); for(int i=0;i<nh;i++)free(hold[i]);
 }
 printf("rounds=%ld overlapped=%ld bad=%ld\n",n,hit,bad); _exit(bad!=0);}
