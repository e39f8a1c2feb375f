/* Where libc's routine is slow (slow_library.c is, on every processor), uncopy finds that out when the program starts, and its own makes
 * these copies; all others stay libc's. */
#define _FORTIFY_SOURCE 0
#include "process.h"

extern unsigned long slow_copies;

int main(void) {
    unsigned char *from = (unsigned char *)fresh(1 << 20), *to = (unsigned char *)fresh((1 << 20) + PAGE);
    fill(from, 1 << 20, 1, 0);
    void *(*volatile functions[])(void *, const void *, size_t) = {memcpy, memmove, mempcpy};
    for (size_t n = 1024; n <= 1 << 20; n *= 2)
        for (size_t ahead = 0; ahead <= 40; ahead += 8)
            for (int i = 0; i < 3; i++) {
                unsigned long before = slow_copies;
                void *end = functions[i](to + ahead, from, n);
                int slow = slow_copies != before, near = n >= 2048 && ahead >= 1 && ahead <= 31;
                MUST(end == to + ahead + (i == 2 ? n : 0));
                if (!is_input(to + ahead, n, 1, 0)) return 1;
                if (slow != (near && !counters()))
                    say("WRONG: %zu bytes to %zu ahead by function %d: %s", n, ahead, i, slow ? "slow" : "fast");
            }
    say("end");
    return 0;
}
