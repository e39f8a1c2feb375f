/* mremap of what has become several mappings, while another thread maps and unmaps: the addresses that one of them leaves for a moment are not the
 * other's. (Where the kernel refuses a part, the others go back to where they were.) */
#include "process.h"
#include <stdatomic.h>

#define BLOCK (SIZE / 4)
enum { ROUNDS = 100, PARTS = 12 };
static atomic_int ended;

static void *maps(void *unused) {
    (void)unused;
    for (unsigned char with = 1; !atomic_load(&ended); with = with % 100 + 1) {
        char *block[PARTS];
        for (int i = 0; i < PARTS; i++) {
            block[i] = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            MUST(block[i] != MAP_FAILED);
            for (size_t at = 0; at < BLOCK; at += PAGE) block[i][at] = (char)with;
        }
        sched_yield();
        for (int i = 0; i < PARTS; i++) {
            for (size_t at = 0; at < BLOCK; at += PAGE)
                if (block[i][at] != (char)with) say("WRONG: another's page"), exit(1);
            MUST(munmap(block[i], BLOCK) == 0);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t other;
    MUST(pthread_create(&other, NULL, maps, NULL) == 0);
    char *view = VIEW(9);
    for (int round = 0; round < ROUNDS; round++) {
        char *mixed = in_parts(view);
        EXPECT_INPUT(mixed + SIZE / 4, SIZE / 2, 9);
        size_t size = round % 3 == 0 ? 2 * SIZE : round % 3 == 1 ? SIZE : SIZE / 2;
        char *there = fresh(size);
        char *moved = mremap(mixed, SIZE, size, MREMAP_MAYMOVE | (round % 2 ? MREMAP_FIXED : 0), there);
        MUST(moved != MAP_FAILED);
        EXPECT_INPUT(moved + SIZE / 4, SIZE / 4, 9);
        MUST(munmap(moved, size) == 0);
        if (moved != there) MUST(munmap(there, size) == 0);
    }
    atomic_store(&ended, 1);
    MUST(pthread_join(other, NULL) == 0);
    return finish();
}
