#include "input.h"
int main(){ Src s; src_open(&s); char*a,*b; posix_memalign((void**)&a,4096,1<<20); posix_memalign((void**)&b,4096,1<<20);
 memset(a,0,1<<20);memset(b,0,1<<20);
 src_recv(&s,a,1<<18,7); memcpy(b,a,1<<18);
 for(int fd=1000;fd<1024;fd++) if(dup2(1,fd)!=fd) perror("dup2");
 alarm(4); long bad=0; for(int i=0;i<1<<18;i++) bad+= b[i]!=7; printf("bad=%ld\n",bad); return 0;}
