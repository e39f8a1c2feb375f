/* io_uring by its own system calls: buffers that were registered (the kernel holds their pages) are read into, copied from and
 * copied into; also ordinary reads, writes, sends and receives by the ring on views. */
#include "process.h"
#include <linux/io_uring.h>

static int ring;
static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;

static void set_up(void) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    ring = (int)syscall(SYS_io_uring_setup, 8, &p);
    if (ring < 0) {
        say("io_uring is not permitted here: %s", strerror(errno));
        elided_here = 1;
        exit(finish());
    }
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof *cqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                    IORING_OFF_CQ_RING);
    sqes = mmap(NULL, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    MUST(sq != MAP_FAILED && cq != MAP_FAILED && sqes != MAP_FAILED);
    sq_tail = (unsigned *)(sq + p.sq_off.tail), sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    sq_array = (unsigned *)(sq + p.sq_off.array);
    cq_head = (unsigned *)(cq + p.cq_off.head), cq_tail = (unsigned *)(cq + p.cq_off.tail);
    cq_mask = (unsigned *)(cq + p.cq_off.ring_mask), cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static void submit(int op, int fd, const void *buf, size_t n, long at, int fixed) {
    unsigned i = *sq_tail & *sq_mask;
    memset(&sqes[i], 0, sizeof sqes[i]);
    sqes[i].opcode = (uint8_t)op;
    sqes[i].fd = fd;
    sqes[i].addr = (uintptr_t)buf;
    sqes[i].len = (unsigned)n;
    sqes[i].off = (uint64_t)at;
    sqes[i].buf_index = (uint16_t)fixed;
    sq_array[i] = i;
    __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
    MUST(syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) == 1);
}

static int completion(void) {
    while (__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head)
        MUST(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) >= 0 || errno == EINTR);
    int result = cqes[*cq_head & *cq_mask].res;
    __atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(void) {
    char *v = VIEW(1), *to = fresh(SIZE);
    set_up();
    /* Registered while one is fresh, one holds views, one is an origin. */
    char *a = fresh(SIZE), *b = VIEW(2), *c = fresh(SIZE);
    receive(c, SIZE, 3);
    struct iovec buffers[3] = {{a, SIZE}, {b, SIZE}, {c, SIZE}};
    MUST(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, buffers, 3) == 0);
    EXPECT_INPUT(b, SIZE, 2);
    for (unsigned round = 0; round < 4; round++) {
        int file = input_file(SIZE, 10 + round), out = memfd_create("out", 0);
        char *each[3] = {a, b, c};
        for (int i = 0; i < 3; i++) {
            receive(each[i], SIZE, 20 + round); /* an origin: its pages must not move away from the ring's */
            memcpy(to, each[i], SIZE);
            submit(IORING_OP_READ_FIXED, file, each[i], SIZE, 0, i);
            MUST(completion() == (int)SIZE);
            EXPECT_INPUT(to, SIZE, 20 + round);
            EXPECT_INPUT(each[i], SIZE, 10 + round); /* what the ring has read is what the program sees */
            ELIDED_COPY(to, VIEW(30 + round), SIZE);
            memcpy(each[i], to, SIZE); /* copied into the registered buffer */
            submit(IORING_OP_WRITE_FIXED, out, each[i], SIZE, 0, i);
            MUST(completion() == (int)SIZE);
            char *written = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0);
            EXPECT_INPUT(written, SIZE, 30 + round); /* and what it writes is what was copied */
            munmap(written, SIZE);
        }
        close(file);
        close(out);
    }
    /* Not registered: the ring works on views through faults. */
    int file = input_file(SIZE, 5), out = memfd_create("out", 0), pair[2];
    submit(IORING_OP_WRITE, out, v, SIZE, 0, 0);
    MUST(completion() == (int)SIZE);
    EXPECT_INPUT(mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0), SIZE, 1);
    char *half = VIEW(6);
    submit(IORING_OP_READ, file, half + 100, SIZE / 2, 0, 0);
    MUST(completion() == (int)SIZE / 2);
    EXPECT_INPUT(half, 100, 6);
    EXPECT_INPUT(half + 100, SIZE / 2, 5);
    EXPECT_INPUT_FROM(half + 100 + SIZE / 2, SIZE / 2 - 100, 6, SIZE / 2 + 100);
    /* A receive that waits in the ring while the program turns its buffer into views. */
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char *later = fresh(SIZE);
    submit(IORING_OP_RECV, pair[0], later, SIZE, 0, 0);
    char *w = VIEW(7);
    ELIDED_COPY(later, w, SIZE);
    char chunk[PAGE * 4];
    fill(chunk, sizeof chunk, 8, 0);
    MUST(RAW(SYS_write, pair[1], chunk, sizeof chunk) == (long)sizeof chunk);
    MUST(completion() == (int)sizeof chunk);
    EXPECT_INPUT(later, sizeof chunk, 8);
    EXPECT_INPUT_FROM(later + sizeof chunk, SIZE - sizeof chunk, 7, sizeof chunk);
    EXPECT_INPUT(w, SIZE, 7);
    MUST(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
    receive(a, SIZE, 9);
    ELIDED_COPY(to, a, SIZE);
    EXPECT_INPUT(to, SIZE, 9);
    return finish();
}
