/* A call by reference must answer what the plain call answers: partial sends, full sockets and pipes, edge-triggered readiness,
 * timeouts, signals, SIGPIPE and MSG_NOSIGNAL, resets, corked sockets and MSG_MORE, flags that go plainly, a descriptor that is
 * closed and opened as something else, dup2 over our pipes, sockets shared by fork and passed on. */
#include "process.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#define N (1ul << 20)
static char *value;
static unsigned value_number = 5;
static volatile sig_atomic_t pipes, alarms;
static void on_pipe(int s) { (void)s, pipes++; }
static void on_alarm(int s) { (void)s, alarms++; }

/* (The effect of BBR on it: connections_that_are_not_paced.) */
static void tcp(int *out, int *in) { tcp_pair(out, in, "reno"); }
static void local(int *out, int *in) {
    int s[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    *out = s[0], *in = s[1];
}
static void nonblocking(int fd, int on) { MUST(fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0) == 0); }

/* Reads so many bytes and checks that they are the value's, from `from` on (round and round). */
static void take_from(int in, size_t n, size_t from) {
    static unsigned char got[N];
    for (size_t have = 0; have < n;) {
        size_t at = (from + have) % N, most = n - have < N - at ? n - have : N - at;
        long r = RAW(SYS_read, in, got, most);
        MUST(r > 0);
        if (!is_input(got, (size_t)r, value_number, at)) exit(1);
        have += (size_t)r;
    }
}
struct reading { int in; size_t n; int late; };
static void *reads(void *arg) {
    struct reading *r = arg;
    if (r->late) usleep(30000);
    take_from(r->in, r->n, 0);
    return NULL;
}

/* The value is sent often enough to be lent from here on. */
static void by_reference(void) {
    int out, in;
    uint64_t lent = counter("lent_sends");
    tcp(&out, &in);
    for (int i = 0; i < 6; i++) {
        struct reading r = {in, N, 0};
        pthread_t t;
        MUST(pthread_create(&t, NULL, reads, &r) == 0);
        MUST(send(out, value, N, 0) == (ssize_t)N);
        pthread_join(t, NULL);
    }
    if (eager() && counter("lent_sends") == lent) say("NOTHING ELIDED by reference");
    close(out), close(in);
}

static void blocking_sends_all(void (*make)(int *, int *), const char *name) {
    int out, in;
    make(&out, &in);
    int small = 65536;
    setsockopt(out, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    for (int i = 0; i < 4; i++) {
        struct reading r = {in, N, i & 1};
        pthread_t t;
        MUST(pthread_create(&t, NULL, reads, &r) == 0);
        ssize_t n = i < 2 ? write(out, value, N) : send(out, value, N, MSG_NOSIGNAL);
        say("%s: a blocking send of %zu returns %zd", name, N, n);
        pthread_join(t, NULL);
    }
    close(out), close(in);
}

static void full_and_edges(void (*make)(int *, int *), const char *name) {
    int out, in, ep = epoll_create1(EPOLL_CLOEXEC);
    make(&out, &in);
    nonblocking(out, 1);
    struct epoll_event e = {.events = EPOLLOUT | EPOLLET};
    MUST(epoll_ctl(ep, EPOLL_CTL_ADD, out, &e) == 0);
    MUST(epoll_wait(ep, &e, 1, 0) == 1);
    size_t sent = 0, taken = 0, edges = 0;
    while (sent < 24 * N) {
        size_t at = sent % N;
        ssize_t n = write(out, value + at, N - at);
        if (n > 0) {
            sent += (size_t)n;
            if ((size_t)n == N - at) continue;
        } else {
            MUST(n == -1 && errno == EAGAIN);
        }
        /* Short, or no room: then an edge must follow as soon as the peer reads. */
        if (epoll_wait(ep, &e, 1, 0) == 1) continue;
        take_from(in, sent - taken, taken);
        taken = sent;
        int ready = epoll_wait(ep, &e, 1, 5000);
        if (ready != 1) {
            say("WRONG: %s: no edge after a short send", name);
            exit(1);
        }
        edges++;
    }
    take_from(in, sent - taken, taken);
    say("%s: sent %zu MB, edges came: %d", name, sent / N, edges > 0);
    /* Blocking again on the same descriptor. */
    nonblocking(out, 0);
    struct reading r = {in, N, 1};
    pthread_t t;
    MUST(pthread_create(&t, NULL, reads, &r) == 0);
    say("%s: blocking again: %zd", name, write(out, value, N));
    pthread_join(t, NULL);
    /* Not waiting for once: the flag's own way. */
    ssize_t n = 0, total = 0;
    while ((n = send(out, value + total % N, N - (size_t)total % N, MSG_DONTWAIT)) > 0) total += n;
    say("%s: without waiting: %d, %d", name, total > 0, errno == EAGAIN);
    take_from(in, (size_t)total, 0);
    close(ep), close(out), close(in);
}

static void timeouts_and_signals(void (*make)(int *, int *), const char *name) {
    int out, in;
    make(&out, &in);
    struct timeval t = {0, 50000};
    MUST(setsockopt(out, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) == 0);
    size_t total = 0;
    ssize_t n;
    for (;;) {
        n = send(out, value + total % N, N - total % N, MSG_NOSIGNAL);
        if (n <= 0) break;
        total += (size_t)n;
        MUST(total < 64 * N);
    }
    say("%s: time over: %zd, %s", name, n, strerror(errno));
    take_from(in, total, 0);
    t.tv_usec = 0;
    MUST(setsockopt(out, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) == 0);
    struct sigaction a = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &a, NULL);
    struct itimerval every = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (total = 0;;) {
        n = write(out, value + total % N, N - total % N);
        if (n <= 0) break;
        total += (size_t)n;
        MUST(total < 64 * N);
    }
    int why = errno;
    setitimer(ITIMER_REAL, &never, NULL);
    say("%s: interrupted: %zd, %s", name, n, strerror(why));
    take_from(in, total, 0);
    close(out), close(in);
}

