// Is sending memory that the cache has forgotten dearer than copying it to a warm buffer and sending that? And what does it help
// to fetch it first?
//
//   cc -O2 -mavx2 bench/experiments/cold_send.c -o /tmp/cold && for n in 65536 262144 524288 1048576; do /tmp/cold $n 60; done
//
// 64 MB of values, one at random to a peer on the other core, which answers each with a byte. CPU time of the sending thread, medians
// of turns. On the reference machine at 512 KB: copy and send 104 us, send 122, fetch (prefetcht1) and send 102; at 64 KB 31.1,
// 32.4 and 30.7; at 1 MB, which the second-level cache does not hold, sending at once is best.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sched.h>
#include <time.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <immintrin.h>
static double cpu(){struct timespec t;clock_gettime(CLOCK_THREAD_CPUTIME_ID,&t);return t.tv_sec*1e6+t.tv_nsec/1e3;}
static void pin(int c){cpu_set_t s;CPU_ZERO(&s);CPU_SET(c,&s);sched_setaffinity(0,sizeof s,&s);}
static int cmp(const void*a,const void*b){double x=*(double*)a,y=*(double*)b;return x<y?-1:x>y;}
int main(int argc,char**argv){
  size_t size=atol(argv[1]); size_t total=64u<<20; int n=total/size; int rounds=atoi(argv[2]);
  int l=socket(AF_INET,SOCK_STREAM,0); struct sockaddr_in a={.sin_family=AF_INET,.sin_addr.s_addr=htonl(INADDR_LOOPBACK)}; socklen_t al=sizeof a;
  bind(l,(void*)&a,al); getsockname(l,(void*)&a,&al); listen(l,1);
  if(!fork()){ pin(1); int s=socket(AF_INET,SOCK_STREAM,0); connect(s,(void*)&a,al); char*b=malloc(size);
    for(;;){ size_t g=0; while(g<size){ ssize_t r=read(s,b+g,size-g); if(r<=0) _exit(0); g+=r;} if(write(s,"k",1)!=1)_exit(0);} }
  int s=accept(l,0,0); int one=1; setsockopt(s,IPPROTO_TCP,TCP_NODELAY,&one,sizeof one); pin(0);
  char*pool=mmap(0,total,PROT_READ|PROT_WRITE,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); memset(pool,7,total);
  char*reply=malloc(size+64)+16; memset(reply,1,size);
  const char*names[]={"copy+send","send","loadline+send","prefetcht0+send","prefetcht1+send","first 64 KB","every 2nd line","load all, AVX"};
  int V=8; double*res[8]; for(int v=0;v<V;v++)res[v]=malloc(sizeof(double)*rounds);
  unsigned x=12345; volatile long sink=0;
  for(int r=0;r<rounds;r++) for(int v=0;v<V;v++){
    double c=0; int K= 4<<20>size? (4<<20)/size:1;
    for(int k=0;k<K;k++){
      x=x*1664525+1013904223; char*p=pool+(size_t)((x>>8)%n)*size; 
      double t=cpu(); char*q=p;
      if(v==0){memcpy(reply,p,size); q=reply;}
      if(v==2){long z=0; for(size_t i=0;i<size;i+=64) z+=*(volatile long*)(p+i); sink+=z;}
      if(v==3){for(size_t i=0;i<size;i+=64) _mm_prefetch(p+i,_MM_HINT_T0);}
      if(v==4){for(size_t i=0;i<size;i+=64) _mm_prefetch(p+i,_MM_HINT_T1);}
      if(v==5){ for(size_t i=0;i<size&&i<65536;i+=64) _mm_prefetch(p+i,_MM_HINT_T0);}
      if(v==6){ for(size_t i=0;i<size;i+=128) _mm_prefetch(p+i,_MM_HINT_T0);}
      if(v==7){ __m256i z=_mm256_setzero_si256(); for(size_t i=0;i<size;i+=32) z=_mm256_xor_si256(z,_mm256_loadu_si256((void*)(p+i))); sink+=_mm256_extract_epi64(z,0);}
      size_t g=0; while(g<size){ssize_t w=write(s,q+g,size-g); if(w<0)return 1; g+=w;}
      c+=cpu()-t; char ack; if(read(s,&ack,1)!=1) return 1;
    }
    res[v][r]=c/K;
  }
  for(int v=0;v<V;v++){qsort(res[v],rounds,sizeof(double),cmp); printf("%7zu %-16s median %7.2f us  q1 %7.2f\n",size,names[v],res[v][rounds/2],res[v][rounds/4]);}
}
