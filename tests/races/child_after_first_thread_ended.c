#include "input.h"
/* a child of a process whose first thread has ended has a first thread of its own: it must not end before that does */
#define SZ (1<<18)
static void*work(void*x){ Src s; src_open(&s); char*a=malloc(SZ),*b=malloc(SZ); src_recv(&s,a,SZ,7); memcpy(b,a,SZ); usleep(200000);
 int p=fork(); if(!p){ src_recv(&s,a,SZ,8); memcpy(b,a,SZ); for(int i=0;i<10;i++) usleep(50000); _exit(b[SZ/2]==8?7:1);} 
 int st; waitpid(p,&st,0); printf("child ended with %d\n",WIFEXITED(st)?WEXITSTATUS(st):-1); fflush(stdout); return 0;}
int main(){ alarm(20); Src s; src_open(&s); char*a=malloc(SZ),*b=malloc(SZ); src_recv(&s,a,SZ,7); memcpy(b,a,SZ);
 pthread_t t; pthread_create(&t,0,work,0); usleep(50000); pthread_exit(0);}
