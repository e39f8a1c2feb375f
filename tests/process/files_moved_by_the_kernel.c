/* sendfile, splice, copy_file_range and tee move what was written out of views, between files, pipes and sockets, and into views again. */
#include "process.h"
#include <sys/sendfile.h>

int main(void) {
    char *got = fresh(SIZE), *to = fresh(SIZE);
    for (unsigned round = 0; round < 4; round++) {
        char *v = VIEW(round);
        int a = input_file(1, 0), b = input_file(1, 0), fds[2], pair[2];
        MUST(pwrite(a, v, SIZE, 0) == (ssize_t)SIZE); /* gathered out of the extent, to a real file */
        loff_t from = 0, there = 0;
        size_t n = 0;
        while (n < SIZE) {
            ssize_t part = copy_file_range(a, &from, b, &there, SIZE - n, 0);
            MUST(part > 0);
            n += (size_t)part;
        }
        v[PAGE * 7] ^= 0xff; /* later changes are not in the file */
        MUST(pread(b, got, SIZE, 0) == (ssize_t)SIZE);
        ELIDED_COPY(to, got, SIZE);
        EXPECT_INPUT(to, SIZE, round);
        MUST(pipe(fds) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        off_t at = 0;
        loff_t spliced = 0;
        for (n = 0; n < SIZE;) {
            ssize_t part = round % 2 ? sendfile(pair[1], b, &at, 32768) : splice(b, &spliced, fds[1], NULL, 32768, 0);
            MUST(part > 0);
            if (round % 2 == 0) MUST(splice(fds[0], NULL, pair[1], NULL, (size_t)part, 0) == part);
            for (size_t left = (size_t)part; left > 0;) {
                ssize_t r = recv(pair[0], got + n, left, 0); /* into resident pages, and views from the second round on */
                MUST(r > 0);
                n += (size_t)r, left -= (size_t)r;
            }
        }
        ELIDED_COPY(to, got, SIZE);
        send_on("moved", to, SIZE);
        EXPECT_INPUT(to, SIZE, round);
        EXPECT_INPUT(got, SIZE, round);
        /* A pipe written out of views, spliced to a file while the views change. */
        char *w = VIEW(20 + round);
        MUST(write(fds[1], w, PAGE * 12) == (ssize_t)PAGE * 12);
        receive(w, SIZE, 30);
        MUST(splice(fds[0], NULL, a, &(loff_t){0}, PAGE * 12, 0) == (ssize_t)PAGE * 12);
        MUST(pread(a, got, PAGE * 12, 0) == (ssize_t)PAGE * 12);
        EXPECT_INPUT(got, PAGE * 12, 20 + round);
        EXPECT_INPUT(w, SIZE, 30);
        close(a), close(b), close(fds[0]), close(fds[1]), close(pair[0]), close(pair[1]);
    }
    return finish();
}
