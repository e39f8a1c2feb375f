#include "input.h"
int main(){ setvbuf(stdout,0,_IONBF,0); Src s; src_open(&s); char*a=malloc(1<<18),*b=malloc(1<<18),*c=malloc(1<<18);memset(a,0,1<<18);memset(b,0,1<<18);memset(c,0,1<<18);
 src_recv(&s,a,1<<18,7); memcpy(b,a,1<<18);memcpy(c,a,1<<18); free(a);
 long bad=0; for(int i=0;i<1<<18;i++)bad+=(b[i]!=7)+(c[i]!=7); printf("bad=%ld\n",bad);}
