/* The program gives pages to the kernel by reference, which it may hold for long: vmsplice (before anything was elided; by a call that
 * no library sees), MSG_ZEROCOPY (sendmmsg, by function and by number), io_uring's SEND_ZC. Then the buffers are copied from, and
 * freed, and a lot of other input comes: whoever still refers to the pages must find what they held. */
#include "process.h"
#include <linux/io_uring.h>

static char *got;

static void drain(int fd, void *to, size_t n) {
    for (size_t at = 0; at < n;) {
        long r = RAW(SYS_read, fd, (char *)to + at, n - at);
        MUST(r > 0);
        at += (size_t)r;
    }
}

/* Other input, in other memory: whole extents, more and more of them, so that free pages are used again. */
static void other_input(void) {
    int file = input_file(SIZE, 50);
    char *x = fresh(SIZE), *all[12];
    MUST(pread(file, x, SIZE, 0) == (ssize_t)SIZE);
    for (int i = 0; i < 12; i++) {
        all[i] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ELIDED_COPY(all[i], x, SIZE);
        MUST(pread(file, all[i], SIZE, 0) == (ssize_t)SIZE);
    }
    for (int i = 0; i < 12; i++) munmap(all[i], SIZE);
    munmap(x, SIZE);
    close(file);
}

/* `buf` is copied from and is gone. */
static void copied_and_freed(char *buf, unsigned number) {
    char *to = fresh(SIZE);
    memcpy(to, buf, SIZE);
    munmap(buf, SIZE);
    EXPECT_INPUT(to, SIZE, number);
    munmap(to, SIZE);
    other_input();
}

static void through_a_pipe(int seen, unsigned number) {
    int fds[2];
    MUST(pipe(fds) == 0 && fcntl(fds[1], F_SETPIPE_SZ, 1 << 20) > 0);
    char *buf = fresh(SIZE);
    receive(buf, SIZE, number);
    struct iovec part = {buf, SIZE};
    long n = seen ? vmsplice(fds[1], &part, 1, 0) : raw(SYS_vmsplice, fds[1], (long)&part, 1, 0, 0, 0);
    MUST(n == (long)SIZE);
    char *to = fresh(SIZE);
    memcpy(to, buf, SIZE);
    munmap(buf, SIZE), munmap(to, SIZE);
    other_input();
    drain(fds[0], got, SIZE);
    EXPECT_INPUT(got, SIZE, number);
    close(fds[0]), close(fds[1]);
}

/* A connection whose peer does not read yet; returns how much lies in it. */
static size_t waiting_connection(int *out, int *in) {
    static char junk[65536];
    int one = 1, room = 4 << 20;
    size_t filled = 0;
    long r;
    tcp_pair(out, in, "reno");
    setsockopt(*out, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    MUST(setsockopt(*out, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0);
    while (filled < 3u << 20 && (r = raw(SYS_sendto, *out, (long)junk, sizeof junk, MSG_DONTWAIT, 0, 0)) > 0) filled += (size_t)r;
    return filled;
}

static void arrives(int out, int in, size_t before, size_t n, unsigned number) {
    char *junk = fresh(before);
    drain(in, junk, before);
    drain(in, got, n);
    munmap(junk, before);
    if (!is_input(got, n, number, 0)) exit(1);
    close(out), close(in);
}

static void by_many_messages(int by_number, unsigned number) {
    int out, in;
    size_t before = waiting_connection(&out, &in);
    char *buf = fresh(SIZE);
    receive(buf, SIZE, number);
    struct iovec part = {buf, SIZE};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    long n = by_number ? syscall(SYS_sendmmsg, out, &m, 1, MSG_ZEROCOPY | MSG_DONTWAIT)
                       : sendmmsg(out, &m, 1, MSG_ZEROCOPY | MSG_DONTWAIT);
    MUST(n == 1);
    copied_and_freed(buf, number);
    arrives(out, in, before, m.msg_len, number);
    say("right: sendmmsg%s", by_number ? ", by number" : "");
}

static void by_a_ring(unsigned number) {
    int out, in;
    size_t before = waiting_connection(&out, &in);
    struct io_uring_params p = {0};
    int ring = (int)raw(SYS_io_uring_setup, 8, (long)&p, 0, 0, 0, 0);
    if (ring < 0) {
        close(out), close(in);
        say("right: a ring"); /* none to be had here */
        return;
    }
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED,
                    ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqe =
        mmap(NULL, p.sq_entries * sizeof *sqe, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    MUST(sq != MAP_FAILED && cq != MAP_FAILED && (void *)sqe != MAP_FAILED);
    char *buf = fresh(SIZE);
    receive(buf, SIZE, number);
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = 47; /* IORING_OP_SEND_ZC */
    sqe->fd = out;
    sqe->addr = (uintptr_t)buf;
    sqe->len = SIZE;
    sqe->msg_flags = MSG_DONTWAIT;
    ((unsigned *)(sq + p.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    MUST(raw(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
    long n = ((struct io_uring_cqe *)(cq + p.cq_off.cqes))->res;
    MUST(n > 0);
    copied_and_freed(buf, number);
    arrives(out, in, before, (size_t)n, number);
    close(ring);
    say("right: a ring");
}

int main(void) {
    got = fresh(SIZE);
    through_a_pipe(1, 1); /* before anything was elided */
    for (unsigned round = 0; round < 2; round++) {
        through_a_pipe(0, 10 + round);
        through_a_pipe(1, 20 + round);
        by_many_messages(0, 30 + round);
        by_many_messages(1, 40 + round);
        by_a_ring(60 + round);
    }
    return finish();
}
