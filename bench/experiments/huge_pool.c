// Would huge pages make it cheap to replace pages that were lent to the kernel, which are dropped and never written again?
//
//   cc -O2 bench/experiments/huge_pool.c -o /tmp/huge && /tmp/huge 40
//
// A pool of 64 MB is filled MB by MB, as by input calls (`read` from /dev/zero and, apart, memcpy from a warm buffer), and what was filled is
// dropped behind it with MADV_DONTNEED. CPU time for each MB filled and dropped, medians of turns:
//
//   kept      nothing is dropped: what recycling would cost
//   small     pages of 4 KB, each MB dropped for itself
//   populate  the same, and the next MB is faulted in by one call (MADV_POPULATE_WRITE)
//   huge      pages of 2 MB, dropped both MBs at once
//   halves    pages of 2 MB, each MB dropped for itself, as extents end one by one: the huge page is split
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define MB (1ul << 20)
#define POOL (64 * MB)
enum how { KEPT, SMALL, POPULATE, HUGE, HALVES, HOWS };
static const char *names[] = {"kept", "small", "populate", "huge", "halves"};
static double cpu(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec * 1e6 + t.tv_nsec / 1e3; }
static int compare(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return x < y ? -1 : x > y; }
static void must(int ok, const char *what) { if (!ok) { perror(what); exit(1); } }

/* us for each MB of one walk over the pool */
static double walk(char *pool, enum how how, int zero, const char *warm) {
    double start = cpu();
    for (size_t at = 0; at < POOL; at += MB) {
        if (how == POPULATE) must(madvise(pool + at, MB, MADV_POPULATE_WRITE) == 0, "MADV_POPULATE_WRITE");
        if (zero >= 0) must(read(zero, pool + at, MB) == (ssize_t)MB, "read");
        else memcpy(pool + at, warm, MB);
        if (how == SMALL || how == POPULATE || how == HALVES) must(madvise(pool + at, MB, MADV_DONTNEED) == 0, "MADV_DONTNEED");
        if (how == HUGE && at / MB % 2) must(madvise(pool + at - MB, 2 * MB, MADV_DONTNEED) == 0, "MADV_DONTNEED");
    }
    return (cpu() - start) / (POOL / MB);
}

int main(int argc, char **argv) {
    int turns = argc > 1 ? atoi(argv[1]) : 40;
    int zero = open("/dev/zero", O_RDONLY);
    char *warm = malloc(MB), *pools[HOWS];
    memset(warm, 7, MB);
    for (int how = 0; how < HOWS; how++) {
        char *p = mmap(0, POOL + 2 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(p != MAP_FAILED, "mmap");
        pools[how] = (char *)(((size_t)p + 2 * MB - 1) & -(2 * MB));
        must(madvise(pools[how], POOL, how >= HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0, "madvise");
    }
    for (int by_copy = 0; by_copy < 2; by_copy++) {
        double *took[HOWS];
        for (int how = 0; how < HOWS; how++) took[how] = malloc(sizeof(double) * turns);
        for (int turn = -2; turn < turns; turn++)
            for (int how = 0; how < HOWS; how++) {
                double us = walk(pools[how], how, by_copy ? -1 : zero, warm);
                if (turn >= 0) took[how][turn] = us;
            }
        for (int how = 0; how < HOWS; how++) {
            qsort(took[how], turns, sizeof(double), compare);
            printf("%-7s %-9s %7.1f us/MB (%.1f to %.1f)\n", by_copy ? "memcpy" : "read", names[how], took[how][turns / 2], took[how][0], took[how][turns - 1]);
        }
    }
}
