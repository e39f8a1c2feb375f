#include "input.h"
static void*w(void*x){ usleep(200000); puts("worker done"); fflush(stdout); return 0;}
int main(){ Src s; src_open(&s); char*a=aligned_alloc(4096,1<<18),*b=aligned_alloc(4096,1<<18);memset(a,0,1<<18);memset(b,0,1<<18);
 src_recv(&s,a,1<<16,7); memcpy(b,a,1<<16); pthread_t t; pthread_create(&t,0,w,0); pthread_exit(0);}
