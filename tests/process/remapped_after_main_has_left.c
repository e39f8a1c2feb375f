/* mremap of what has become several mappings, in a program whose first thread has ended: /proc/self, and its number, lead to no memory then. */
#include "process.h"

static void *goes_on(void *first) {
    MUST(pthread_join(*(pthread_t *)first, NULL) == 0);
    char *view = VIEW(9);
    for (int round = 0; round < 4; round++) {
        char *mixed = in_parts(view);
        EXPECT_INPUT(mixed + SIZE / 4, SIZE / 2, 9);
        char *there = fresh(2 * SIZE);
        char *moved = mremap(mixed, SIZE, 2 * SIZE, MREMAP_MAYMOVE | (round & 1 ? MREMAP_FIXED : 0), there);
        say("%d: %s", round, moved == MAP_FAILED ? strerror(errno) : "moved");
        if (moved == MAP_FAILED) continue;
        EXPECT_INPUT(moved + SIZE / 4, SIZE / 2, 9);
        EXPECT_FILLED(moved + SIZE, SIZE, 0);
    }
    exit(finish());
}

int main(void) {
    static pthread_t first;
    first = pthread_self();
    pthread_t other;
    MUST(pthread_create(&other, NULL, goes_on, &first) == 0);
    pthread_exit(NULL);
}
