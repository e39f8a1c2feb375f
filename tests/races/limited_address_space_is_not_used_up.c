#include "input.h"
int main(){ struct rlimit l={1500ul<<20,1500ul<<20}; setrlimit(RLIMIT_AS,&l); Src s; src_open(&s); char*a=aligned_alloc(4096,1<<18),*b=aligned_alloc(4096,1<<18);memset(a,0,1<<18);memset(b,0,1<<18);
 src_recv(&s,a,1<<16,7); memcpy(b,a,1<<16);
 size_t tot=0; while(tot<(1200ul<<20)){ if(!malloc(16<<20))break; tot+=16<<20;} printf("could allocate %zu MB of 1200\n",tot>>20);
 }
