/* A loop as libuv makes it since 1.49: its set is told of descriptors through a ring of io_uring's,
 * which does nothing else, or by epoll_ctl where there is no io_uring. Both ends are this process's.
 * The name by which a process is known to have libuv is public (-rdynamic). */
#include "connection.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif

enum { CONNECTIONS = 3, ROUNDS = 2000 };
int uv_loop_init(void);
int uv_loop_init(void) { return 0; }

static int set, ring = -1;
static struct io_uring_params p;
static struct io_uring_sqe *sqes;
static char *rings;
static struct epoll_event told[256];

static unsigned *word(unsigned offset) { return (unsigned *)(rings + offset); }
static void make_ring(void) {
    for (int flag = 1; ring < 0 && flag >= 0; flag--) {
        memset(&p, 0, sizeof p);
        p.flags = flag ? IORING_SETUP_NO_SQARRAY : 0;
        ring = (int)syscall(SYS_io_uring_setup, 256, &p);
        if (ring < 0 && errno != EINVAL) return;
    }
    if (ring < 0) return;
    size_t sq = p.sq_off.array + p.sq_entries * 4;
    size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    int access = PROT_READ | PROT_WRITE;
    rings = mmap(NULL, sq < cq ? cq : sq, access, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    sqes = mmap(NULL, p.sq_entries * sizeof *sqes, access, MAP_SHARED, ring, IORING_OFF_SQES);
    MUST(rings != MAP_FAILED && sqes != MAP_FAILED);
    if (!(p.flags & IORING_SETUP_NO_SQARRAY))
        for (unsigned i = 0; i < p.sq_entries; i++) word(p.sq_off.array)[i] = i;
}
static void prepare(int operation, int fd, unsigned events, uint64_t data) {
    struct epoll_event e = {.events = events, .data.u64 = data};
    if (ring < 0) {
        MUST(epoll_ctl(set, operation, fd, &e) == 0);
        return;
    }
    unsigned *tail = word(p.sq_off.tail), slot = *tail & *word(p.sq_off.ring_mask);
    told[slot] = e;
    memset(&sqes[slot], 0, sizeof sqes[slot]);
    sqes[slot].opcode = IORING_OP_EPOLL_CTL, sqes[slot].fd = set;
    sqes[slot].addr = (uintptr_t)&told[slot];
    sqes[slot].len = (unsigned)operation, sqes[slot].off = (unsigned)fd;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}
static void flush(void) {
    if (ring < 0) return;
    unsigned n = *word(p.sq_off.tail) - *word(p.sq_off.head), *head = word(p.cq_off.head);
    MUST(syscall(SYS_io_uring_enter, ring, n, n, IORING_ENTER_GETEVENTS, NULL, 0) == (long)n);
    struct io_uring_cqe *all = (struct io_uring_cqe *)(rings + p.cq_off.cqes);
    while (__atomic_load_n(word(p.cq_off.tail), __ATOMIC_ACQUIRE) != *head) {
        MUST(all[*head & *word(p.cq_off.ring_mask)].res == 0);
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    }
}

int main(void) {
    struct sockaddr_in at;
    int l = listener(&at), far_end[CONNECTIONS], near_end[CONNECTIONS];
    MUST((set = epoll_create1(EPOLL_CLOEXEC)) >= 0);
    make_ring();
    for (int i = 0; i < CONNECTIONS; i++) {
        far_end[i] = connected(&at), near_end[i] = accepted(l);
        nonblocking(near_end[i], 1);
        prepare(EPOLL_CTL_ADD, near_end[i], EPOLLIN, (uint64_t)i);
    }
    flush();
    int wrong = 0;
    for (int k = 0; k < ROUNDS; k++) {
        int i = k % CONNECTIONS;
        char bytes[100], back[100];
        fill(bytes, sizeof bytes, 1, (size_t)k);
        send_all(far_end[i], bytes, sizeof bytes);
        struct epoll_event event;
        MUST(epoll_wait(set, &event, 1, 10000) == 1);
        wrong += event.events != EPOLLIN || event.data.u64 != (uint64_t)i;
        receive_all(near_end[i], back, sizeof back);
        /* It wants to write, and then it does not any more. */
        prepare(EPOLL_CTL_MOD, near_end[i], EPOLLIN | EPOLLOUT, (uint64_t)i);
        flush();
        MUST(epoll_wait(set, &event, 1, 10000) == 1);
        wrong += event.events != EPOLLOUT || event.data.u64 != (uint64_t)i;
        prepare(EPOLL_CTL_DEL, near_end[i], 0, 0);
        prepare(EPOLL_CTL_ADD, near_end[i], EPOLLIN, (uint64_t)i);
        flush();
        send_all(near_end[i], back, sizeof back);
        receive_all(far_end[i], back, sizeof back);
        MUST(is(back, sizeof back, 1, (size_t)k));
        if (under_tcp() && k < 200) usleep(500);
    }
    MUST(epoll_wait(set, (struct epoll_event[1]){}, 1, 0) == 0);
    int by_rings = counter("tcp_connections") >= 2 * CONNECTIONS;
    if (under_tcp() && !(by_rings && counter("tcp_io_uring_refused") == 1)) say("NOT BY RINGS");
    say("%d rounds of %d connections, %d unexpected events", ROUNDS, CONNECTIONS, wrong);
    return wrong != 0;
}