static void gone_peers(void (*make)(int *, int *), const char *name) {
    for (int flags = 0; flags <= MSG_NOSIGNAL; flags += MSG_NOSIGNAL) {
        int out, in;
        make(&out, &in);
        nonblocking(out, 1);
        ssize_t n = send(out, value, N, flags);
        say("%s: before it goes: %d", name, n > 0);
        close(in);
        usleep(20000);
        pipes = 0;
        for (int i = 0; i < 4; i++) {
            n = send(out, value, N, flags);
            say("%s: the peer is gone, flags %d: %zd, %s", name, flags, n, strerror(errno));
        }
        say("%s: SIGPIPE came: %d", name, pipes > 0);
        close(out);
        make(&out, &in);
        MUST(shutdown(out, SHUT_WR) == 0);
        pipes = 0;
        n = send(out, value, N, flags);
        say("%s: after shutdown, flags %d: %zd, %s, SIGPIPE %d times", name, flags, n, strerror(errno), (int)pipes);
        /* Blocked and pending before: it stays pending. */
        sigset_t set, pending;
        sigemptyset(&set), sigaddset(&set, SIGPIPE);
        sigprocmask(SIG_BLOCK, &set, NULL);
        if (flags) raise(SIGPIPE);
        n = send(out, value, N, flags);
        sigpending(&pending);
        say("%s: blocked: %zd, pending %d", name, n, sigismember(&pending, SIGPIPE));
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        sigprocmask(SIG_BLOCK, NULL, &set);
        say("%s: SIGPIPE %d times, blocked still: %d", name, (int)pipes, sigismember(&set, SIGPIPE));
        close(out), close(in);
    }
}

