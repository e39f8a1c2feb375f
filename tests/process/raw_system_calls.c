/* System calls by inline assembly, which no library sees, into and out of unmapped pages: input, output, vectors, positions, and calls
 * that change the memory map. */
#include "process.h"
#include <sys/sendfile.h>

int main(void) {
    int file = input_file(SIZE, 1), out = memfd_create("out", 0), pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char *written = NULL;
    MUST(ftruncate(out, SIZE) == 0);
    written = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0);
    for (unsigned round = 2; round < 10; round++) {
        char *v = VIEW(round), *origin = fresh(SIZE), *to = fresh(SIZE);
        receive(origin, SIZE, 20 + round);
        ELIDED_COPY(to, origin, SIZE);
        struct iovec parts[2] = {{v + PAGE, PAGE * 8 + 5}, {v + SIZE / 2 + 3, PAGE * 9}};
        struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
        long n = 0;
        switch (round) {
        case 2: n = raw(SYS_pwrite64, out, (long)v, SIZE, 0, 0, 0); break;
        case 3: n = raw(SYS_pread64, file, (long)v + 9, SIZE / 2, 11, 0, 0); break;
        case 4: n = raw(SYS_preadv, file, (long)parts, 2, 0, 0, 0); break;
        case 5: n = raw(SYS_pwritev, out, (long)parts, 2, 0, 0, 0); break;
        case 6:
            n = raw(SYS_sendto, pair[0], (long)v, PAGE * 20, 0, 0, 0);
            n += raw(SYS_recvfrom, pair[1], (long)origin + 1, PAGE * 20, MSG_WAITALL, 0, 0);
            EXPECT_INPUT(origin + 1, PAGE * 20, round);
            receive(origin, SIZE, 20 + round);
            break;
        case 7:
            n = raw(SYS_sendmsg, pair[0], (long)&msg, 0, 0, 0, 0);
            msg.msg_iovlen = 1;
            parts[0].iov_base = to + 7;
            n += raw(SYS_recvmsg, pair[1], (long)&msg, 0, 0, 0, 0);
            n += raw(SYS_recvfrom, pair[1], (long)written, 0, MSG_TRUNC | MSG_PEEK, 0, 0);
            n += recv(pair[1], fresh(SIZE), SIZE, 0);
            show("partly received", to, SIZE);
            ELIDED_COPY(to, VIEW(20 + round), SIZE);
            break;
        case 8:
            n = raw(SYS_mremap, (long)v, SIZE, SIZE * 2, MREMAP_MAYMOVE, 0, 0);
            if (n > 0) v = (char *)n; /* (one mapping, or several) */
            char *half = fresh(SIZE);
            ELIDED_COPY(half + SIZE / 2, VIEW(50), SIZE / 2);
            n = raw(SYS_mremap, (long)half, SIZE, SIZE * 2, MREMAP_MAYMOVE, 0, 0);
            documented("`mremap` by inline assembly of memory of which a part was tracked may fail with EFAULT", n != -EFAULT);
            EXPECT_INPUT((n > 0 ? (char *)n : half) + SIZE / 2, SIZE / 2, 50);
            n = 0;
            break;
        case 9:
            MUST(raw(SYS_madvise, (long)v + PAGE * 8, PAGE * 8, MADV_DONTNEED, 0, 0, 0) == 0);
            MUST(raw(SYS_munmap, (long)v + PAGE * 20, PAGE * 8, 0, 0, 0, 0) == 0);
            MUST(raw(SYS_mmap, (long)v + PAGE * 20, PAGE * 4, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)v + (long)PAGE * 20);
            EXPECT_FILLED(v + PAGE * 8, PAGE * 8, 0);
            EXPECT_FILLED(v + PAGE * 20, PAGE * 4, 0);
            EXPECT_INPUT_FROM(v + PAGE * 28, PAGE * 8, round, PAGE * 28);
            n = raw(SYS_pread64, file, (long)v + PAGE * 18, PAGE * 10, 0, 0, 0); /* runs into the hole */
            EXPECT_INPUT(v + PAGE * 18, PAGE * 6, 1);
            EXPECT_INPUT(v, PAGE * 8, round);
            v = VIEW(99);
        }
        say("round %u: %ld", round, n);
        show("views", v, SIZE);
        show("written", written, SIZE);
        EXPECT_INPUT(to, SIZE, 20 + round);
        EXPECT_INPUT(origin, SIZE, 20 + round);
    }
    return finish();
}
