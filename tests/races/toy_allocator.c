/* a shared-library allocator with no malloc_usable_size: bump, never frees; word before p holds garbage */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
static char*base;static size_t used;
void*malloc(size_t n){ if(!base){base=mmap(0,1ul<<30,3,MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE,-1,0);} n=(n+31)&~15ul; size_t o=__sync_fetch_and_add(&used,n); *(size_t*)(base+o+8)=0x7fffff2; return base+o+16;}
void free(void*p){} void*calloc(size_t a,size_t b){return malloc(a*b);} 
void*realloc(void*p,size_t n){void*q=malloc(n); if(p)memmove(q,p,n); return q;}
