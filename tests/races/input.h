#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sched.h>
#include <pthread.h>
#include <ucontext.h>
#include <dirent.h>
#include <time.h>
#include <sys/time.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <sys/uio.h>
typedef struct {int sv[2];} Src;
static inline void src_open(Src*s){socketpair(AF_UNIX,SOCK_STREAM,0,s->sv);int z=4<<20;setsockopt(s->sv[0],SOL_SOCKET,SO_SNDBUF,&z,sizeof z);setsockopt(s->sv[1],SOL_SOCKET,SO_RCVBUF,&z,sizeof z);}
/* fill n bytes of input whose bytes are pat into buf */
static char PAT[1<<20];
static inline void src_recv(Src*s,char*buf,size_t n,int pat){
  size_t got=0; while(got<n){ size_t k=n-got; if(k>65536)k=65536; 
    char tmp[65536]; for(size_t i=0;i<k;i++)tmp[i]=pat; 
    if(syscall(SYS_write,s->sv[0],tmp,k)!=(long)k){perror("w");exit(9);}
    size_t g=0; while(g<k){ssize_t r=recv(s->sv[1],buf+got+g,k-g,0); if(r<=0){perror("recv");exit(9);} g+=r;}
    got+=k; } }
static inline int monitor_tid(void){DIR*d=opendir("/proc/self/task");struct dirent*e;int r=-1;while((e=readdir(d))){char p[300],c[32]={0};snprintf(p,300,"/proc/self/task/%s/comm",e->d_name);int f=open(p,O_RDONLY);if(f>=0){if(read(f,c,31)<0){}close(f);if(!strcmp(c,"uncopy\n"))r=atoi(e->d_name);}}closedir(d);return r;}
