#include "input.h"
#define SZ (4<<20)
#define C 65536
static Src s,o; static char*R; static volatile int phase; static char*vic; static long bad,n;
static volatile int in;
static void*t2(void*x){ for(;;){ while(phase!=1)sched_yield(); in=1; for(int k=0;k<32&&phase==1;k++) munmap(vic+k*32768,16384); while(phase==1)sched_yield(); in=0; } }
static volatile int ack;
static void*t3(void*x){ int v=0; for(;;){ while(phase!=1)sched_yield(); for(volatile int d=rand()%20000;d>0;d--); v++; if((char)v==7||!(char)v)v++; R[100]=v; 
   send(o.sv[0],R,8192,0); char t[8192]; int g=0; while(g<8192)g+=syscall(SYS_read,o.sv[1],t+g,8192-g); if(t[100]!=(char)v){ if(bad++<3)printf("STALE: sent %d, wrote %d (round %ld)\n",t[100],(char)v,n);} ack=1; while(phase==1)sched_yield(); ack=2; } }
int main(){ setvbuf(stdout,0,_IONBF,0); src_open(&s);src_open(&o); char*a=mmap(0,SZ,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); R=mmap(0,SZ,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); memset(a,1,SZ);memset(R,1,SZ);
 pthread_t t; int st=0; time_t t0=time(0);
 while(time(0)-t0<9){ n++; vic=mmap(0,1<<20,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); memset(vic,1,1<<20);
  src_recv(&s,a,SZ,7); for(int i=0;i<SZ/C;i++) memcpy(R+i*C,a+(SZ/C-1-i)*C,C); memcpy(vic,a,1<<20);
  if(!st){st=1;pthread_create(&t,0,t2,0);pthread_create(&t,0,t3,0);}
  ack=0; phase=1; mprotect(R,SZ,PROT_READ|PROT_WRITE|PROT_EXEC); while(!ack||!in)sched_yield(); phase=0; while(ack!=2||in)sched_yield(); usleep(200); mprotect(R,SZ,PROT_READ|PROT_WRITE); munmap(vic,1<<20); }
 printf("rounds=%ld stale=%ld\n",n,bad); _exit(0);}
