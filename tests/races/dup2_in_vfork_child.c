#include "input.h"
int main(){ setvbuf(stdout,0,_IONBF,0); Src s; src_open(&s); char*a=mmap(0,1<<18,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0),*b=mmap(0,1<<18,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);memset(a,0,1<<18);memset(b,0,1<<18);
 src_recv(&s,a,1<<18,7); memcpy(b,a,1<<18); 
 if(vfork()==0){ for(int fd=1005;fd<1015;fd++)dup2(1,fd); _exit(0);} wait(0);
 alarm(3); long bad=0; for(int i=0;i<1<<18;i++)bad+=b[i]!=7; printf("bad=%ld of %d\n",bad,1<<18);}
