#include "input.h"
/* a page that is touched and then dropped (MADV_DONTNEED) while another thread is inside fork must read as zeros in the child.
 * fork is held up by fflush(NULL), which keeps libc's list of streams locked while it writes to a full pipe. */
#define SZ (1<<18)
static volatile int go; static char*r; static int full[2];
static void*flusher(void*x){ fflush(0); return 0;}
static void*forker(void*x){ int p=fork(); if(!p){ int stale=0; for(int i=0;i<SZ;i+=4096) stale+=r[i]!=0; _exit(stale?1:0);} int st; waitpid(p,&st,0); printf("stale=%d\n",st); fflush(stdout); return 0;}
int main(){ alarm(20); Src s; src_open(&s); char*a=aligned_alloc(4096,SZ); memset(a,0,SZ); r=mmap(0,SZ,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); memset(r,1,SZ);
 src_recv(&s,a,SZ,7); memcpy(r,a,SZ);
 pipe(full); fcntl(full[1],F_SETFL,O_NONBLOCK); static char junk[65536]; while(syscall(SYS_write,full[1],junk,sizeof junk)>0); fcntl(full[1],F_SETFL,0);
 FILE*f=fdopen(full[1],"w"); fprintf(f,"held up"); pthread_t t,u; pthread_create(&t,0,flusher,0); usleep(200000); pthread_create(&u,0,forker,0); usleep(500000);
 volatile int sum=0; for(int i=0;i<SZ;i+=4096) sum+=r[i]; if(sum!=7*(SZ/4096)) {printf("wrong\n"); _exit(1);}
 madvise(r,SZ,MADV_DONTNEED);
 fcntl(full[0],F_SETFL,O_NONBLOCK); for(int i=0;i<20;i++) { syscall(SYS_read,full[0],junk,sizeof junk); usleep(10000); }
 pthread_join(u,0); _exit(0);}
