/* The library that short_lived.c loads and unloads: large static arrays, and a copy made from inside it. */
#include <string.h>

char zeros[128 << 10];
char sevens[128 << 10] = { [0 ... (128 << 10) - 1] = 7 };

void copy(char *to, const char *from, size_t n);

void copy(char *to, const char *from, size_t n) { memcpy(to, from, n); }
