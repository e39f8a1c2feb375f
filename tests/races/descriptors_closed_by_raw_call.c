#include "input.h"
static long raw3(long n,long a,long b,long c){long r;asm volatile("syscall":"=a"(r):"a"(n),"D"(a),"S"(b),"d"(c):"rcx","r11","memory");return r;}
int main(){ setvbuf(stdout,0,_IONBF,0); Src s; src_open(&s); char*a=mmap(0,1<<18,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0),*b=mmap(0,1<<18,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);memset(a,0,1<<18);memset(b,0,1<<18);
 src_recv(&s,a,1<<18,7); memcpy(b,a,1<<18); 
 raw3(SYS_close_range,100,~0u,0);
 mprotect(b,1<<18,PROT_READ); alarm(3); long bad=0; for(int i=0;i<1<<18;i++)bad+=b[i]!=7; printf("bad=%ld of %d\n",bad,1<<18);}
