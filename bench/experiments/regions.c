// The cost of a miss of the TLB over how many regions of 1 GB (an entry of the page table's third level covers one) the pages lie in: the processor keeps
// few of these entries. It follows a chain through 8,192 pages, far more than the TLB holds, in an order that cannot be foretold.
//
//     gcc -O2 regions.c -o /tmp/regions && taskset -c 1 /tmp/regions
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGES = 8192, PAGE = 4096, MOST = 64, TIMES = 20 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(void) {
    static const int regions[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32, MOST};
    static char *at[PAGES];
    for (unsigned k = 0; k < sizeof regions / sizeof *regions; k++) {
        int r = regions[k];
        size_t each = (PAGES + r - 1) / r * PAGE;
        char *begin[MOST];
        for (int i = 0; i < r; i++) {
            void *place = (void *)(uintptr_t)(0x640000000000 + i * (3ul << 30));
            begin[i] = mmap(place, each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if (begin[i] == MAP_FAILED) return perror("mmap"), 1;
        }
        // Each page's line is another one, so that lines do not contend for a place in the cache.
        for (int i = 0; i < PAGES; i++) at[i] = begin[i % r] + i / r * (size_t)PAGE + i * 448ul % PAGE;
        srand(1);
        for (int i = PAGES - 1; i > 0; i--) {
            int j = rand() % (i + 1);
            char *other = at[i];
            at[i] = at[j], at[j] = other;
        }
        for (int i = 0; i < PAGES; i++) *(char **)at[i] = at[(i + 1) % PAGES];
        double best = 1e18;
        char *p = at[0];
        for (int n = 0; n < TIMES; n++) {
            double took = now();
            for (int i = 0; i < PAGES; i++) p = *(char *volatile *)p;
            took = (now() - took) / PAGES;
            if (took < best) best = took;
        }
        printf("%3d regions: %.1f ns an access\n", r, best);
        for (int i = 0; i < r; i++) munmap(begin[i], each);
    }
}
