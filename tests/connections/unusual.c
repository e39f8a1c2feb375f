/* Uses that few programs make, and Linux allows: a connection to itself, handlers that send or leave by longjmp, shutdown and close seen from other
 * threads, sets that children inherit, sockets used by io_uring. */
#include "connection.h"
#include <linux/io_uring.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static char bytes[1 << 20];

static void echo(int fd) {
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) send_all(fd, bytes, (size_t)got);
}
static void talk(int out, int in, int rounds) {
    char to[100], back[100];
    for (int i = 0; i < rounds; i++) {
        size_t n = (size_t)(i * 7) % sizeof to + 1;
        fill(to, n, 5, (size_t)i);
        send_all(out, to, n), receive_all(in, back, n);
        MUST(is(back, n, 5, (size_t)i));
    }
}

/* A socket that connects to its own port is both ends. */
static void to_itself(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(fd, (struct sockaddr *)&at, len) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    MUST(connect(fd, (struct sockaddr *)&at, len) == 0);
    int one = 1;
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    talk(fd, fd, 300);
    int second = dup(fd);
    talk(fd, second, 300);
    close(second), close(fd);
}

/* Both ends are this process', in one thread. */
static void within_a_process(void) {
    struct sockaddr_in at;
    int l = listener(&at);
    int a = connected(&at), b = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    say("accept4: %d %d", (fcntl(b, F_GETFL) & O_NONBLOCK) != 0, (fcntl(b, F_GETFD) & FD_CLOEXEC) != 0);
    ssize_t got = recv(b, bytes, 1, 0);
    say("recv: %zd %s", got, strerror(errno));
    for (int i = 0; i < 200; i++) talk(a, b, 3), talk(b, a, 3);
    close(l), close(a);
    say("the end: %zd", recv(b, bytes, 1, 0));
    close(b);
}

static volatile sig_atomic_t handled;
static int by_handler;
static void sends(int signal) { (void)signal, handled += send(by_handler, "h", 1, 0) == 1; }
static void soon(int microseconds) {
    struct itimerval in = {.it_value = {.tv_usec = microseconds}};
    MUST(setitimer(ITIMER_REAL, &in, NULL) == 0);
}
static void handle(void (*handler)(int), int flags) {
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(SIGALRM, &act, NULL) == 0);
}
/* The answer to what the handler sends ends the wait. */
static void handler_sends(int fd) {
    char byte;
    by_handler = fd;
    handle(sends, SA_RESTART);
    for (int i = 0; i < 20; i++) {
        soon(1000 + i * 300);
        MUST(recv(fd, &byte, 1, 0) == 1 && byte == 'h');
    }
    /* And while this thread sends without end. */
    handled = 0;
    struct itimerval often = {{.tv_usec = 500}, {.tv_usec = 500}}, never = {0};
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
    size_t marks = 0, back = 0;
    for (int i = 0; i < 20000; i++) {
        send_all(fd, "s", 1);
        ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        for (ssize_t k = 0; k < got; k++) marks += bytes[k] == 'h', back += bytes[k] == 's';
    }
    MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
    MUST(shutdown(fd, SHUT_WR) == 0);
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
        for (ssize_t k = 0; k < got; k++) marks += bytes[k] == 'h', back += bytes[k] == 's';
    if (marks != (size_t)handled) say("WRONG: %zu came back, %d were sent", marks, (int)handled);
    if (back != 20000) say("WRONG: %zu of 20000 came back", back);
    say("both: done");
    close(fd);
}

static sigjmp_buf out;
static void leaves(int signal) { (void)signal, siglongjmp(out, 1); }
/* As old programs do it: the alarm's handler leaves the call. */
static void left_by_longjmp(int fd) {
    char byte;
    handle(leaves, 0);
    volatile int left = 0;
    for (volatile int i = 0; i < 200; i++) {
        if (sigsetjmp(out, 1) == 0) {
            soon(1000);
            recv(fd, &byte, 1, 0);
            say("WRONG: it came back");
        } else left++;
    }
    talk(fd, fd, 100);
    say("left %d times", left);
    close(fd);
}

