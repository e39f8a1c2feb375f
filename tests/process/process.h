/* Helpers that the programs of this directory share: input whose bytes are known, copies that must be elided under uncopy, and
 * checks.
 *
 * Each program runs plainly and under uncopy; what it says and its exit status must be the same. Input comes from a socket;
 * byte k of input number N is known, so every program can also check by itself (a wrong byte says WRONG). */
#ifndef PROCESS_H
#define PROCESS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAGE 4096ul
/* Above the default threshold, so that the default options elide it too. */
#define SIZE (256ul << 10)

/* A system call that no library sees. */
static inline long raw(long n, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define RAW(n, a, b, c) raw(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)

/* Says one line, at once. */
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...) {
    char line[512];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    if (n > (int)sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    if (RAW(SYS_write, 1, line, n) != n) raw(SYS_exit_group, 9, 0, 0, 0, 0, 0);
}

/* Ends the program where a step that must work does not. */
#define MUST(condition)                                                                                  \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            say("%s:%d: failed: %s (errno %d)", __FILE__, __LINE__, #condition, errno);                  \
            exit(3);                                                                                     \
        }                                                                                                \
    } while (0)

/* Byte `at` of input `number`. */
static inline unsigned char input_byte(unsigned number, size_t at) {
    uint64_t x = (number + 1) * 0x9e3779b97f4a7c15ull ^ (at >> 3) * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebull;
    x ^= x >> 32;
    return (unsigned char)(x >> (at & 7) * 8);
}

/* Fills without any library's help. */
static inline void fill(void *to, size_t n, unsigned number, size_t from) {
    volatile unsigned char *p = (volatile unsigned char *)to;
    for (size_t i = 0; i < n; i++) p[i] = input_byte(number, from + i);
}


