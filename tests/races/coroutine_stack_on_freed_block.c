#include "input.h"
#include <malloc.h>
static ucontext_t m,c; static char*a,*b; static volatile int done;
static __attribute__((noinline)) void rec(int n){ volatile char x[900]; x[0]=n; memcpy(b,a,1<<16); if(n)rec(n-1); x[1]=0;}
static void co(void){ rec(150); done=1; swapcontext(&c,&m);}
int main(){ Src s; src_open(&s); mallopt(-3/*M_MMAP_THRESHOLD*/,1<<30);
 a=aligned_alloc(4096,1<<18);b=aligned_alloc(4096,1<<18);memset(a,0,1<<18);memset(b,0,1<<18);
 char*st=malloc(1<<18);memset(st,0,1<<18); char*guard=malloc(100);
 src_recv(&s,a,1<<18,7); memcpy(st,a,1<<18); /* elided into st */
 free(st); char*st2=malloc(1<<18); printf("same block: %d\n",st2==st); fflush(stdout);
 getcontext(&c); c.uc_stack.ss_sp=st2;c.uc_stack.ss_size=1<<18;c.uc_link=0; makecontext(&c,co,0); swapcontext(&m,&c); printf("done=%d\n",done); free(guard); return 0;}