static void *receives(void *at) {
    char byte;
    ssize_t got = recv((int)(long)at, &byte, 1, 0);
    say("the thread that waits: %zd %s", got, got < 0 ? strerror(errno) : "");
    return NULL;
}
static void shut_by_another(int fd, int how) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, receives, (void *)(long)fd) == 0);
    usleep(50000);
    MUST(shutdown(fd, how) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    ssize_t sent = send(fd, "x", 1, MSG_NOSIGNAL);
    say("send: %zd %s", sent, sent < 0 ? strerror(errno) : "");
    close(fd);
}
static void shut_to_read(int fd) { shut_by_another(fd, SHUT_RD); }
static void shut_both_ways(int fd) { shut_by_another(fd, SHUT_RDWR); }
/* After SHUT_RD what comes is still received. */
static void receives_after_shutdown(int fd) {
    MUST(shutdown(fd, SHUT_RD) == 0);
    char byte;
    say("nothing: %zd", recv(fd, &byte, 1, 0));
    MUST(send(fd, "y", 1, 0) == 1);
    usleep(100000);
    ssize_t got = recv(fd, &byte, 1, 0);
    say("what came since: %zd", got);
    close(fd);
}
static void shut_listener(void) {
    struct sockaddr_in at;
    int l = listener(&at);
    MUST(shutdown(l, SHUT_RDWR) == 0);
    int fd = accept(l, NULL, NULL);
    say("accept: %d %s", fd, strerror(errno));
    int c = socket(AF_INET, SOCK_STREAM, 0);
    int refused = connect(c, (struct sockaddr *)&at, sizeof at);
    say("connect: %d %s", refused, strerror(errno));
    close(c), close(l);
}

/* A set knows a file by number: a duplicate keeps it. */
static void closed_in_a_set(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 11};
    int set = epoll_create1(0), second = dup(fd);
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    event.data.u64 = 22;
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, second, &event) == 0);
    MUST(send(fd, "z", 1, 0) == 1);
    struct epoll_event got[4];
    int n = 0;
    for (int i = 0; i < 100 && n < 2; i++) usleep(1000), n = epoll_wait(set, got, 4, 1000);
    say("both numbers: %d", n);
    receive_all(second, bytes, 1);
    int again = epoll_ctl(set, EPOLL_CTL_ADD, second, &event);
    say("twice: %d %s", again, strerror(errno));
    MUST(epoll_ctl(set, EPOLL_CTL_DEL, second, NULL) == 0);
    again = epoll_ctl(set, EPOLL_CTL_DEL, second, NULL);
    say("removed twice: %d %s", again, strerror(errno));
    again = epoll_ctl(set, EPOLL_CTL_MOD, second, &event);
    say("changed: %d %s", again, strerror(errno));
    event.events = EPOLLIN | EPOLLEXCLUSIVE;
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, second, &event) == 0);
    again = epoll_ctl(set, EPOLL_CTL_MOD, second, &event);
    say("exclusive, changed: %d %s", again, strerror(errno));
    MUST(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
    close(fd);
    MUST(send(second, "z", 1, 0) == 1);
    n = epoll_wait(set, got, 4, 1000);
    say("exclusive: %d, %d", n, n == 1 && got[0].data.u64 == 22);
    receive_all(second, bytes, 1);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    n = epoll_wait(set, got, 4, 200);
    getrusage(RUSAGE_SELF, &after);
    long used = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 + after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    say("nothing: %d", n);
    if (used > 100000) say("WRONG: it took %ld us", used);
    close(second), close(set);
}

