/* vmsplice, then the memory is moved (mremap): what is written there is what the pipe holds, though the bytes were copied in between.
 * And where memory was given once, and is mapped anew or dropped since, copies are elided as ever. */
#include "process.h"

static int fds[2];

static void give(char *from, size_t n) {
    struct iovec part = {from, n};
    MUST(vmsplice(fds[1], &part, 1, 0) == (ssize_t)n);
}

static void show_pipe(const char *what) {
    static char got[SIZE], shown[SIZE];
    for (size_t n = 0; n < SIZE;) {
        long r = RAW(SYS_read, fds[0], got + n, SIZE - n);
        MUST(r > 0);
        n += (size_t)r;
    }
    memcpy(shown, got, SIZE);
    show(what, shown, SIZE);
}

/* Where `at` was given: elided, that is, not excluded any more? */
static void as_ever(char *at, unsigned number) {
    char *to = fresh(SIZE);
    receive(at, SIZE, number);
    ELIDED_COPY(to, at, SIZE);
    MUST_BE_UNMAPPED(at + SIZE / 2);
    EXPECT_INPUT(to, SIZE, number);
    EXPECT_INPUT(at, SIZE, number);
    munmap(to, SIZE);
}

int main(void) {
    MUST(pipe(fds) == 0 && fcntl(fds[1], F_SETPIPE_SZ, 1 << 20) > 0);
    for (unsigned round = 0; round < 4; round++) {
        if (round == 1) munmap(VIEW(99), SIZE); /* the first round is before anything was elided */
        char *from = fresh(SIZE), *to = fresh(SIZE), *place = fresh(2 * SIZE), *last;
        receive(place, SIZE, 90); /* input has come to both places */
        receive(from, SIZE, round);
        give(from, SIZE);
        switch (round) {
        case 0: case 1: last = mremap(from, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, place); break;
        case 2: last = mremap(from, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, place); break;
        default: last = (char *)syscall(SYS_mremap, from, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, place); break;
        }
        MUST(last == place);
        if (round == 1) {
            /* Something else is where it was. */
            MUST(mmap(from, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from);
            as_ever(from, 60);
        }
        memcpy(to, last, SIZE);
        last[PAGE * 3] = 'R';
        memset(last + PAGE * 7 + 100, 'S', 3 * PAGE);
        show_pipe("moved, then written to");
        EXPECT_INPUT(to, SIZE, round);
    }
    char *again = fresh(SIZE), *v = VIEW(5);
    for (unsigned round = 0; round < 3; round++) {
        receive(again, SIZE, 10);
        give(again, SIZE);
        give(v, SIZE);
        show_pipe("given"), show_pipe("given too");
        MUST(munmap(again, SIZE) == 0 && munmap(v, SIZE) == 0);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        MUST(mmap(again, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) == again);
        MUST(mmap(v, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) == v);
        as_ever(again, 11), as_ever(v, 12);
        receive(again, SIZE, 13);
        give(again, SIZE);
        show_pipe("given again");
        /* (Refused: nothing changes.) */
        MUST(madvise(again + 1, SIZE, MADV_DONTNEED) == -1 && errno == EINVAL);
        MUST(madvise(again, SIZE, MADV_DONTNEED) == 0);
        as_ever(again, 14);
        give(again, SIZE);
        show_pipe("given a third time");
        /* Mapped over. */
        MUST(mmap(again, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) == again);
        as_ever(again, 15);
    }
    return finish();
}
