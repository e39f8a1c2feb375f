#include "input.h"
static volatile int n; static void h(int s){n++;}
static void arm(void){struct sigaction sa={0};sa.sa_handler=h;sa.sa_flags=SA_RESETHAND;sigaction(SIGALRM,&sa,0);
 struct itimerval it={{0,0},{0,200+rand()%50}};setitimer(ITIMER_REAL,&it,0);}
int main(){ Src s; src_open(&s); char*a=aligned_alloc(4096,1<<18),*b=aligned_alloc(4096,1<<18);memset(a,0,1<<18);memset(b,0,1<<18);
 src_recv(&s,a,1<<16,7); int last=0; arm(); time_t t0=time(0);
 while(time(0)-t0<3){ memcpy(b,a,1<<16); memcpy(b+(1<<17),b,1<<16); if(n!=last){last=n;arm();} }
 printf("ok, %d signals\n",n); return 0;}