/* Several messages in one call. */
static void many_messages(int fd) {
    char a[10], b[10], c[10];
    struct iovec out[3] = {{"first", 5}, {"second", 6}, {"third", 5}}, in[3] = {{a, 5}, {b, 6}, {c, 5}};
    for (int i = 0; i < 50; i++) {
        struct mmsghdr to[3] = {{.msg_hdr = {.msg_iov = &out[0], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &out[1], .msg_iovlen = 1}},
                                {.msg_hdr = {.msg_iov = &out[2], .msg_iovlen = 1}}};
        struct mmsghdr from[3] = {{.msg_hdr = {.msg_iov = &in[0], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &in[1], .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &in[2], .msg_iovlen = 1}}};
        MUST(sendmmsg(fd, to, 3, 0) == 3 && to[0].msg_len == 5 && to[1].msg_len == 6);
        MUST(recvmmsg(fd, from, 3, MSG_WAITALL, NULL) == 3 && from[2].msg_len == 5);
        MUST(memcmp(a, "first", 5) == 0 && memcmp(b, "second", 6) == 0 && memcmp(c, "third", 5) == 0);
    }
    struct mmsghdr from = {.msg_hdr = {.msg_iov = &in[0], .msg_iovlen = 1}};
    int n = recvmmsg(fd, &from, 1, MSG_DONTWAIT, NULL);
    say("none: %d %s", n, strerror(errno));
    struct iovec none[2] = {{NULL, 0}, {a, 5}}, too_many[1025] = {{a, 0}};
    say("no bytes: %zd", writev(fd, none, 1));
    ssize_t sent = writev(fd, too_many, 1025);
    say("too many: %zd %s", sent, strerror(errno));
    sent = send(fd, (void *)8, 10, 0);
    say("nowhere: %zd %s", sent, strerror(errno));
    MUST(send(fd, "five!", 5, 0) == 5 && readv(fd, none, 2) == 5);
    fd_set r;
    struct timespec second = {.tv_sec = 5};
    sigset_t blocked, empty;
    sigemptyset(&empty), sigemptyset(&blocked), sigaddset(&blocked, SIGALRM);
    MUST(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    handle(SIG_IGN, 0), by_handler = fd, handled = 0, handle(sends, 0);
    raise(SIGALRM);
    FD_ZERO(&r);
    FD_SET(fd, &r);
    n = pselect(fd + 1, &r, NULL, NULL, &second, &empty);
    say("pselect lets it in: %d %s, %d", n, strerror(errno), (int)handled);
    FD_ZERO(&r);
    FD_SET(fd, &r);
    n = pselect(fd + 1, &r, NULL, NULL, &second, NULL);
    say("pselect: %d", n);
    receive_all(fd, a, 1);
    MUST(sigprocmask(SIG_SETMASK, &empty, NULL) == 0);
    close(fd);
}

/* The bytes that were sent before are offered, and nobody has taken them (see numbers.c), when pages are sent by reference, which goes
 * past the ring. */
enum { AHEAD = 20000 };
static void reads_late(int fd) {
    receive_all(fd, bytes, AHEAD);
    send_all(fd, bytes, 1);
    usleep(300000);
    receive_all(fd, bytes, 22);
    say("it has come: %.22s", bytes);
    close(fd);
}
static void many_messages_by_reference(int fd) {
    struct iovec out[2] = {{"later, ", 7}, {"latest", 6}};
    struct mmsghdr to[2] = {{.msg_hdr = {.msg_iov = &out[0], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &out[1], .msg_iovlen = 1}}};
    int one = 1;
    MUST(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0);
    MUST(dprintf(fd, "%0*d", AHEAD, 0) == AHEAD);
    receive_all(fd, bytes, 1);
    usleep(50000);
    send_all(fd, "earlier, ", 9);
    MUST(sendmmsg(fd, to, 2, MSG_ZEROCOPY) == 2 && to[0].msg_len == 7 && to[1].msg_len == 6);
    close(fd);
}

/* The child waits in the set that its parent made. */
static void inherited_set(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    int set = epoll_create1(0);
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    talk(fd, fd, 10);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++) {
            char byte = 0;
            MUST(send(fd, "c", 1, 0) == 1);
            if (epoll_wait(set, &event, 1, 5000) != 1) say("WRONG: nothing for five seconds"), _exit(1);
            MUST(recv(fd, &byte, 1, MSG_DONTWAIT) == 1 && byte == 'c');
        }
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    say("the child: %d", status);
    talk(fd, fd, 10);
    close(set), close(fd);
}

