#include "input.h"
/* 60 threads fault on views at once while one thread munmaps registered memory */
#ifndef N
#define N 60
#endif
static pthread_barrier_t bar; static char*b; static volatile long prog; static long bad;
#define PER (1<<16)
static void*w(void*x){ long i=(long)x; for(int r=0;;r++){ pthread_barrier_wait(&bar); for(int k=0;k<4;k++) if(b[i*PER+k*16384]!=(char)(r+1)) __sync_fetch_and_add(&bad,1); pthread_barrier_wait(&bar);} }
static char*vic; 
static void*u(void*x){ for(int r=0;;r++){ pthread_barrier_wait(&bar); for(int k=0;k<16;k++) munmap(vic+k*65536,32768); pthread_barrier_wait(&bar);} }
int main(){ setvbuf(stdout,0,_IONBF,0); Src s; src_open(&s); char*a=aligned_alloc(4096,N*PER); b=aligned_alloc(4096,N*PER); memset(a,0,N*PER); memset(b,0,N*PER);
 pthread_barrier_init(&bar,0,N+2); pthread_t t; pthread_attr_t at; pthread_attr_init(&at); pthread_attr_setstacksize(&at,65536);
 for(long i=0;i<N;i++)pthread_create(&t,&at,w,(void*)i); pthread_create(&t,&at,u,0);
 int rounds=atoi(getenv("R")?:"200");
 for(int r=0;r<rounds;r++){ 
  vic=mmap(0,1<<20,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); memset(vic,1,1<<20);
  src_recv(&s,a,N*PER,r+1); memcpy(b,a,N*PER); memcpy(vic,a,1<<20);
  prog=r; alarm(5); pthread_barrier_wait(&bar); pthread_barrier_wait(&bar); munmap(vic,1<<20);
 } printf("done, bad=%ld\n",bad); _exit(0);}
