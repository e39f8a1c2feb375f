/* Files with holes, reads across the end, files that shrink and grow while they are read into views. */
#include "process.h"

static int file;
static volatile int stop;
static void *resizes(void *unused) {
    (void)unused;
    while (!stop) {
        MUST(ftruncate(file, (long)PAGE * 3 + 5) == 0 && ftruncate(file, (long)SIZE) == 0);
    }
    return NULL;
}

int main(void) {
    file = memfd_create("sparse", 0);
    char chunk[PAGE], *to = fresh(SIZE);
    MUST(ftruncate(file, (long)SIZE) == 0);
    for (size_t at = 0; at < SIZE; at += PAGE * 4) {
        fill(chunk, PAGE, 1, at);
        MUST(raw(SYS_pwrite64, file, (long)chunk, PAGE, (long)at, 0, 0) == (long)PAGE);
    }
    for (unsigned round = 0; round < 4; round++) {
        char *v = round % 2 ? VIEW(10 + round) : fresh(SIZE); /* into views, and into resident pages */
        MUST(pread(file, v, SIZE, 0) == (ssize_t)SIZE);
        ELIDED_COPY(to, v, SIZE);
        for (size_t at = 0; at < SIZE; at += PAGE * 4) {
            MUST(is_input(to + at, PAGE, 1, at));
            if (at + PAGE * 4 <= SIZE) MUST(is_filled(to + at + PAGE, PAGE * 3, 0));
        }
        char *w = VIEW(20 + round);
        ssize_t n = pread(file, w, SIZE, (long)SIZE - 5000); /* ends early: the rest of the buffer stays */
        say("at the end: %zd, behind it: %zd", n, pread(file, w, SIZE, (long)SIZE + 5));
        EXPECT_INPUT_FROM(w + 5000, SIZE - 5000, 20 + round, 5000);
        char *whole = VIEW(30 + round);
        MUST(ftruncate(file, 0) == 0);
        say("empty: %zd", pread(file, whole, SIZE, 0));
        EXPECT_INPUT(whole, SIZE, 30 + round);
        MUST(ftruncate(file, (long)SIZE) == 0);
        MUST(pread(file, whole, SIZE, 0) == (ssize_t)SIZE);
        EXPECT_FILLED(whole, SIZE, 0);
        char *source = VIEW(1);
        for (size_t at = 0; at < SIZE; at += PAGE * 4) /* out of views, with holes */
            MUST(pwrite(file, source + at, PAGE, (long)at) == (ssize_t)PAGE);
    }
    /* The file changes its size all the time: every page is data, zeros, or what the buffer held. */
    char *source = VIEW(1);
    MUST(pwrite(file, source, SIZE, 0) == (ssize_t)SIZE);
    pthread_t resizer;
    MUST(pthread_create(&resizer, NULL, resizes, NULL) == 0);
    for (unsigned round = 0; round < 100; round++) {
        char *v = round % 2 ? VIEW(2) : fresh(SIZE);
        if (round % 2 == 0) receive(v, SIZE, 2);
        ssize_t n = pread(file, v, SIZE, 0);
        MUST(n >= 0);
        memcpy(to, v, SIZE);
        size_t kept = PAGE * 3 + 5;
        MUST(is_input(to, (size_t)n < kept ? (size_t)n : kept, 1, 0));
        MUST(is_input(to + n, SIZE - (size_t)n, 2, (size_t)n));
        munmap(v, SIZE);
    }
    stop = 1;
    pthread_join(resizer, NULL);
    return finish();
}
