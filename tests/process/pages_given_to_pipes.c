/* vmsplice by the program itself: the pipe refers to its pages, which hold views, become origins, are copied into and out of, and
 * freed, before the pipe is read; also tee, and SPLICE_F_GIFT. */
#include "process.h"

static void drain(int fd, void *to, size_t n) {
    for (size_t got = 0; got < n;) {
        long r = RAW(SYS_read, fd, (char *)to + got, n - got);
        MUST(r > 0);
        got += (size_t)r;
    }
}

int main(void) {
    char *got = fresh(SIZE);
    for (unsigned round = 0; round < 12; round++) {
        int fds[2], second[2];
        MUST(pipe(fds) == 0 && pipe(second) == 0);
        fcntl(fds[1], F_SETPIPE_SZ, (int)(SIZE * 2));
        fcntl(second[1], F_SETPIPE_SZ, (int)(SIZE * 2));
        char *v = VIEW(round), *origin = fresh(SIZE), *to = fresh(SIZE);
        receive(origin, SIZE, 100 + round);
        char *given = round % 2 ? origin : v;
        unsigned number = round % 2 ? 100 + round : round;
        struct iovec part = {given, SIZE / 2};
        MUST(vmsplice(fds[1], &part, 1, round % 3 == 2 ? SPLICE_F_GIFT : 0) == (ssize_t)SIZE / 2);
        memcpy(to, given, SIZE); /* must not take the pages away from the pipe */
        char *shown = fresh(SIZE);
        if (round % 4 < 2) {
            /* By reference: what is written now is what the pipe holds. */
            given[PAGE * 3] = 'R';
            memcpy(given + PAGE * 5, VIEW(50), PAGE * 4);
        } else {
            receive(given, PAGE * 8, 60); /* input over it too */
        }
        MUST(tee(fds[0], second[1], SIZE / 2, 0) == (ssize_t)SIZE / 2);
        drain(fds[0], got, SIZE / 2);
        memcpy(shown, got, SIZE / 2);
        show("through the pipe", shown, SIZE / 2);
        show("what was given", given, SIZE);
        EXPECT_INPUT(to, SIZE, number);
        munmap(given, SIZE); /* the second pipe still refers to them */
        /* (Nothing is elided at these addresses from now on; leave them alone.) */
        MUST(mmap(given, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == given);
        char *other = VIEW(70);
        drain(second[0], got, SIZE / 2);
        show("through the second", got, SIZE / 2);
        EXPECT_INPUT(other, SIZE, 70);
        for (int i = 0; i < 2; i++) close(fds[i]), close(second[i]);
    }
    /* Into memory: a pipe's pages spliced to the program (vmsplice reading copies). */
    int fds[2];
    MUST(pipe(fds) == 0);
    char chunk[PAGE * 8];
    fill(chunk, sizeof chunk, 80, 0);
    MUST(RAW(SYS_write, fds[1], chunk, sizeof chunk) == (long)sizeof chunk);
    char *v = VIEW(81);
    struct iovec into = {v + 10, sizeof chunk};
    MUST(vmsplice(fds[0], &into, 1, 0) == (ssize_t)sizeof chunk);
    EXPECT_INPUT(v, 10, 81);
    EXPECT_INPUT(v + 10, sizeof chunk, 80);
    EXPECT_INPUT_FROM(v + 10 + sizeof chunk, SIZE - 10 - sizeof chunk, 81, 10 + sizeof chunk);
    return finish();
}
