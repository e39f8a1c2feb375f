// Does mapping an extent copy-on-write beat copying it, for a program that reads every byte of both copies?
//
//   cc -O2 -march=native bench/experiments/congruent_aliases.c -o /tmp/aliases && taskset -c 0 /tmp/aliases
//
// 16 extents in a memfd come round. Each is copied twice, and each copy is summed: by memcpy to resident buffers, and by mapping the
// extent over them (MAP_PRIVATE | MAP_FIXED), with and without MAP_POPULATE. Medians of 41 turns, CPU time of the thread.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include <unistd.h>
#include <sys/resource.h>
static double now(void){struct timespec t;clock_gettime(CLOCK_THREAD_CPUTIME_ID,&t);return t.tv_sec*1e9+t.tv_nsec;}
static unsigned long sum(const unsigned long*p,size_t n){unsigned long s=0;for(size_t i=0;i<n/8;i++)s+=p[i];return s;}
static int cmp(const void*a,const void*b){double x=*(double*)a,y=*(double*)b;return x<y?-1:x>y;}
int main(void){
  size_t sizes[]={65536,262144,524288,1048576,4194304};
  enum{RING=16,REP=41};
  for(int si=0;si<5;si++){size_t n=sizes[si];
    int fd=memfd_create("x",0); ftruncate(fd,n*RING);
    char*ext=mmap(0,n*RING,3,MAP_SHARED,fd,0); memset(ext,3,n*RING);
    char*a=mmap(0,n,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0),*b=mmap(0,n,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);
    char*pa=mmap(0,n,3,MAP_PRIVATE|MAP_ANONYMOUS|MAP_POPULATE,-1,0),*pb=mmap(0,n,3,MAP_PRIVATE|MAP_ANONYMOUS|MAP_POPULATE,-1,0);
    double tc[REP],ta[REP],tb[REP]; volatile unsigned long s=0;
    for(int r=0;r<REP;r++){
      double t0=now();
      for(int i=0;i<RING;i++){ memcpy(pa,ext+i*n,n); s+=sum((void*)pa,n); memcpy(pb,pa,n); s+=sum((void*)pb,n);} 
      double t1=now();
      for(int i=0;i<RING;i++){ mmap(a,n,3,MAP_PRIVATE|MAP_FIXED,fd,i*n); s+=sum((void*)a,n); mmap(b,n,3,MAP_PRIVATE|MAP_FIXED,fd,i*n); s+=sum((void*)b,n);} 
      double t2=now();
      for(int i=0;i<RING;i++){ mmap(a,n,3,MAP_PRIVATE|MAP_FIXED|MAP_POPULATE,fd,i*n); s+=sum((void*)a,n); mmap(b,n,3,MAP_PRIVATE|MAP_FIXED|MAP_POPULATE,fd,i*n); s+=sum((void*)b,n);} 
      double t3=now();
      tc[r]=(t1-t0)/RING;ta[r]=(t2-t1)/RING;tb[r]=(t3-t2)/RING;
    }
    qsort(tc,REP,8,cmp);qsort(ta,REP,8,cmp);qsort(tb,REP,8,cmp);
    printf("%7zu B: two copies, each summed: memcpy %8.0f ns, mapped %8.0f ns, mapped and populated %8.0f ns  ratio %.2f\n",n,tc[REP/2],ta[REP/2],tb[REP/2],tc[REP/2]/(ta[REP/2]<tb[REP/2]?ta[REP/2]:tb[REP/2]));
    munmap(ext,n*RING);munmap(a,n);munmap(b,n);munmap(pa,n);munmap(pb,n);close(fd);
  }
}
