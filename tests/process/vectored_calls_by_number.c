/* preadv2, pwritev2 and recvmmsg through syscall(2): the engine knows them as it knows libc's functions, so that a view can be read and
 * written through /proc/self/mem (where the kernel waits for no fault), and what arrived is elided when it is copied. */
#include "process.h"

int main(void) {
    int memory = open("/proc/self/mem", O_RDWR), pair[2];
    MUST(memory >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    static char there[PAGE * 4];
    struct iovec parts[2] = {{there, PAGE}, {there + PAGE, PAGE * 3}};
    char *v = VIEW(1);
    long at = (long)v + (long)PAGE * 8 + 5;
    say("read: %ld", syscall(SYS_preadv2, memory, parts, 2, at, 0, 0));
    EXPECT_INPUT_FROM(there, sizeof there, 1, PAGE * 8 + 5);
    v = VIEW(2);
    at = (long)v + (long)PAGE * 8 + 5;
    say("written: %ld", syscall(SYS_pwritev2, memory, parts, 2, at, 0, 0));
    EXPECT_INPUT_FROM(v + PAGE * 8 + 5, sizeof there, 1, PAGE * 8 + 5);
    EXPECT_INPUT(v, PAGE * 8 + 5, 2);

    for (unsigned number = 3; number < 8; number++) {
        char *chunk = fresh(64 << 10), *buffer = fresh(64 << 10), *copy = fresh(64 << 10);
        fill(chunk, 64 << 10, number, 0);
        MUST(RAW(SYS_write, pair[0], chunk, 64 << 10) == 64 << 10);
        struct iovec part = {buffer, 64 << 10};
        struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
        MUST(syscall(SYS_recvmmsg, pair[1], &message, 1, MSG_WAITALL, NULL) == 1 && message.msg_len == 64 << 10);
        ELIDED_COPY(copy, buffer, 64 << 10);
        EXPECT_INPUT(copy, 64 << 10, number);
        EXPECT_INPUT(buffer, 64 << 10, number);
    }
    return finish();
}