static void corked(void) {
    int out, in, on = 1, off = 0;
    tcp(&out, &in);
    setsockopt(out, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    struct reading r = {in, 2 * N, 0};
    pthread_t t;
    MUST(pthread_create(&t, NULL, reads, &r) == 0);
    say("corked: %zd", send(out, value, N, 0));
    setsockopt(out, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    say("more to come: %zd", send(out, value, N - 100, MSG_MORE));
    say("the rest: %zd", send(out, value + N - 100, 100, 0));
    pthread_join(t, NULL);
    /* Urgent data goes as it is. */
    pthread_t u;
    struct reading half = {in, N, 0};
    setsockopt(in, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    MUST(pthread_create(&u, NULL, reads, &half) == 0);
    say("urgent: %zd", send(out, value, N, MSG_OOB));
    pthread_join(u, NULL);
    close(out), close(in);
}

/* The number of a stream becomes that of something else, past every function that could be watched. */
static void other_file_at_the_number(void) {
    int out, in, d[2];
    tcp(&out, &in);
    struct reading r = {in, N, 0};
    pthread_t t;
    MUST(pthread_create(&t, NULL, reads, &r) == 0);
    MUST(write(out, value, N) == (ssize_t)N);
    pthread_join(t, NULL);
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, d) == 0);
    MUST(RAW(SYS_dup2, d[0], out, 0) == out);
    int room = 1 << 20;
    setsockopt(out, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    ssize_t n = write(out, value, 131072);
    static char got[N];
    ssize_t whole = n > 0 ? RAW(SYS_read, d[1], got, N) : n;
    say("a message is one message: %d", n == whole);
    int file = memfd_create("file", MFD_CLOEXEC);
    MUST(RAW(SYS_dup2, file, out, 0) == out);
    say("a file: %zd", write(out, value, N));
    MUST(pread(file, got, N, 0) == (ssize_t)N);
    EXPECT_INPUT(got, N, value_number);
    close(file), close(out), close(in), close(d[0]), close(d[1]);
}

static void our_numbers_taken(void) {
    int out, in, null = open("/dev/null", O_WRONLY);
    tcp(&out, &in);
    for (int round = 0; round < 2; round++) {
        for (int fd = 200; fd < 1100; fd++)
            if (round) RAW(SYS_dup2, null, fd, 0);
            else dup2(null, fd);
        struct reading r = {in, N, 0};
        pthread_t t;
        MUST(pthread_create(&t, NULL, reads, &r) == 0);
        say("with our numbers taken: %zd", write(out, value, N));
        pthread_join(t, NULL);
        for (int fd = 200; fd < 1100; fd++) close(fd);
    }
    close(out), close(in), close(null);
}

static void shared_and_passed(void) {
    int out, in, s[2];
    tcp(&out, &in);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    pid_t child = fork();
    if (child == 0) {
        union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
        char c;
        struct iovec part = {&c, 1};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        MUST(recvmsg(s[1], &m, 0) == 1);
        int passed;
        memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof passed);
        MUST(write(out, value, N) == (ssize_t)N);
        MUST(write(passed, value, N) == (ssize_t)N);
        _exit(0);
    }
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
    struct iovec part = {value, N};
    struct iovec one = {value, 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &out, sizeof out);
    MUST(sendmsg(s[0], &m, 0) == 1);
    take_from(in, 2 * N, 0);
    wait_for("who shares the socket", child);
    /* Ancillary data with the value itself. */
    m.msg_iov = &part;
    nonblocking(s[0], 1);
    ssize_t n = sendmsg(s[0], &m, 0);
    say("with a descriptor: %d", n > 0);
    take_from(s[1], (size_t)n, 0);
    close(out), close(in), close(s[0]), close(s[1]);
}

static void pipes_fill(void) {
    int p[2], queued = 0;
    MUST(pipe(p) == 0);
    say("a pipe holds %d", fcntl(p[1], F_GETPIPE_SZ));
    nonblocking(p[1], 1);
    ssize_t n = write(p[1], value, N);
    MUST(ioctl(p[0], FIONREAD, &queued) == 0);
    say("a full pipe took %zd, holds %d; then %zd", n, queued, write(p[1], value, N));
    take_from(p[0], (size_t)n, 0);
    nonblocking(p[1], 0);
    struct reading r = {p[0], N, 1};
    pthread_t t;
    MUST(pthread_create(&t, NULL, reads, &r) == 0);
    say("blocking: %zd", write(p[1], value, N));
    pthread_join(t, NULL);
    nonblocking(p[1], 1);
    n = write(p[1], "x", 1);
    n = write(p[1], value, N);
    say("behind a byte: %zd", n);
    char c;
    MUST(read(p[0], &c, 1) == 1);
    take_from(p[0], (size_t)n, 0);
    close(p[0]);
    pipes = 0;
    n = write(p[1], value, N);
    say("nobody reads: %zd, %s, SIGPIPE %d times", n, strerror(errno), (int)pipes);
    close(p[1]);
    MUST(pipe2(p, O_DIRECT | O_NONBLOCK) == 0);
    n = write(p[1], value, 65536);
    static char packet[65536];
    say("packets: %zd, the first %zd", n, read(p[0], packet, sizeof packet));
    close(p[0]), close(p[1]);
}

/* The value is changed while it lies in the peer's queue. */
static void changed_meanwhile(void) {
    int out, in;
    tcp(&out, &in);
    nonblocking(out, 1);
    ssize_t n = write(out, value, N);
    MUST(n > 0);
    unsigned before = value_number;
    memset(value, 0x55, N / 2);
    receive(value, N, 6);
    value_number = before;
    take_from(in, (size_t)n, 0);
    value_number = 6;
    EXPECT_INPUT(value, N, 6);
    close(out), close(in);
}

int main(void) {
    struct sigaction a = {.sa_handler = on_pipe};
    sigaction(SIGPIPE, &a, NULL);
    value = fresh(N);
    receive(value, N, value_number);
    ELIDED_COPY(fresh(SIZE), VIEW(7), SIZE);
    by_reference();
    blocking_sends_all(tcp, "TCP"), blocking_sends_all(local, "UNIX");
    full_and_edges(tcp, "TCP"), full_and_edges(local, "UNIX");
    timeouts_and_signals(tcp, "TCP"), timeouts_and_signals(local, "UNIX");
    gone_peers(tcp, "TCP"), gone_peers(local, "UNIX");
    corked();
    pipes_fill();
    other_file_at_the_number();
    shared_and_passed();
    changed_meanwhile();
    by_reference();
    our_numbers_taken();
    return finish();
}
