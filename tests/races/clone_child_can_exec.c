#include "input.h"
static int child(void*a){ char*av[]={"/bin/echo","child exec ok",0}; char*ev[]={"A=b",0}; execve(av[0],av,ev); _exit(1);}
int main(){ char*st=malloc(65536); int pid=clone(child,st+65536,SIGCHLD,0); int s; for(int i=0;i<30;i++){ if(waitpid(pid,&s,WNOHANG)==pid){printf("exit %d\n",WEXITSTATUS(s));return 0;} usleep(100000);} puts("CHILD HUNG 3s"); kill(pid,9); return 1;}
