/* mremap of memory that holds views: grown, shrunk, moved, to a fixed place over other views, MREMAP_DONTUNMAP, in part, and several
 * mappings at once. */
#include "process.h"

int main(void) {
    for (unsigned round = 0; round < 3; round++) {
        char *v = VIEW(1);
        char *grown = mremap(v, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
        MUST(grown != MAP_FAILED);
        EXPECT_INPUT(grown, SIZE, 1);
        EXPECT_FILLED(grown + SIZE, SIZE, 0);
        v = VIEW(2);
        char *shrunk = mremap(v, SIZE, SIZE / 2, 0);
        MUST(shrunk == v);
        EXPECT_INPUT(v, SIZE / 2, 2);
        char *over = VIEW(3);
        v = VIEW(4);
        MUST(mremap(v, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, over) == over);
        EXPECT_INPUT(over, SIZE, 4);
        v = VIEW(5);
        char *part = mremap(v + SIZE / 4, SIZE / 2, SIZE / 2, MREMAP_MAYMOVE | MREMAP_FIXED, fresh(SIZE) + SIZE / 4);
        MUST(part != MAP_FAILED);
        EXPECT_INPUT_FROM(part, SIZE / 2, 5, SIZE / 4);
        EXPECT_INPUT_FROM(v + SIZE / 4 * 3, SIZE / 4, 5, SIZE / 4 * 3);
        EXPECT_INPUT(v, SIZE / 4, 5);
        v = VIEW(6);
        char *moved = mremap(v, SIZE, SIZE, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */, NULL);
        MUST(moved != MAP_FAILED);
        EXPECT_INPUT(moved, SIZE, 6);
        EXPECT_FILLED(v, SIZE, 0); /* still mapped, with nothing there */
        receive(v, SIZE, 7);
        char *to = fresh(SIZE);
        ELIDED_COPY(to, v, SIZE);
        EXPECT_INPUT(to, SIZE, 7);
        EXPECT_INPUT(moved, SIZE, 6);
        /* A part is a view: several mappings by now. */
        char *mixed = fresh(SIZE);
        fill(mixed, SIZE, 8, 0);
        ELIDED_COPY(mixed + SIZE / 4, VIEW(9), SIZE / 2);
        mixed = mremap(mixed, SIZE, SIZE * 3, MREMAP_MAYMOVE);
        MUST(mixed != MAP_FAILED);
        EXPECT_INPUT(mixed, SIZE / 4, 8);
        EXPECT_INPUT(mixed + SIZE / 4, SIZE / 2, 9);
        EXPECT_INPUT_FROM(mixed + SIZE / 4 * 3, SIZE / 4, 8, SIZE / 4 * 3);
        EXPECT_FILLED(mixed + SIZE, SIZE * 2, 0);
        /* Parts that were first touched apart stay several mappings. */
        char *apart = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(apart != MAP_FAILED);
        ELIDED_COPY(apart + SIZE / 4, VIEW(11), SIZE / 2);
        fill(apart, SIZE / 4, 12, 0);
        fill(apart + SIZE / 4 * 3, SIZE / 4, 12, SIZE / 4 * 3);
        char *twin = mremap(apart, SIZE, SIZE, MREMAP_MAYMOVE | 4, NULL);
        MUST(twin != MAP_FAILED);
        EXPECT_INPUT(twin, SIZE / 4, 12);
        EXPECT_INPUT(twin + SIZE / 4, SIZE / 2, 11);
        EXPECT_INPUT_FROM(twin + SIZE / 4 * 3, SIZE / 4, 12, SIZE / 4 * 3);
        EXPECT_FILLED(apart, SIZE, 0);
        errno = 0;
        MUST(mremap(twin + 1, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, apart) == MAP_FAILED && errno == EINVAL);
        EXPECT_FILLED(apart, SIZE, 0);
        char *nothing = mremap((void *)PAGE, SIZE, SIZE * 2, MREMAP_MAYMOVE);
        say("nothing there: %s", nothing == MAP_FAILED ? strerror(errno) : "?");
        say("shrunk to nothing: %s", mremap(mixed, SIZE, 0, 0) == MAP_FAILED ? strerror(errno) : "?");
        /* realloc of large blocks uses it. */
        char *block = malloc(SIZE);
        receive(block, SIZE, 10);
        char *copy = malloc(SIZE);
        ELIDED_COPY(copy, block, SIZE);
        copy = realloc(copy, SIZE * 8);
        block = realloc(block, SIZE / 2);
        EXPECT_INPUT(copy, SIZE, 10);
        EXPECT_INPUT(block, SIZE / 2, 10);
        free(copy), free(block);
    }
    return finish();
}
