/* mmap with MAP_FIXED over memory with views and origins: anonymous, file, PROT_NONE, in part; MAP_FIXED_NOREPLACE; what was there
 * is gone, its copies stay. */
#include "process.h"

int main(void) {
    int file = input_file(SIZE, 99), protect = PROT_READ | PROT_WRITE;
    for (unsigned round = 0; round < 12; round++) {
        char *origin = fresh(SIZE), *v = fresh(SIZE), *to = fresh(SIZE);
        receive(origin, SIZE, round);
        ELIDED_COPY(v, origin, SIZE);
        ELIDED_COPY(to, v, SIZE);
        char *over = (round & 1 ? v : origin) + PAGE * 4;
        size_t n = SIZE / 2;
        char *m = NULL;
        switch (round / 2) {
        case 0: m = mmap(over, n, protect, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); break;
        case 1: m = mmap(over, n, protect, MAP_PRIVATE | MAP_FIXED, file, 0); break;
        case 2: m = mmap(over, n, protect, MAP_SHARED | MAP_FIXED, file, 0); break;
        case 3:
            m = mmap(over, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
            MUST(mprotect(over, n, protect) == 0);
            break;
        case 4:
            m = mmap(over, n, protect, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            say("not replaced: %s", m == MAP_FAILED ? strerror(errno) : "?");
            EXPECT_INPUT(round & 1 ? v : origin, SIZE, round);
            MUST(munmap(over, n) == 0);
            m = mmap(over, n, protect, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            break;
        default: m = mmap(over, n, protect, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
        MUST(m == over);
        if (round / 2 == 1 || round / 2 == 2) EXPECT_INPUT(over, n, 99);
        else EXPECT_FILLED(over, n, 0);
        EXPECT_INPUT(to, SIZE, round);
        char *whole = round & 1 ? v : origin;
        EXPECT_INPUT(whole, PAGE * 4, round);
        EXPECT_INPUT_FROM(over + n, SIZE / 2 - PAGE * 4, round, PAGE * 4 + n);
        if (round / 2 == 2) continue;
        receive(whole, SIZE, 50 + round); /* used again, of two kinds now */
        memcpy(to, whole, SIZE);
        EXPECT_INPUT(to, SIZE, 50 + round);
        memcpy(whole, VIEW(80), SIZE);
        EXPECT_INPUT(whole, SIZE, 80);
    }
    return finish();
}
