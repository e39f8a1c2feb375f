/* O_DIRECT reads and writes of views and origins, whole, in part, and not aligned (EINVAL as ever); read again through the cache. */
#include "process.h"

int main(void) {
    char name[] = "./direct.XXXXXX"; /* the run's own directory: a real file system */
    int fd = mkstemp(name);
    MUST(fd >= 0);
    int direct = open(name, O_RDWR | O_DIRECT);
    unlink(name);
    if (direct < 0) {
        say("no O_DIRECT on this file system: %s", strerror(errno));
        elided_here = 1;
        return finish();
    }
    char *to = fresh(SIZE), *back = fresh(SIZE);
    for (unsigned round = 0; round < 4; round++) {
        char *v = VIEW(round);
        v[PAGE * 9 + 5] ^= 0; /* one page is there */
        MUST(pwrite(direct, v, SIZE, 0) == (ssize_t)SIZE);
        MUST(pread(direct, back, SIZE, 0) == (ssize_t)SIZE); /* input: an origin */
        ELIDED_COPY(to, back, SIZE);
        MUST(pwrite(direct, to, SIZE / 2, (long)SIZE) == (ssize_t)SIZE / 2); /* out of views */
        MUST(pread(direct, to, SIZE, (long)SIZE / 2) == (ssize_t)SIZE);     /* into views, at the end of the file */
        EXPECT_INPUT_FROM(to, SIZE / 2, round, SIZE / 2);
        EXPECT_INPUT(to + SIZE / 2, SIZE / 2, round);
        EXPECT_INPUT(back, SIZE, round);
        char *again = VIEW(10 + round);
        struct iovec parts[3] = {{again + PAGE * 2, PAGE * 8}, {to, PAGE * 8}, {again + PAGE * 30, PAGE * 8}};
        say("writev %zd", pwritev(direct, parts, 3, 0));
        say("readv %zd", preadv(direct, parts, 3, (long)PAGE * 8));
        EXPECT_INPUT(again, PAGE * 2, 10 + round);
        EXPECT_INPUT_FROM(again + PAGE * 2, PAGE * 8, round, SIZE / 2);
        EXPECT_INPUT_FROM(to, PAGE * 8, 10 + round, PAGE * 30);
        show("again", again, SIZE);
        ssize_t n = pread(direct, VIEW(20) + 1, SIZE - PAGE, 0);
        say("not aligned in memory: %zd %s", n, n < 0 ? strerror(errno) : "");
        n = pwrite(direct, VIEW(21), SIZE, 7);
        say("not aligned in the file: %zd %s", n, n < 0 ? strerror(errno) : "");
        n = pwrite(direct, VIEW(22), SIZE - 100, 0);
        say("not aligned in length: %zd %s", n, n < 0 ? strerror(errno) : "");
        char *cached = fresh(SIZE);
        MUST(pread(fd, cached, SIZE, 0) == (ssize_t)SIZE);
        show("through the cache", cached, SIZE);
    }
    return finish();
}
