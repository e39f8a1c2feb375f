/* Relay: what a proxy would gain if what it receives and sends on untouched went by splice (socket to pipe, pipe to socket)
 * instead of recv and send, at the piece sizes that proxies use.
 *
 *   cc -O2 -o /tmp/relay bench/experiments/relay.c && /tmp/relay
 *
 * A source, a relay and a sink (three processes; the relay on core 0, the others on core 1) over loopback TCP. For each piece size both ways take
 * turns; printed are the medians of the relay's CPU for a MB, the mean piece that either way moved, and the ratio. The sink checks that
 * every byte is where it belongs (a counting pattern).
 *
 * Both ways are as an interposer sees them: the program waits in epoll, calls recv(PIECE) once, then send of what came, and waits again. What a relay in
 * uncopy would add (books, a pipe for each piece, bringing touched pieces into memory) is not in it: this is the bound. On the reference
 * machine, once: 4 KB 1.01, 16 KB 1.39, 32 KB 1.28, 64 KB 1.11, 256 KB 1.45, 1 MB 1.28.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 9, TOTAL = 256 << 20 };

static void fail(const char *what) { perror(what); exit(1); }

static void on_core(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
}

static double cpu_ms(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

/* Two connected TCP sockets. */
static void tcp_pair(int fd[2]) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (bind(listener, (struct sockaddr *)&a, len) || listen(listener, 1) || getsockname(listener, (struct sockaddr *)&a, &len)) fail("listen");
    fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd[0], (struct sockaddr *)&a, len)) fail("connect");
    if ((fd[1] = accept(listener, 0, 0)) < 0) fail("accept");
    close(listener);
    for (int i = 0; i < 2; i++) setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static uint64_t pattern[(1 << 20) / 8];

static void source(int fd) {
    for (size_t sent = 0; sent < TOTAL;) {
        size_t at = sent % sizeof pattern;
        ssize_t n = write(fd, (char *)pattern + at, sizeof pattern - at);
        if (n < 0) fail("source");
        sent += n;
    }
}

static void sink(int fd) {
    static char got[1 << 20];
    for (size_t have = 0; have < TOTAL;) {
        ssize_t n = read(fd, got, sizeof got);
        if (n <= 0) fail("sink");
        for (ssize_t done = 0; done < n;) {
            size_t at = (have + done) % sizeof pattern, len = sizeof pattern - at;
            if (len > (size_t)(n - done)) len = n - done;
            if (memcmp(got + done, (char *)pattern + at, len)) { fprintf(stderr, "a byte is wrong\n"); exit(1); }
            done += len;
        }
        have += n;
    }
}

static void await(int ep) {
    struct epoll_event e;
    while (epoll_wait(ep, &e, 1, -1) < 1) if (errno != EINTR) fail("epoll_wait");
}

/* Returns how many pieces went. */
static long relay(int in, int out, size_t piece, int by_splice, int pipes[2]) {
    static char buffer[1 << 20];
    int ep_in = epoll_create1(0), ep_out = epoll_create1(0);
    struct epoll_event i = {.events = EPOLLIN}, o = {.events = EPOLLOUT};
    epoll_ctl(ep_in, EPOLL_CTL_ADD, in, &i);
    epoll_ctl(ep_out, EPOLL_CTL_ADD, out, &o);
    fcntl(in, F_SETFL, O_NONBLOCK);
    fcntl(out, F_SETFL, O_NONBLOCK);
    long pieces = 0;
    for (size_t moved = 0; moved < TOTAL; pieces++) {
        await(ep_in);
        ssize_t n = by_splice ? splice(in, 0, pipes[1], 0, piece, SPLICE_F_NONBLOCK) : recv(in, buffer, piece, 0);
        if (n < 0 && errno == EAGAIN) continue;
        if (n <= 0) fail("relay: input");
        for (ssize_t done = 0; done < n;) {
            ssize_t k = by_splice ? splice(pipes[0], 0, out, 0, n - done, SPLICE_F_NONBLOCK) : send(out, buffer + done, n - done, 0);
            if (k < 0 && errno == EAGAIN) { await(ep_out); continue; }
            if (k <= 0) fail("relay: output");
            done += k;
        }
        moved += n;
    }
    close(ep_in);
    close(ep_out);
    return pieces;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    for (size_t i = 0; i < sizeof pattern / 8; i++) pattern[i] = i * 0x9e3779b97f4a7c15;
    int pipes[2];
    if (pipe(pipes) || fcntl(pipes[0], F_SETPIPE_SZ, 1 << 20) < 0) fail("pipe");
    printf("%7s %14s %14s %6s   %s\n", "piece", "recv+send", "splice", "ratio", "mean piece");
    size_t sizes[] = {4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double ms[2][TURNS], mean[2] = {0, 0};
        for (int turn = -1; turn < TURNS; turn++) /* the first does not count */
            for (int k = 0; k < 2; k++) {
                int way = (turn & 1) ^ k, from[2], to[2];
                tcp_pair(from);
                tcp_pair(to);
                pid_t a = fork();
                if (!a) { on_core(1); source(from[0]); _exit(0); }
                pid_t b = fork();
                if (!b) { on_core(1); sink(to[1]); _exit(0); }
                on_core(0);
                double before = cpu_ms();
                long pieces = relay(from[1], to[0], sizes[s], way, pipes);
                double took = cpu_ms() - before;
                int status = 0, wrong = 0;
                waitpid(a, &status, 0);
                wrong |= status;
                waitpid(b, &status, 0);
                if (wrong | status) { fprintf(stderr, "the source or the sink failed\n"); return 1; }
                for (int i = 0; i < 2; i++) { close(from[i]); close(to[i]); }
                if (turn >= 0) { ms[way][turn] = took; mean[way] += TOTAL / 1024.0 / pieces / TURNS; }
            }
        for (int way = 0; way < 2; way++) qsort(ms[way], TURNS, sizeof(double), by_value);
        double mb = TOTAL / 1048576.0, plain = ms[0][TURNS / 2] * 1e3 / mb, spliced = ms[1][TURNS / 2] * 1e3 / mb;
        printf("%5zu K %8.1f us/MB %8.1f us/MB %6.2f   %.0f K, %.0f K\n", sizes[s] >> 10, plain, spliced, plain / spliced, mean[0], mean[1]);
        fflush(stdout);
    }
    return 0;
}
