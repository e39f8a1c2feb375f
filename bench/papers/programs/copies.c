// The cost of a copy of SIZE bytes in the states of the cache that table 2 of "Zero-Copy TCP in
// Solaris" has; prints JSON, ns, medians.
//
//   hot     source and destination were copied just before
//   cold    neither is in a cache (clflush)
//   dirty   nor is it, and what the copy displaces must be written back first
#include <emmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 2000, OTHER = 8 << 20 };

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void flush(const char *at, size_t size) {
    for (size_t i = 0; i < size; i += 64) _mm_clflush(at + i);
    _mm_mfence();
}

int main(int count, char **words) {
    size_t size = count > 1 ? strtoul(words[1], NULL, 10) : 8192;
    char *from = aligned_alloc(4096, size), *to = aligned_alloc(4096, size), *other = aligned_alloc(4096, OTHER);
    memset(from, 1, size), memset(to, 2, size), memset(other, 3, OTHER);
    const char *states[] = {"hot", "cold", "dirty"};
    printf("{");
    for (int state = 0; state < 3; state++) {
        static uint64_t took[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            if (state == 0) memcpy(to, from, size);
            if (state > 0) flush(from, size), flush(to, size);
            if (state == 2) memset(other, i, OTHER);
            uint64_t before = now();
            memcpy(to, from, size);
            __asm__ volatile("" ::: "memory");
            took[i] = now() - before;
            from[i % size]++;
        }
        qsort(took, ROUNDS, sizeof *took, by_size);
        printf("%s\"%s\": %llu", state ? ", " : "", states[state], (unsigned long long)took[ROUNDS / 2]);
    }
    printf("}\n");
}