/* As nginx and asio do it: a set has the socket before it connects. */
static void added_before_with(unsigned events) {
    struct sockaddr_in at;
    int l = listener(&at);
    other = fork();
    if (other == 0) {
        alarm(60);
        echo(accepted(l));
        _exit(0);
    }
    close(l);
    struct epoll_event event = {.events = events};
    int set = epoll_create1(0), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    MUST(connect(fd, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
    do MUST(epoll_wait(set, &event, 1, 5000) == 1);
    while (!(event.events & EPOLLOUT));
    for (int i = 0; i < 2000; i++) {
        char byte = (char)i, back = 0;
        MUST(send(fd, &byte, 1, 0) == 1);
        while (recv(fd, &back, 1, 0) != 1) {
            MUST(errno == EAGAIN);
            if (epoll_wait(set, &event, 1, 5000) != 1) {
                say("WRONG: round %d: nothing is told", i);
                _exit(1);
            }
        }
        MUST(back == byte);
    }
    /* (An exclusive entry cannot be changed: it stays Linux's.) */
    if (under_tcp() && !(events & EPOLLEXCLUSIVE) && counter("tcp_receives") < 100) say("NOT BY RINGS");
    close(fd), close(set);
    other_ends();
}
static void added_before(void) { added_before_with(EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP); }
static void added_before_exclusively(void) { added_before_with(EPOLLIN | EPOLLOUT | EPOLLET | EPOLLEXCLUSIVE); }

/* A backlog of hardly any, and all come at once. */
static void *comes(void *at) {
    int fd = connected(at);
    talk(fd, fd, 20);
    close(fd);
    return NULL;
}
static void storm(void) {
    struct sockaddr_in at;
    int l = listener(&at);
    MUST(listen(l, 2) == 0); /* (With fewer Linux' own SYNs wait for many seconds.) */
    enum { COUNT = 4 };
    other = fork();
    if (other == 0) {
        alarm(60);
        for (int i = 0; i < COUNT; i++) {
            int fd = accepted(l);
            if (fork() == 0) {
                echo(fd);
                _exit(0);
            }
            close(fd);
        }
        for (int i = 0, status; i < COUNT; i++) MUST(wait(&status) > 0 && status == 0);
        _exit(0);
    }
    close(l);
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++) MUST(pthread_create(&threads[i], NULL, comes, &at) == 0);
    for (int i = 0; i < COUNT; i++) MUST(pthread_join(threads[i], NULL) == 0);
    other_ends();
}

/* io_uring, by system calls: sends and receives of the kernel's own. With as many entries as libuv
 * asks for, which this process has not. */
static int ring;
static struct io_uring_sqe *sqes;
static struct io_uring_params p;
static char *sq, *cq;
static int uring(int op, int fd, void *at, unsigned n) {
    unsigned *tail = (unsigned *)(sq + p.sq_off.tail), i = *tail & *(unsigned *)(sq + p.sq_off.ring_mask);
    memset(&sqes[i], 0, sizeof sqes[i]);
    sqes[i].opcode = (uint8_t)op, sqes[i].fd = fd, sqes[i].addr = (uintptr_t)at, sqes[i].len = n;
    ((unsigned *)(sq + p.sq_off.array))[i] = i;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    MUST(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    unsigned *head = (unsigned *)(cq + p.cq_off.head);
    MUST(__atomic_load_n((unsigned *)(cq + p.cq_off.tail), __ATOMIC_ACQUIRE) != *head);
    struct io_uring_cqe *cqe = (struct io_uring_cqe *)(cq + p.cq_off.cqes) + (*head & *(unsigned *)(cq + p.cq_off.ring_mask));
    int result = cqe->res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}
static void by_io_uring(int fd) {
    char five[6] = "";
    MUST(send(fd, "ahead", 5, 0) == 5);
    int there = 0;
    while (ioctl(fd, FIONREAD, &there) == 0 && there < 5) usleep(1000);
    memset(&p, 0, sizeof p);
    ring = (int)syscall(SYS_io_uring_setup, 256, &p);
    if (ring < 0) {
        say("io_uring is not permitted here");
        close(fd);
        return;
    }
    sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    sqes = mmap(NULL, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    MUST(sq != MAP_FAILED && cq != MAP_FAILED && sqes != MAP_FAILED);
    int got = uring(IORING_OP_RECV, fd, five, 5);
    say("what lay there: %d %s", got, five);
    for (int i = 0; i < 50; i++) {
        MUST(uring(IORING_OP_SEND, fd, "uring", 5) == 5);
        MUST(uring(IORING_OP_RECV, fd, five, 5) == 5 && memcmp(five, "uring", 5) == 0);
    }
    close(fd);
}

/* A buffer that leads nowhere from its middle on, among so many large messages that both kinds of stores into a ring are tried. How much is
 * sent or taken of it is a matter of how the bytes are cut; that nothing is lost or comes twice is not. */
static void half_there(int fd) {
    enum { HALF = 64 << 10 };
    static char back[HALF];
    char *half = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(half != MAP_FAILED && mprotect(half + HALF, HALF, PROT_NONE) == 0);
    for (int i = 0; i < 800; i++) {
        fill(half, HALF, 6, (size_t)i);
        send_all(fd, half, HALF), receive_all(fd, back, HALF);
        MUST(memcmp(back, half, HALF) == 0);
        if (i % 20 != 0) continue;
        ssize_t n = send(fd, half + HALF / 2, HALF, 0);
        MUST(n < 0 ? errno == EFAULT : n <= HALF / 2);
        if (n > 0) {
            receive_all(fd, back, (size_t)n);
            MUST(memcmp(back, half + HALF / 2, (size_t)n) == 0);
        }
        struct iovec parts[3] = {{half, 100}, {half + HALF - 100, HALF}, {half + 100, HALF - 100}};
        n = writev(fd, parts, 3);
        MUST(n < 0 ? errno == EFAULT : n <= 200);
        if (n > 0) {
            receive_all(fd, back, (size_t)n);
            MUST(memcmp(back, half, n < 100 ? (size_t)n : 100) == 0);
            MUST(n <= 100 || memcmp(back + 100, half + HALF - 100, (size_t)n - 100) == 0);
        }
        fill(bytes, HALF, 7, (size_t)i);
        send_all(fd, bytes, HALF);
        /* (The first part is full, the second one leads nowhere, and nothing may come into the third.) */
        parts[0] = (struct iovec){back, 1000}, parts[1] = (struct iovec){half + HALF, 1000}, parts[2] = (struct iovec){back + 1000, HALF - 1000};
        memset(back, 1, HALF);
        n = readv(fd, parts, 3);
        MUST(n < 0 ? errno == EFAULT : n <= 1000 && memcmp(back, bytes, (size_t)n) == 0);
        MUST(back[1000] == 1 && back[HALF - 1] == 1);
        size_t had = n < 0 ? 0 : (size_t)n;
        n = recv(fd, half + HALF / 2, HALF, 0);
        MUST(n < 0 ? errno == EFAULT : n <= HALF / 2 && memcmp(half + HALF / 2, bytes + had, (size_t)n) == 0);
        had += n < 0 ? 0 : (size_t)n;
        receive_all(fd, back, HALF - had);
        MUST(memcmp(back, bytes + had, HALF - had) == 0);
    }
    munmap(half, 2 * HALF), close(fd);
}

static void alone(const char *name, void (*does)(void)) {
    if (!is_wanted(name)) return;
    does();
    say("%s: done", name);
}

int main(void) {
    alarm(150);
    alone("to itself", to_itself);
    alone("within a process", within_a_process);
    run_pair("a handler sends", echo, handler_sends);
    run_pair("left by longjmp", echo, left_by_longjmp);
    run_pair("shut to read", echo, shut_to_read);
    run_pair("shut both ways", echo, shut_both_ways);
    run_pair("after SHUT_RD", echo, receives_after_shutdown);
    alone("a listener", shut_listener);
    run_pair("closed in a set", echo, closed_in_a_set);
    run_pair("many messages", echo, many_messages);
    run_pair("half there", echo, half_there);
    run_pair("many messages by reference", reads_late, many_messages_by_reference);
    run_pair("an inherited set", echo, inherited_set);
    alone("added before it connects", added_before);
    alone("added exclusively before it connects", added_before_exclusively);
    alone("a storm", storm);
    run_pair("io_uring", echo, by_io_uring);
    return 0;
}
