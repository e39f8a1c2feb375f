// What does a function cost that is still to be returned through when a system call comes back (docs/inside/shims.md)? And a second thread that sleeps?
//
//     cc -O2 -o /tmp/returns bench/experiments/returns.c && taskset -c 1 /tmp/returns
//
// `recv` that finds nothing, best of ten times 30,000, in ns: directly, by a jump, through one to four frames; alone, and beside the thread.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef ssize_t Receive(int, void *, size_t, int);

// Read anew each time, as a shim reads where libc's function is.
static Receive *volatile real = recv;

static ssize_t jump(int fd, void *to, size_t n, int flags) { return real(fd, to, n, flags); }

// The instruction behind the call keeps it from being the last thing that the function does.
#define FRAME(name, inner)                                                                              \
    __attribute__((noinline)) static ssize_t name(int fd, void *to, size_t n, int flags) {              \
        ssize_t result = inner(fd, to, n, flags);                                                       \
        __asm__ volatile("" : : "r"(result) : "memory");                                                \
        return result;                                                                                  \
    }
FRAME(one, real)
FRAME(two, one)
FRAME(three, two)
FRAME(four, three)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *sleeps(void *nothing) {
    pause();
    return nothing;
}

static void check(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

int main(void) {
    static const struct {
        const char *name;
        Receive *call;
    } ways[] = {{"directly", recv}, {"jump", jump}, {"1 frame", one}, {"2", two}, {"3", three}, {"4", four}};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listener, (struct sockaddr *)&at, sizeof at), "bind");
    check(listen(listener, 1), "listen");
    check(getsockname(listener, (struct sockaddr *)&at, &length), "getsockname");
    check(connect(fd, (struct sockaddr *)&at, length), "connect");
    for (int threads = 1; threads <= 2; threads++) {
        pthread_t thread;
        if (threads == 2) {
            check(-pthread_create(&thread, NULL, sleeps, NULL), "pthread_create");
        }
        for (int repeat = 0; repeat < 3; repeat++) {
            printf("%d thread%s", threads, threads == 1 ? ": " : "s:");
            for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
                double best = 1e18;
                char byte;
                for (int i = 0; i < 10; i++) {
                    double begun = now();
                    for (int j = 0; j < 30000; j++) {
                        ways[way].call(fd, &byte, 1, MSG_DONTWAIT);
                    }
                    double each = (now() - begun) / 30000;
                    best = each < best ? each : best;
                }
                printf("  %s %.1f", ways[way].name, best);
            }
            printf("\n");
        }
    }
}
