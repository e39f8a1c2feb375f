/* The copying functions of a libc that is slow where the destination begins 1 to 31 bytes ahead of the source within the page: as glibc's
 * are on processors whose `rep movsb` is. It counts such copies. */
#include <stddef.h>
#include <stdint.h>

unsigned long slow_copies;

static void *copy(void *to, const void *from, size_t n) {
    size_t ahead = ((uintptr_t)to - (uintptr_t)from) % 4096, times = 1;
    if (n >= 2048 && ahead >= 1 && ahead <= 31) slow_copies++, times = 20;
    for (; times > 0; times--) {
        void *d = to;
        const void *s = from;
        size_t left = n;
        if ((uintptr_t)to - (uintptr_t)from >= n)
            __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(left)::"memory");
        else {
            d = (char *)to + n - 1, s = (const char *)from + n - 1, times = 1;
            __asm__ volatile("std; rep movsb; cld" : "+D"(d), "+S"(s), "+c"(left)::"memory");
        }
    }
    return to;
}
void *memcpy(void *to, const void *from, size_t n) { return copy(to, from, n); }
void *memmove(void *to, const void *from, size_t n) { return copy(to, from, n); }
void *mempcpy(void *to, const void *from, size_t n) { return (char *)copy(to, from, n) + n; }
