#include "input.h"
/* Pages that are dropped (MADV_DONTNEED) while another thread is inside fork must read as zeros in the child: a half that was touched there
 * before, and a half that was not. fork is held up by fflush(NULL), which keeps libc's list of streams locked while it writes to a full pipe:
 * it copies memory only after the pages were dropped. All threads run on one processor, and the monitor on it only when nobody else
 * wants to: it is overtaken as soon as it has read the kernel's report, which lets madvise return. R rounds. */
#define SZ (1<<18)
static char*r; static int full[2]; static volatile int flusher_id,forker_id,stale;
static char junk[65536];
static void other(int id,int idle){ cpu_set_t one; CPU_ZERO(&one); int first=0; cpu_set_t may; if(!id) { sched_getaffinity(0,sizeof may,&may); while(!CPU_ISSET(first,&may)) first++; CPU_SET(first,&one); sched_setaffinity(0,sizeof one,&one); return; }
 sched_getaffinity(0,sizeof one,&one); sched_setaffinity(id,sizeof one,&one); struct sched_param p={0}; if(idle) sched_setscheduler(id,SCHED_IDLE,&p); }
static void*flusher(void*x){ flusher_id=syscall(SYS_gettid); fflush(0); return 0;}
static void*forker(void*x){ forker_id=syscall(SYS_gettid); int p=fork();
 if(!p){ int n=0; for(int i=0;i<SZ;i+=4096) n+=r[i]!=0; _exit(n>255?255:n);} int st=0; waitpid(p,&st,0); stale+=WIFEXITED(st)?WEXITSTATUS(st):1000; return 0;}
/* Whether the thread sleeps in this system call. */
static int sleeps_in(int id,long call){ char p[64],s[64]={0}; if(!id) return 0; snprintf(p,sizeof p,"/proc/self/task/%d/syscall",id); int f=open(p,O_RDONLY); if(f<0) return 0; long n=syscall(SYS_read,f,s,sizeof s-1); close(f);
 return n>0 && s[0]>='0' && s[0]<='9' && atol(s)==call; }
static void until_it_sleeps_in(volatile int*id,long call){ for(int n=0;n<3;){ usleep(2000); n=sleeps_in(*id,call)?n+1:0; } }
static void round_(Src*s,char*a,FILE*f){
 memset(r,1,SZ); src_recv(s,a,SZ,7); memcpy(r,a,SZ);
 fcntl(full[1],F_SETFL,O_NONBLOCK); while(syscall(SYS_write,full[1],junk,sizeof junk)>0); fcntl(full[1],F_SETFL,0);
 flusher_id=forker_id=0; fprintf(f,"held up"); pthread_t t,u;
 pthread_create(&t,0,flusher,0); until_it_sleeps_in(&flusher_id,SYS_write);
 pthread_create(&u,0,forker,0); until_it_sleeps_in(&forker_id,SYS_futex);
 volatile int sum=0; for(int i=0;i<SZ/2;i+=4096) sum+=r[i]; if(sum!=7*(SZ/2/4096)) {printf("wrong\n"); fflush(stdout); _exit(1);}
 madvise(r,SZ,MADV_DONTNEED);
 /* (It goes on at once, and the forking thread after it: the monitor gets no processor before that.) */
 syscall(SYS_read,full[0],junk,sizeof junk); pthread_join(u,0); pthread_join(t,0);
 fcntl(full[0],F_SETFL,O_NONBLOCK); while(syscall(SYS_read,full[0],junk,sizeof junk)>0); fcntl(full[0],F_SETFL,0);
}
int main(){ alarm(60); other(0,0); Src s; src_open(&s); char*a=aligned_alloc(4096,SZ); memset(a,0,SZ); r=mmap(0,SZ,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);
 memset(r,1,SZ); src_recv(&s,a,SZ,7); memcpy(r,a,SZ); int id=monitor_tid(); if(id>0) other(id,1);
 if(pipe(full)) return 1; FILE*f=fdopen(full[1],"w"); int rounds=atoi(getenv("R")?:"20");
 for(int i=0;i<rounds;i++) round_(&s,a,f);
 printf("stale=%d\n",stale); fflush(stdout); _exit(0);}
