#include "input.h"
/* the first thread ends by pthread_exit before uncopy's own thread has come to life: the process must still end with the last of
 * the program's threads */
#define SZ (1<<18)
static void*work(void*x){ usleep(100000); Src s; src_open(&s); char*a=malloc(SZ),*b=malloc(SZ); src_recv(&s,a,SZ,7); memcpy(b,a,SZ); int bad=0;
 for(int i=0;i<SZ;i+=4096) bad+=b[i]!=7; printf("bad=%d\n",bad); fflush(stdout); return 0;}
int main(){ alarm(20); pthread_t t; pthread_create(&t,0,work,0); pthread_exit(0);}