/* Receives `n` bytes of input `number` from a socket into `buf`. */
static inline void receive_from(void *buf, size_t n, unsigned number, size_t from) {
    const size_t CHUNK = 64 << 10;
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    unsigned char *chunk = (unsigned char *)raw(SYS_mmap, 0, CHUNK, PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST((long)chunk > 0);
    for (size_t got = 0; got < n;) {
        size_t part = n - got < CHUNK ? n - got : CHUNK;
        fill(chunk, part, number, from + got);
        MUST(RAW(SYS_write, pair[0], chunk, part) == (long)part);
        for (size_t left = part; left > 0;) {
            ssize_t r = recv(pair[1], (char *)buf + got, left, 0);
            if (r < 0 && errno == EINTR) continue;
            MUST(r > 0);
            got += (size_t)r;
            left -= (size_t)r;
        }
    }
    RAW(SYS_munmap, chunk, CHUNK, 0);
    close(pair[0]);
    close(pair[1]);
}
static inline void receive(void *buf, size_t n, unsigned number) { receive_from(buf, n, number, 0); }

/* A file (without a name) that holds input `number`. */
static inline int input_file(size_t n, unsigned number) {
    char name[] = "/tmp/uncopy-process.XXXXXX";
    int fd = mkstemp(name);
    MUST(fd >= 0);
    unlink(name);
    unsigned char chunk[PAGE];
    for (size_t at = 0; at < n; at += PAGE) {
        size_t part = n - at < PAGE ? n - at : PAGE;
        fill(chunk, part, number, at);
        MUST(raw(SYS_pwrite64, fd, (long)chunk, (long)part, (long)at, 0, 0) == (long)part);
    }
    return fd;
}

/* Whether these bytes are input `number` from `from` on; touches them all. */
static inline int is_input(const void *buf, size_t n, unsigned number, size_t from) {
    const volatile unsigned char *p = (const volatile unsigned char *)buf;
    for (size_t i = 0; i < n; i++)
        if (p[i] != input_byte(number, from + i)) {
            say("WRONG: byte %zu of %zu at input %u+%zu is %02x, should be %02x", i, n, number, from, p[i],
                input_byte(number, from + i));
            return 0;
        }
    return 1;
}
static inline int is_filled(const void *buf, size_t n, unsigned char with) {
    const volatile unsigned char *p = (const volatile unsigned char *)buf;
    for (size_t i = 0; i < n; i++)
        if (p[i] != with) {
            say("WRONG: byte %zu of %zu is %02x, should be %02x", i, n, p[i], with);
            return 0;
        }
    return 1;
}
static inline uint64_t digest(const void *buf, size_t n) {
    const volatile unsigned char *p = (const volatile unsigned char *)buf;
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}
/* Says the digest of bytes, by touching them. */
static inline void show(const char *what, const void *buf, size_t n) {
    say("%s: %zu bytes, digest %016llx", what, n, (unsigned long long)digest(buf, n));
}
#define EXPECT_INPUT(buf, n, number) EXPECT_INPUT_FROM(buf, n, number, 0)
#define EXPECT_INPUT_FROM(buf, n, number, from)                                                          \
    do {                                                                                                 \
        if (is_input(buf, n, number, from))                                                              \
            say("right: input %u, %zu bytes from %zu", (unsigned)(number), (size_t)(n), (size_t)(from)); \
        else                                                                                             \
            say("%s:%d: that was here", __FILE__, __LINE__), exit(1);                                    \
    } while (0)
#define EXPECT_FILLED(buf, n, with)                                                                      \
    do {                                                                                                 \
        if (is_filled(buf, n, with))                                                                     \
            say("right: %zu bytes of %02x", (size_t)(n), (unsigned)(with));                              \
        else                                                                                             \
            say("%s:%d: that was here", __FILE__, __LINE__), exit(1);                                    \
    } while (0)

/* Sends bytes through a file without touching them; says the digest of what arrived. */
static inline void send_on(const char *what, const void *buf, size_t n) {
    int fd = memfd_create("sent", MFD_CLOEXEC);
    MUST(fd >= 0);
    MUST(write(fd, buf, n) == (ssize_t)n);
    void *arrived = (void *)raw(SYS_mmap, 0, (long)n, PROT_READ, MAP_SHARED, fd, 0);
    MUST((long)arrived > 0);
    show(what, arrived, n);
    RAW(SYS_munmap, arrived, n, 0);
    close(fd);
}

/* Counters of the library, if it is there: elided copies are the first word. */
static inline const volatile uint64_t *counters(void) {
    const uint64_t *(*ask)(void) = (const uint64_t *(*)(void))dlsym(RTLD_DEFAULT, "uncopy_counters");
    return ask ? ask() : NULL;
}
static inline uint64_t elided_copies(void) {
    const volatile uint64_t *c = counters();
    return c ? c[0] : 0;
}
/* The counter of this name; 0 without the library. */
static inline uint64_t counter(const char *name) {
    uint64_t (*ask)(const char *) = (uint64_t (*)(const char *))dlsym(RTLD_DEFAULT, "uncopy_counter");
    return ask ? ask(name) : 0;
}
/* Under uncopy with options that leave no call site alone. */
static inline int eager(void) {
    const char *backoff = getenv("UNCOPY_BACKOFF");
    return counters() && backoff && (!strcmp(backoff, "no") || !strcmp(backoff, "0"));
}
static uint64_t elided_here;
/* A program whose threads change the memory map at any time defines this: eliding is put off then (the copy is right, but made). */
#ifdef MAP_CHANGES_MEANWHILE
#define must_be_elided() 0
#else
#define must_be_elided() eager()
#endif
/* Copies; under uncopy (eager) the copy must be elided, or nothing would be tested. */
#define ELIDED_COPY(dst, src, n)                                                                         \
    do {                                                                                                 \
        uint64_t before_ = elided_copies();                                                              \
        void *(*volatile copy_)(void *, const void *, size_t) = memcpy;                                  \
        copy_(dst, src, n);                                                                              \
        if (elided_copies() != before_)                                                                  \
            elided_here++;                                                                               \
        else if (must_be_elided())                                                                       \
            say("%s:%d: NOT ELIDED", __FILE__, __LINE__);                                                \
    } while (0)

/* Whether the page at `p` has nothing behind it. */
static inline int page_missing(const void *p) {
    uint64_t entry = 0;
    int fd = (int)RAW(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 1; /* no /proc here */
    MUST(raw(SYS_pread64, fd, (long)&entry, 8, (long)((uintptr_t)p / PAGE * 8), 0, 0) == 8);
    RAW(SYS_close, fd, 0, 0);
    return !(entry >> 62); /* neither present nor swapped */
}
/* Under uncopy (eager) the page at `p` must be unmapped now. */
#define MUST_BE_UNMAPPED(p)                                                                              \
    do {                                                                                                 \
        if (must_be_elided() && !page_missing(p)) say("%s:%d: NOT UNMAPPED", __FILE__, __LINE__);                 \
    } while (0)

/* Fresh memory; every page of it is there. */
static inline char *fresh(size_t n) {
    char *p = (char *)mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED);
    for (size_t i = 0; i < n; i += PAGE) ((volatile char *)p)[i] = 1;
    return p;
}
/* Fresh memory that is a view of input `number` under uncopy. */
#define VIEW(number) VIEW_OF(number, SIZE)
#define VIEW_OF(number, n)                                                                               \
    __extension__({                                                                                      \
        char *from_ = fresh(n), *to_ = fresh(n);                                                         \
        receive(from_, n, number);                                                                       \
        ELIDED_COPY(to_, from_, n);                                                                      \
        MUST_BE_UNMAPPED(to_ + (n) / 2);                                                                 \
        to_;                                                                                             \
    })

/* Waits for a child; says how it ended. */
static inline void wait_for(const char *what, pid_t pid) {
    int status = 0;
    MUST(pid > 0);
    while (waitpid(pid, &status, __WALL) != pid) MUST(errno == EINTR);
    if (WIFSIGNALED(status))
        say("%s: killed by signal %d", what, WTERMSIG(status));
    else
        say("%s: exit status %d", what, WEXITSTATUS(status));
}

/* A difference that docs/limitations.md documents, in the words of `phrase` there: plainly `as_usual` is true, under uncopy
 * it is not. main.rs looks for the phrase, and for both answers. */
static inline void documented(const char *phrase, int as_usual) {
    say("documented: %s: %s", phrase, as_usual ? "as usual" : "differs");
}

/* A TCP connection within the host; `control`: its congestion control, NULL for the default. */
__attribute__((unused)) static void tcp_pair(int *out, int *in, const char *control) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = {};
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof addr;
    MUST(bind(l, (struct sockaddr *)&addr, len) == 0 && listen(l, 1) == 0);
    MUST(getsockname(l, (struct sockaddr *)&addr, &len) == 0);
    *out = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(*out, (struct sockaddr *)&addr, len) == 0 && (*in = accept(l, NULL, NULL)) >= 0);
    MUST(!control || setsockopt(*out, IPPROTO_TCP, TCP_CONGESTION, control, (socklen_t)strlen(control)) == 0);
    close(l);
}

/* Memory of SIZE bytes that has become several mappings under uncopy: its middle is a view of `view`, and was first touched apart from both ends. */
static inline char *in_parts(const char *view) {
    char *all = (char *)mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(all != MAP_FAILED);
    ELIDED_COPY(all + SIZE / 4, view, SIZE / 2);
    for (size_t at = 0; at < SIZE; at += PAGE)
        if (at < SIZE / 4 || at >= SIZE / 4 * 3) all[at] = 1;
    return all;
}

/* The end of main. */
static inline int finish(void) {
    if (counters() && !elided_here) say("NOTHING ELIDED");
    say("end");
    return 0;
}

#ifdef __cplusplus
}
#endif
#endif
