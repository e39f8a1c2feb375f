/* Helpers that the stress programs share: seeded numbers, bytes that say where they come from, and a way to get
 * them in.
 *
 * The checking side must not use what it checks: expected bytes are made and compared by plain loops (main.rs
 * compiles with -fno-builtin and -fno-tree-loop-distribute-patterns, so no loop becomes a memcpy), and
 * messages are put into the socket by the system call itself (libc's syscall() is interposed too). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline long raw(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

typedef struct { uint64_t s; } Random;

static inline uint64_t next(Random *r) /* splitmix64 */
{
    uint64_t z = (r->s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline size_t below(Random *r, size_t n) { return n ? next(r) % n : 0; }

/* Byte i of message m: no two messages, and no two places of one, look alike for long. */
static inline unsigned char byte_of(uint64_t message, size_t i)
{
    uint64_t x = (message * 0x9e3779b97f4a7c15u) ^ ((i >> 3) * 0xc2b2ae3d27d4eb4fu);
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (unsigned char)(x >> (8 + 8 * (i & 3)));
}

__attribute__((format(printf, 1, 2), noreturn)) static inline void die(const char *what, ...)
{
    char text[400];
    va_list args;
    va_start(args, what);
    int n = vsnprintf(text, sizeof text - 1, what, args);
    va_end(args);
    text[n] = '\n';
    if (raw(SYS_write, 2, (long)text, n + 1) < 0) _exit(98);
    if (getenv("STRESS_STOP")) raise(SIGSTOP); /* for a debugger */
    _exit(99);
}

/* A socket pair with room for a whole message. */
typedef struct { int in, out; } Channel;

static inline Channel channel(void)
{
    int pair[2], room = 4 << 20;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("socketpair: %s", strerror(errno));
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    return (Channel){ pair[0], pair[1] };
}

static inline void close_channel(Channel *c) { close(c->in); close(c->out); }

#define PIECE (32 << 10)

/* Receives the n bytes of a message into `to`, by one of several calls, piece by piece: the socket never fills up. */
static inline void receive(Channel *c, char *to, size_t n, uint64_t message, unsigned way)
{
    char piece[PIECE];
    for (size_t at = 0; at < n;) {
        /* Several pieces wait in the socket, so that one call gets many pages. */
        size_t waiting = 0;
        while (waiting < 4 * PIECE && at + waiting < n) {
            size_t k = n - at - waiting < PIECE ? n - at - waiting : PIECE;
            for (size_t i = 0; i < k; i++) piece[i] = (char)byte_of(message, at + waiting + i);
            long sent = raw(SYS_write, c->in, (long)piece, (long)k);
            if (sent != (long)k) die("raw write of %zu: %ld", k, sent);
            waiting += k;
        }
        while (waiting) {
            struct iovec v[2] = { { to + at, waiting / 2 }, { to + at + waiting / 2, waiting - waiting / 2 } };
            struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
            ssize_t got;
            switch (way % 5) {
            case 0: got = read(c->out, to + at, waiting); break;
            case 1: got = recv(c->out, to + at, waiting, 0); break;
            case 2: got = readv(c->out, v, 2); break;
            case 3: got = recvmsg(c->out, &m, 0); break;
            default: got = recvfrom(c->out, to + at, waiting, MSG_WAITALL, 0, 0);
            }
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) die("input of %zu bytes: %zd, %s", waiting, got, strerror(errno));
            at += (size_t)got;
            waiting -= (size_t)got;
        }
    }
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --name VALUE, a number. */
static inline long option(int argc, char **argv, const char *name, long otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name)) return strtol(argv[i + 1], 0, 0);
    return otherwise;
}
