/* mremap of memory that is tracked no more, but still several mappings because parts of it were first touched apart, where no descriptor is left by which to
 * see that. */
#include "process.h"
#include <sys/resource.h>

int main(void) {
    char *mixed[3];
    for (int i = 0; i < 3; i++) {
        mixed[i] = in_parts(VIEW(9));
        EXPECT_INPUT(mixed[i] + SIZE / 4, SIZE / 2, 9);
        MUST(mprotect(mixed[i], SIZE, PROT_READ) == 0 && mprotect(mixed[i], SIZE, PROT_READ | PROT_WRITE) == 0);
    }
    char *there = fresh(2 * SIZE), *read_only = mixed[2] + SIZE - PAGE;
    MUST(mprotect(read_only, PAGE, PROT_READ) == 0);
    struct rlimit none = {0, 0};
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int i = 0; i < 3; i++) {
        int flags = i == 1 ? MREMAP_MAYMOVE | MREMAP_FIXED : MREMAP_MAYMOVE;
        char *moved = mremap(mixed[i], SIZE, i == 2 ? SIZE / 2 : 2 * SIZE, flags, there);
        say("%d: %s", i, moved == MAP_FAILED ? strerror(errno) : "moved");
        if (moved == MAP_FAILED) continue;
        EXPECT_INPUT(moved + SIZE / 4, SIZE / 4, 9);
        if (i == 2) continue;
        EXPECT_INPUT_FROM(moved + SIZE / 2, SIZE / 4, 9, SIZE / 4);
        EXPECT_FILLED(moved + SIZE, SIZE, 0);
    }
    return finish();
}
