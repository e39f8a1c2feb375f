/*
 * consistency: does a program under uncopy see, and send, the same bytes?
 *
 * One deterministic program with the papers' cases (write to the source after a copy, write to the copy, both; free
 * the original and reuse its memory; receive again into the same buffer; partial overlaps; unaligned chains; ...) and
 * those that the rules of the design add (fork, signals, the kernel's other ways into memory, recycled pages and
 * zeros). It prints one line of digests per case and round, which must be the same with and without uncopy:
 *
 *     cc -O2 -pthread -fno-builtin -fno-builtin-memcpy -fno-builtin-memmove -o consistency consistency.c
 *     ./consistency --threads 4 --align odd >plain
 *     uncopy run -- ./consistency --threads 4 --align odd | diff plain -
 *
 * (-fno-builtin: every memcpy is a call through the PLT.)  `run.sh` next to this file does that for all combinations.
 *
 *     --threads N     N threads run all cases, each with buffers, sockets and files of its own (default 1)
 *     --align WHICH   where buffers begin: page (on a page), odd (1, 16, 777, 4095, ... past one, all different),
 *                     congruent (all at the same offset that is not 0)
 *     --size BYTES    size of a message, 65536 or more (default 524288)
 *     --rounds N      times through all cases (default 4); --seed N  other data, other ranges (default 1)
 *     --case NAME     only that case (same line as in a full run); --list  names the cases
 *     --no-signals    without the 1 ms interval timer whose handler reads, copies and writes too
 *
 * How it knows: every buffer has a model, ordinary memory that no I/O ever touches, on which the same steps are done
 * by loops of this program. The bytes that the buffer shows (`see`), and those that arrive at the other end
 * when it is sent (`out`), are compared with the model one by one; a difference prints `WRONG ...` and the
 * exit status is 1. Status 2: the program could not do its work (no memory, no sockets, ...).
 *
 * Data comes from a feeder thread through a socketpair, a pipe, TCP over loopback or a file, in turns, and is read with
 * read, recv, readv, recvmsg, recvfrom, pread, preadv, preadv2; it is sent with write, send, writev, sendmsg, sendto,
 * pwrite, pwritev to a drainer thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint64_t u64;

#define PAGE ((size_t)4096)
#define GUARD ((size_t)64)
#define SMALL ((size_t)48000) /* fits in any socket's buffer */
#define STACKED ((size_t)262144)
#define STATIC_MAX ((size_t)1 << 21)
#define MAX_THREADS 16
#define PIECES 64

extern char **environ;

static struct {
    int threads, rounds, signals;
    enum { AT_PAGE, AT_ODD, AT_SAME } align;
    size_t size;
    u64 seed;
    const char *only;
} opt = {1, 4, 1, AT_PAGE, 524288, 1, NULL};

static void die(const char *what) {
    fprintf(stderr, "consistency: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* ---- bytes: made, copied, compared and digested by loops that must not become calls of memcpy or memset ---- */

#if defined(__GNUC__) && !defined(__clang__)
#define LOOP __attribute__((noinline, optimize("no-tree-loop-distribute-patterns")))
#else
#define LOOP __attribute__((noinline))
#endif

struct word {
    u64 v;
} __attribute__((packed, may_alias));
#define WORD(p) (((struct word *)(p))->v)

static u64 mix(u64 x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The first n bytes of a stream. */
LOOP static void gen(u64 stream, u8 *p, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) WORD(p + i) = mix(stream + i);
    if (i < n)
        for (u64 w = mix(stream + i); i < n; i++, w >>= 8) p[i] = (u8)w;
}

LOOP static void fill(u8 *p, u8 byte, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = byte;
}

LOOP static void model_move(u8 *d, const u8 *s, size_t n) {
    if (d <= s || d >= s + n) {
        size_t i = 0;
        if (d + 8 <= s || d >= s + n)
            for (; i + 8 <= n; i += 8) WORD(d + i) = WORD(s + i);
        for (; i < n; i++) d[i] = s[i];
    } else {
        while (n--) d[n] = s[n];
    }
}

LOOP static u64 digest(const u8 *p, size_t n) {
    u64 h = 0xcbf29ce484222325u ^ n;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        h = (h ^ WORD(p + i)) * 0x100000001b3u;
        h ^= h >> 29;
    }
    for (; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h ^ (h >> 32);
}

/* Offset of the first difference; n when there is none. */
LOOP static size_t differ(const u8 *a, const u8 *b, size_t n) {
    size_t i = 0;
    while (i + 8 <= n && WORD(a + i) == WORD(b + i)) i += 8;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* ---- the machine of one thread ---- */

enum { CH_UNIX, CH_PIPE, CH_TCP, CH_FILE, CHANNELS };

struct helper { /* a feeder (writes a stream) or a drainer (reads and compares) */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int busy, quit, drains, fd, channel;
    u64 stream;
    size_t n, chunk;
    const u8 *model;
    u64 digest; /* results */
    size_t differs;
    u8 got, *buf;
    size_t cap;
};

struct worker {
    int id, round, wrong;
    const char *name;
    pthread_t thread;
    u64 rng, streams;
    unsigned in_turn, out_turn, offset_turn;
    int in_r[CHANNELS], in_w[CHANNELS], out_r[CHANNELS], out_w[CHANNELS];
    struct helper feeder, drainer;
    char *log;
    size_t log_len, log_cap;
    u8 *models, *models_end, *model_next;
};
typedef struct worker W;

/* A buffer of the program and its model. */
typedef struct {
    u8 *p, *m;
    size_t n;
    u8 *base;
    size_t mapped; /* length of the mapping; 0: from malloc */
} Buf;

static void say(W *w, const char *format, ...) {
    va_list ap;
    for (;;) {
        size_t room = w->log_cap - w->log_len;
        va_start(ap, format);
        int k = vsnprintf(w->log + w->log_len, room, format, ap);
        va_end(ap);
        if ((size_t)k < room) {
            w->log_len += (size_t)k;
            return;
        }
        w->log_cap = w->log_cap * 2 + (size_t)k + 1024;
        w->log = realloc(w->log, w->log_cap);
        if (!w->log) die("log");
    }
}

static void wrong(W *w, const char *what, size_t offset, size_t n, int got, int expected) {
    w->wrong = 1;
    say(w, "\nWRONG thread %d round %d %s: %s: offset %zu of %zu is %d, not %d\n", w->id, w->round, w->name, what,
        offset, n, got, expected);
}

/* A number that the program saw (a return value, an errno, a length): printed and compared. */
static void expect(W *w, const char *what, long got, long expected) {
    say(w, " %s=%ld", what, got);
    if (got != expected) {
        w->wrong = 1;
        say(w, "\nWRONG thread %d round %d %s: %s is %ld, not %ld\n", w->id, w->round, w->name, what, got, expected);
    }
}

static u64 draw(W *w) { return mix(w->rng++); }
static size_t below(W *w, size_t n) { return n ? (size_t)(draw(w) % n) : 0; }
static size_t between(W *w, size_t a, size_t b) { return a + below(w, b - a + 1); }
static u64 next_stream(W *w) { return mix(draw(w) ^ ++w->streams); }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static u8 *model(W *w, size_t n) {
    u8 *m = w->model_next;
    w->model_next += (n + 63) & ~(size_t)63;
    if (w->model_next > w->models_end) {
        errno = ENOMEM;
        die("models");
    }
    return m;
}

static size_t offset_of_next(W *w) {
    static const size_t odd[] = {1, 16, 777, 4095, 8, 2048, 3, 4088, 64, 1000, 4032, 255};
    switch (opt.align) {
    case AT_PAGE: return 0;
    case AT_SAME: return 1744;
    default: return odd[w->offset_turn++ % (sizeof odd / sizeof *odd)];
    }
}

/* Program-written content, the same in buffer and model. */
static void scribble_at(W *w, Buf b, size_t off, size_t n) {
    u64 s = next_stream(w);
    gen(s, b.p + off, n);
    gen(s, b.m + off, n);
}
static void scribble(W *w, Buf b) { scribble_at(w, b, 0, b.n); }

static void place(Buf *b, size_t off) {
    b->p = (u8 *)(((uintptr_t)b->base + GUARD + PAGE - 1) & ~(PAGE - 1)) + off;
    fill(b->p - GUARD, 0xa5, GUARD);
    fill(b->p + b->n, 0x5a, GUARD);
}
#define SLACK (2 * PAGE + 2 * GUARD)

/* From malloc, with a guard on both sides. Content undefined. */
static Buf get(W *w, size_t n) {
    Buf b = {.n = n, .m = model(w, n)};
    b.base = malloc(n + SLACK);
    if (!b.base) die("malloc");
    place(&b, offset_of_next(w));
    if (draw(w) & 1) fill(b.p, 0x11, n); /* some are touched before */
    return b;
}

static void put(W *w, Buf b) {
    if (!b.mapped) {
        for (size_t i = 0; i < GUARD; i++) {
            if (b.p[-1 - (long)i] != 0xa5) wrong(w, "before the buffer", i, GUARD, b.p[-1 - (long)i], 0xa5);
            if (b.p[b.n + i] != 0x5a) wrong(w, "after the buffer", i, GUARD, b.p[b.n + i], 0x5a);
        }
        free(b.base);
    } else if (munmap(b.base, b.mapped)) {
        die("munmap");
    }
}

static u8 *map_pages(size_t n, int prot, int flags, int fd) {
    u8 *p = mmap(NULL, n, prot, flags, fd, 0);
    if (p == MAP_FAILED) die("mmap");
    return p;
}
static size_t pages(size_t n) { return (n + PAGE - 1) & ~(PAGE - 1); }

/* A mapping of its own: private and anonymous unless `flags` says otherwise. Content zero. */
static Buf get_mapped(W *w, size_t n, int flags) {
    size_t off = offset_of_next(w);
    Buf b = {.n = n, .m = model(w, n), .mapped = pages(n + off)};
    b.base = map_pages(b.mapped, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1);
    b.p = b.base + off;
    fill(b.m, 0, n);
    return b;
}

/* memcpy in the program, the same in the models. */
static void copy(Buf d, size_t d_off, Buf s, size_t s_off, size_t n) {
    memcpy(d.p + d_off, s.p + s_off, n);
    model_move(d.m + d_off, s.m + s_off, n);
}
static void copy_all(Buf d, Buf s) { copy(d, 0, s, 0, least(d.n, s.n)); }

static Buf part(Buf b, size_t off, size_t n) {
    Buf q = {.p = b.p + off, .m = b.m + off, .n = n};
    return q;
}

/* ---- helpers ---- */

static void write_all(int fd, int channel, const u8 *p, size_t n, size_t chunk) {
    for (size_t done = 0; done < n;) {
        size_t k = least(chunk, n - done);
        ssize_t r = channel == CH_FILE ? pwrite(fd, p + done, k, (off_t)done) : write(fd, p + done, k);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) die("write");
        done += (size_t)r;
    }
}

static void read_all(int fd, int channel, u8 *p, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t r = channel == CH_FILE ? pread(fd, p + done, n - done, (off_t)done) : read(fd, p + done, n - done);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) die("read");
        done += (size_t)r;
    }
}

static void *helper_main(void *arg) {
    struct helper *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->busy && !h->quit) pthread_cond_wait(&h->turn, &h->lock);
        if (h->quit) break;
        pthread_mutex_unlock(&h->lock);
        if (h->cap < h->n) {
            free(h->buf);
            h->cap = h->n;
            h->buf = malloc(h->cap);
            if (!h->buf) die("malloc");
        }
        if (h->drains) {
            read_all(h->fd, h->channel, h->buf, h->n);
            h->digest = digest(h->buf, h->n);
            h->differs = differ(h->buf, h->model, h->n);
            h->got = h->differs < h->n ? h->buf[h->differs] : 0;
        } else {
            gen(h->stream, h->buf, h->n);
            write_all(h->fd, h->channel, h->buf, h->n, h->chunk);
        }
        pthread_mutex_lock(&h->lock);
        h->busy = 0;
        pthread_cond_broadcast(&h->turn);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void helper_start(struct helper *h, int drains) {
    h->drains = drains;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->turn, NULL);
    if (pthread_create(&h->thread, NULL, helper_main, h)) die("pthread_create");
}
static void helper_go(struct helper *h) {
    pthread_mutex_lock(&h->lock);
    h->busy = 1;
    pthread_cond_broadcast(&h->turn);
    pthread_mutex_unlock(&h->lock);
}
static void helper_wait(struct helper *h) {
    pthread_mutex_lock(&h->lock);
    while (h->busy) pthread_cond_wait(&h->turn, &h->lock);
    pthread_mutex_unlock(&h->lock);
}
static void helper_stop(struct helper *h) {
    pthread_mutex_lock(&h->lock);
    h->quit = 1;
    pthread_cond_broadcast(&h->turn);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    free(h->buf);
}

static u64 feed(W *w, int channel, size_t n) {
    static const size_t chunks[] = {SIZE_MAX, 65536, 5000, 131071};
    struct helper *h = &w->feeder;
    h->stream = next_stream(w);
    h->n = n;
    h->chunk = chunks[below(w, 4)];
    h->channel = channel;
    h->fd = w->in_w[channel];
    if (n) helper_go(h);
    return h->stream;
}

/* ---- input and output ---- */

enum { BY_READ, BY_RECV, BY_READV, BY_RECVMSG, BY_RECVFROM, BY_WAITALL, BY_PREAD, BY_PREADV, BY_PREADV2 };

static ssize_t input_call(int by, int fd, u8 *p, size_t n, size_t done, size_t cut) {
    struct iovec v[3] = {{p, n}, {NULL, 0}, {NULL, 0}};
    int pieces = 1;
    if (n > cut + 7) {
        v[0].iov_len = cut;
        v[1] = (struct iovec){p + cut, 7};
        v[2] = (struct iovec){p + cut + 7, n - cut - 7};
        pieces = 3;
    }
    struct msghdr msg = {.msg_iov = v, .msg_iovlen = (size_t)pieces};
    switch (by) {
    case BY_READ: return read(fd, p, n);
    case BY_RECV: return recv(fd, p, n, 0);
    case BY_READV: return readv(fd, v, pieces);
    case BY_RECVMSG: return recvmsg(fd, &msg, 0);
    case BY_RECVFROM: return recvfrom(fd, p, n, 0, NULL, NULL);
    case BY_WAITALL: return recv(fd, p, n, MSG_WAITALL);
    case BY_PREAD: return pread(fd, p, n, (off_t)done);
    case BY_PREADV: return preadv(fd, v, pieces, (off_t)done);
    default: return preadv2(fd, v, pieces, (off_t)done, 0);
    }
}

/* Receives n bytes of a new stream at p; the model m gets them too. */
static void in_at(W *w, Buf b, size_t off, size_t n) {
    static const u8 ways[][2] = {
        {CH_UNIX, BY_READ},    {CH_TCP, BY_RECV},     {CH_PIPE, BY_READ},     {CH_FILE, BY_READ},    {CH_UNIX, BY_RECV},
        {CH_TCP, BY_RECVMSG},  {CH_UNIX, BY_READV},   {CH_FILE, BY_PREAD},    {CH_PIPE, BY_READV},   {CH_UNIX, BY_RECVFROM},
        {CH_TCP, BY_READ},     {CH_FILE, BY_PREADV},  {CH_UNIX, BY_RECVMSG},  {CH_TCP, BY_WAITALL},  {CH_FILE, BY_READV},
        {CH_UNIX, BY_WAITALL}, {CH_TCP, BY_READV},    {CH_FILE, BY_PREADV2},  {CH_TCP, BY_RECVFROM},
    };
    const u8 *way = ways[w->in_turn++ % (sizeof ways / sizeof *ways)];
    int channel = way[0], fd = w->in_r[channel];
    u64 stream = feed(w, channel, n);
    size_t cut = below(w, n + 1);
    if (channel == CH_FILE) {
        helper_wait(&w->feeder);
        if (lseek(fd, 0, SEEK_SET)) die("lseek");
    }
    for (size_t done = 0; done < n;) {
        ssize_t r = input_call(way[1], fd, b.p + off + done, n - done, done, cut);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) die("input");
        done += (size_t)r;
    }
    helper_wait(&w->feeder);
    gen(stream, b.m + off, n);
}
static void in(W *w, Buf b) { in_at(w, b, 0, b.n); }

/* The program's own view of the buffer. */
static void see(W *w, Buf b) {
    say(w, " %016llx", (unsigned long long)digest(b.p, b.n));
    size_t at = differ(b.p, b.m, b.n);
    if (at < b.n) wrong(w, "memory", at, b.n, b.p[at], b.m[at]);
}

static void drain(W *w, int channel, const u8 *m, size_t n) {
    struct helper *h = &w->drainer;
    h->model = m;
    h->n = n;
    h->channel = channel;
    h->fd = w->out_r[channel];
    helper_go(h);
}
static void drained(W *w) {
    struct helper *h = &w->drainer;
    helper_wait(h);
    say(w, " >%016llx", (unsigned long long)h->digest);
    if (h->differs < h->n) wrong(w, "sent", h->differs, h->n, h->got, h->model[h->differs]);
}

/* Sends pieces; what arrives must be the model's n bytes. */
static void send_pieces(W *w, int channel, int by, struct iovec *v, int pieces, const u8 *m, size_t n) {
    int fd = w->out_w[channel];
    if (channel != CH_FILE) drain(w, channel, m, n);
    size_t done = 0;
    while (done < n) {
        struct msghdr msg = {.msg_iov = v, .msg_iovlen = (size_t)pieces};
        ssize_t r;
        while (pieces && !v->iov_len) v++, pieces--;
        switch (by) {
        case 0: r = write(fd, v->iov_base, v->iov_len); break;
        case 1: r = send(fd, v->iov_base, v->iov_len, MSG_NOSIGNAL); break;
        case 2: r = sendto(fd, v->iov_base, v->iov_len, 0, NULL, 0); break;
        case 3: r = writev(fd, v, pieces); break;
        case 4: msg.msg_iov = v, msg.msg_iovlen = (size_t)pieces, r = sendmsg(fd, &msg, MSG_NOSIGNAL); break;
        case 5: r = pwrite(fd, v->iov_base, v->iov_len, (off_t)done); break;
        default: r = pwritev(fd, v, pieces, (off_t)done); break;
        }
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) die("output");
        done += (size_t)r;
        for (size_t k = (size_t)r; k;) {
            size_t here = least(k, v->iov_len);
            v->iov_base = (u8 *)v->iov_base + here;
            v->iov_len -= here;
            k -= here;
            if (!v->iov_len) v++, pieces--;
        }
    }
    if (channel == CH_FILE) drain(w, channel, m, n);
    drained(w);
}

static void out(W *w, Buf b) {
    static const u8 ways[][2] = {
        {CH_UNIX, 0}, {CH_TCP, 1},  {CH_PIPE, 0}, {CH_FILE, 5}, {CH_UNIX, 4}, {CH_TCP, 3},  {CH_PIPE, 3}, {CH_TCP, 0},
        {CH_FILE, 6}, {CH_UNIX, 1}, {CH_TCP, 4},  {CH_UNIX, 3}, {CH_TCP, 2},  {CH_UNIX, 2},
    };
    const u8 *way = ways[w->out_turn++ % (sizeof ways / sizeof *ways)];
    size_t cut = below(w, b.n + 1), cut2 = between(w, cut, b.n);
    struct iovec v[3] = {{b.p, b.n}};
    int pieces = 1;
    if (draw(w) & 1 || way[1] < 3) { /* else in three pieces */
        v[0].iov_len = b.n;
    } else {
        v[0].iov_len = cut;
        v[1] = (struct iovec){b.p + cut, cut2 - cut};
        v[2] = (struct iovec){b.p + cut2, b.n - cut2};
        pieces = 3;
    }
    if (b.n) send_pieces(w, way[0], way[1], v, pieces, b.m, b.n);
}

/* Both, in either order: looking first ends the views, sending first uses them. */
static void verify(W *w, Buf b) {
    switch (below(w, 4)) {
    case 0: see(w, b), out(w, b); break;
    case 1: see(w, b); break;
    default: out(w, b), see(w, b); break;
    }
}

/* The program writes somewhere: a byte, a few, a page and more, or all. */
static void touch_some(W *w, Buf b) {
    size_t off = below(w, b.n), n = 1;
    switch (w->round % 5) {
    case 0: n = between(w, 1, 200); break;
    case 1: n = between(w, 4000, 20000); break;
    case 2: off = 0, n = b.n; break;
    case 3: off = below(w, 2) ? 0 : b.n - 1; break;
    default: n = b.n / 2; break;
    }
    scribble_at(w, b, off, least(n, b.n - off));
}

/* ---- cases ---- */

static void write_source_after_copy(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size);
    in(w, a);
    copy_all(b, a);
    touch_some(w, a);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b);
}

static void write_copy(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size);
    in(w, a);
    copy_all(b, a);
    touch_some(w, b);
    verify(w, a);
    verify(w, b);
    put(w, b), put(w, a);
}

static void write_both(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size), c = get(w, opt.size);
    in(w, a);
    copy_all(b, a);
    copy_all(c, b);
    touch_some(w, a);
    touch_some(w, b);
    touch_some(w, a);
    verify(w, c);
    verify(w, a);
    verify(w, b);
    put(w, a), put(w, b), put(w, c);
}

static void free_original_and_reuse(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size);
    in(w, a);
    copy_all(b, a);
    put(w, a);
    Buf c = get(w, opt.size), d = get(w, opt.size);
    scribble(w, c);
    if (w->round & 1) in(w, d);
    else copy_all(d, c);
    verify(w, b);
    verify(w, c);
    verify(w, d);
    put(w, b), put(w, c), put(w, d);
}

static void receive_again_into_same_buffer(W *w) {
    enum { GENERATIONS = 6 };
    Buf a = get(w, opt.size), b[GENERATIONS];
    for (int g = 0; g < GENERATIONS; g++) {
        b[g] = get(w, opt.size);
        in(w, a);
        copy_all(b[g], a);
    }
    for (int g = 0; g < GENERATIONS; g++) verify(w, b[g]);
    verify(w, a);
    for (int g = 0; g < GENERATIONS; g++) put(w, b[g]);
    put(w, a);
}

static void receive_into_part_of_old_views(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size), c = get(w, opt.size);
    size_t n = opt.size, third = n / 3;
    in(w, a);
    scribble(w, c);
    copy_all(b, a);
    copy(c, third / 2, b, third, third);
    in_at(w, a, third + 5, third); /* the middle of the source, anew */
    in_at(w, b, 0, third - 11);    /* and the start of the copy */
    copy(b, n / 2, a, third, third);
    in_at(w, a, 0, 1);
    in_at(w, a, n - 3, 3);
    verify(w, c);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b), put(w, c);
}

static void send_copy_after_writing_original(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size);
    for (int i = 0; i < 3; i++) {
        in(w, a);
        copy_all(b, a);
        touch_some(w, a);
        out(w, b);
        out(w, a);
        out(w, b);
    }
    see(w, a);
    see(w, b);
    put(w, a), put(w, b);
}

static void overlapping_destinations(W *w) {
    size_t n = opt.size, most = n / 4 * 3;
    Buf a = get(w, n), b = get(w, n), c = get(w, n), d = get(w, n);
    in(w, a);
    in(w, b);
    copy(c, 0, a, 0, most);
    copy(c, n - most, b, 0, most);
    copy(d, n - most - 1, b, 1, most);
    copy(d, 3, a, n - most, most - 2);
    fill(d.p, 7, 3), fill(d.m, 7, 3);
    fill(d.p + n - 1, 9, 1), fill(d.m + n - 1, 9, 1);
    size_t off = below(w, n / 2), len = between(w, 1, n / 2);
    copy(c, off, d, off / 2, len);
    verify(w, d);
    verify(w, c);
    verify(w, a);
    put(w, a), put(w, b), put(w, c), put(w, d);
}

static void chains(W *w) {
    enum { LONGEST = 12 };
    Buf b[LONGEST + 1];
    for (int i = 0; i <= LONGEST; i++) b[i] = get(w, opt.size);
    for (int length = 1; length <= LONGEST; length++) {
        in(w, b[0]);
        for (int i = 0; i < length; i++) copy_all(b[i + 1], b[i]);
        out(w, b[length]);
        if (length % 4 == w->round % 4) touch_some(w, b[length / 2]);
    }
    for (int i = 0; i <= LONGEST; i++) verify(w, b[i]);
    for (int i = 0; i <= LONGEST; i++) put(w, b[i]);
}

static void memmove_overlapping(W *w) {
    size_t n = opt.size;
    const size_t by[] = {1, 16, 777, PAGE, PAGE + 1, 3 * PAGE, n / 3, n / 2};
    Buf a = get(w, n);
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        size_t k = by[i];
        in(w, a);
        if ((i + (size_t)w->round) & 1) {
            memmove(a.p + k, a.p, n - k);
            model_move(a.m + k, a.m, n - k);
        } else {
            memmove(a.p, a.p + k, n - k);
            model_move(a.m, a.m + k, n - k);
        }
        verify(w, a);
        memmove(a.p + k, a.p, n - k);
        model_move(a.m + k, a.m, n - k);
        memmove(a.p, a.p + k, n - k);
        model_move(a.m, a.m + k, n - k);
        out(w, a);
    }
    see(w, a);
    Buf b = get(w, n); /* and within a copy */
    in(w, a);
    copy_all(b, a);
    memmove(b.p + 100, b.p + 50, n / 2);
    model_move(b.m + 100, b.m + 50, n / 2);
    memmove(b.p, b.p, n);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b);
}

static void copy_of_part_of_copy(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get(w, n), d = get(w, n);
    in(w, a);
    copy_all(b, a);
    scribble(w, c);
    scribble(w, d);
    for (int i = 0; i < 6; i++) {
        size_t len = between(w, n / 8, n / 2), from = below(w, n - len), to = below(w, n - len);
        copy(c, to, b, from, len);
        size_t cut = between(w, 1, len / 2);
        copy(d, below(w, n - len), c, to + cut, len - cut);
    }
    verify(w, d);
    copy(a, 0, c, n / 2, n / 2); /* and back into the source */
    verify(w, b);
    verify(w, c);
    verify(w, a);
    put(w, a), put(w, b), put(w, c), put(w, d);
}

static void copy_in_pieces(W *w) {
    static const size_t largest[] = {300, 5000, 20000, 100000};
    size_t n = opt.size, most = largest[w->round % 4];
    Buf a = get(w, n), b = get(w, n), c = get(w, n), d = get(w, n);
    in(w, a);
    for (size_t at = 0, k; at < n; at += k) {
        k = least(between(w, 1, most), n - at);
        copy(b, at, a, at, k);
    }
    copy_all(c, b); /* one big copy of many small ones */
    for (size_t at = n, k; at > 0; at -= k) {
        k = least(between(w, 1, most), at);
        copy(d, at - k, c, at - k, k);
    }
    verify(w, d);
    verify(w, c);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b), put(w, c), put(w, d);
}

static void partly_read_partly_written_source(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    in(w, a);
    see(w, part(a, 0, 100)); /* a header */
    see(w, part(a, n / 2, n / 8));
    scribble_at(w, a, n / 4, 3000);
    copy_all(b, a);
    see(w, part(b, 0, 17));
    see(w, part(a, n - 9, 9));
    scribble_at(w, a, n / 2 + 1, n / 16);
    scribble_at(w, b, n / 8, 20000);
    copy_all(c, b);
    copy(c, 0, a, 0, n / 3);
    verify(w, c);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b), put(w, c);
}

static void copy_around_untracked(W *w) { /* views that come, go and come again at one place */
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), plain = get(w, n);
    scribble(w, plain);
    for (int i = 0; i < 4; i++) {
        in(w, a);
        copy_all(b, a);
        size_t off = below(w, n / 2), len = between(w, 1, n / 2);
        copy(b, off, plain, off, len);
        copy(plain, n / 3, b, 0, n / 3);
        out(w, b);
        copy_all(a, b);
        out(w, a);
    }
    verify(w, plain);
    verify(w, a);
    verify(w, b);
    put(w, a), put(w, b), put(w, plain);
}

#ifdef __GLIBC__
void *__memcpy_chk(void *, const void *, size_t, size_t);
void *__memmove_chk(void *, const void *, size_t, size_t);
void *__mempcpy_chk(void *, const void *, size_t, size_t);
#endif

static void other_copy_functions(W *w) {
    size_t n = opt.size, k = n / 5;
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    in(w, a);
    u8 *p = b.p;
    p = mempcpy(p, a.p, k);
    bcopy(a.p + (p - b.p), p, k);
    p += k;
#ifdef __GLIBC__
    expect(w, "memcpy_chk", (u8 *)__memcpy_chk(p, a.p + (p - b.p), k, k + 1) - b.p, (long)(2 * k));
    p += k;
    expect(w, "memmove_chk", (u8 *)__memmove_chk(p, a.p + (p - b.p), k, k) - b.p, (long)(3 * k));
    p += k;
    p = __mempcpy_chk(p, a.p + (p - b.p), k, SIZE_MAX);
#else
    p = mempcpy(p, a.p + (p - b.p), 3 * k);
#endif
    memmove(p, a.p + (p - b.p), n - (size_t)(p - b.p));
    model_move(b.m, a.m, n);
    expect(w, "memcpy", (u8 *)memcpy(c.p, b.p, n) - c.p, 0);
    expect(w, "memmove", (u8 *)memmove(c.p + 1, b.p + 1, n - 1) - c.p, 1);
    model_move(c.m, b.m, n);
    bcopy(c.p + 9, c.p, n - 9);
    model_move(c.m, c.m + 9, n - 9);
    verify(w, b);
    verify(w, c);
    verify(w, a);
    put(w, a), put(w, b), put(w, c);
}

static void realloc_copies(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), r = {.n = n, .m = model(w, 3 * n)};
    in(w, a);
    r.p = r.base = malloc(n); /* at malloc's own alignment */
    copy_all(r, a);
    r.p = realloc(r.p, 2 * n + 13); /* grow */
    verify(w, r);
    in(w, a);
    r.n = 2 * n;
    copy(r, n, a, 0, n);
    r.p = realloc(r.p, n / 2 + 1); /* shrink */
    r.n = n / 2 + 1;
    Buf other = get(w, n); /* may get what was given back */
    scribble(w, other);
    out(w, r);
    r.p = realloc(r.p, 3 * n);
    r.n = 3 * n;
    copy(r, n / 2 + 1, a, 0, n - 1);
    r.n = n / 2 + n;
    r.p = realloc(r.p, r.n);
    verify(w, r);
    verify(w, other);
    verify(w, a);
    r.n = n; /* receive into it, then realloc the source of a copy */
    in(w, r);
    copy_all(other, r);
    r.p = realloc(r.p, 2 * n);
    verify(w, r);
    free(r.p);
    verify(w, other);
    put(w, a), put(w, other);
}

static void calloc_is_zero(W *w) {
    for (int i = 0; i < 4; i++) {
        Buf a = get(w, opt.size), b = get(w, opt.size), c = get(w, opt.size);
        in(w, a);
        copy_all(b, a);
        copy_all(c, b);
        if (i & 1) out(w, c);
        put(w, a), put(w, b);
        if (i & 2) put(w, c);
        Buf z = {.n = opt.size + SLACK, .m = model(w, opt.size + SLACK)};
        fill(z.m, 0, z.n);
        z.p = calloc(1, z.n);
        if (i & 1) out(w, z);
        see(w, z);
        free(z.p);
        if (!(i & 2)) verify(w, c), put(w, c);
    }
}

static void map_again_is_zero(W *w) {
    for (int i = 0; i < 4; i++) {
        Buf a = get_mapped(w, opt.size, MAP_PRIVATE), b = get_mapped(w, opt.size, MAP_PRIVATE);
        in(w, a);
        copy_all(b, a);
        if (i & 1) out(w, b);
        Buf *gone = i & 2 ? &a : &b, *kept = i & 2 ? &b : &a;
        void *p;
        if (i & 1) { /* over it */
            p = mmap(gone->base, gone->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        } else { /* the place may have gone to another thread meanwhile */
            size_t off = (size_t)(gone->p - gone->base);
            munmap(gone->base, gone->mapped);
            p = mmap(gone->base, gone->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            gone->base = p, gone->p = gone->base + off;
        }
        if (p == MAP_FAILED) die("mmap");
        fill(gone->m, 0, gone->n);
        if (i & 1) out(w, *gone);
        see(w, *gone);
        verify(w, *kept);
        in(w, *gone);
        copy_all(*kept, *gone);
        verify(w, *kept);
        munmap(gone->base, PAGE); /* partly */
        *gone = part(*gone, PAGE, gone->n - PAGE);
        verify(w, *gone);
        munmap(kept->base, kept->mapped);
        munmap((u8 *)((uintptr_t)gone->p & ~(PAGE - 1)), pages(gone->n + ((uintptr_t)gone->p & (PAGE - 1))));
    }
}

static void mremap_moves_data(W *w) {
    size_t n = opt.size;
    for (int i = 0; i < 3; i++) {
        Buf a = get_mapped(w, n, MAP_PRIVATE), b = get_mapped(w, n, MAP_PRIVATE);
        in(w, a);
        copy_all(b, a);
        Buf *r = i & 1 ? &a : &b, *other = i & 1 ? &b : &a;
        size_t off = (size_t)(r->p - r->base), more = pages(2 * n + off), old = r->mapped;
        u8 *p;
        if (i == 2) {
            u8 *there = map_pages(more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
            p = mremap(r->base, old, more, MREMAP_MAYMOVE | MREMAP_FIXED, there);
        } else {
            p = mremap(r->base, old, more, MREMAP_MAYMOVE);
        }
        if (p == MAP_FAILED) die("mremap");
        r->base = p, r->p = p + off, r->mapped = more;
        verify(w, *r);
        u8 *m = model(w, 2 * n); /* the rest is zero */
        model_move(m, r->m, n);
        fill(m + n, 0, n);
        r->m = m, r->n = 2 * n;
        see(w, *r);
        copy(*r, n, *other, 0, n);
        out(w, *r);
        p = mremap(r->base, more, old, 0); /* shrink */
        if (p == MAP_FAILED) die("mremap");
        r->mapped = old, r->n = n;
        verify(w, *r);
        verify(w, *other);
        put(w, a), put(w, b);
    }
}

static void madvise_dontneed(W *w) {
    size_t n = opt.size;
    Buf a = get_mapped(w, n, MAP_PRIVATE), b = get_mapped(w, n, MAP_PRIVATE), c = get_mapped(w, n, MAP_PRIVATE);
    for (int i = 0; i < 3; i++) {
        in(w, a);
        copy_all(b, a);
        copy_all(c, b);
        Buf *v = i == 0 ? &b : i == 1 ? &a : &c;
        size_t len = v->mapped, from = 0;
        if (i) from = len / 4 & ~(PAGE - 1), len = len / 3 & ~(PAGE - 1);
        if (madvise(v->base + from, len, MADV_DONTNEED)) die("madvise");
        size_t off = (size_t)(v->p - v->base), start = from > off ? from - off : 0, end = from + len - off;
        fill(v->m + start, 0, least(end, n) - start);
        if (draw(w) & 1) out(w, *v);
        verify(w, a);
        verify(w, b);
        verify(w, c);
    }
    put(w, a), put(w, b), put(w, c);
}

static void mprotect_then_use(W *w) {
    Buf a = get_mapped(w, opt.size, MAP_PRIVATE), b = get_mapped(w, opt.size, MAP_PRIVATE), c = get(w, opt.size);
    in(w, a);
    copy_all(b, a);
    mprotect(b.base, b.mapped, PROT_READ);
    mprotect(a.base, a.mapped, PROT_READ);
    copy_all(c, b);
    if (w->round & 1) out(w, b);
    see(w, b);
    see(w, a);
    mprotect(b.base, b.mapped, PROT_READ | PROT_WRITE);
    mprotect(a.base, a.mapped, PROT_READ | PROT_WRITE);
    touch_some(w, b);
    in(w, a);
    copy_all(a, c);
    verify(w, b);
    verify(w, a);
    verify(w, c);
    int null = open("/dev/zero", O_RDONLY | O_CLOEXEC); /* into read-only memory: refused, and nothing changed */
    mprotect(b.base, b.mapped, PROT_READ);
    errno = 0;
    expect(w, "read_into_readonly", read(null, b.p, b.n), -1);
    expect(w, "errno", errno, EFAULT);
    see(w, b);
    close(null);
    put(w, a), put(w, b), put(w, c);
}

static __thread u8 *volatile guarded;
static __thread volatile sig_atomic_t guard_hits;

static void on_segv(int sig, siginfo_t *info, void *context) {
    (void)context;
    u8 *p = info->si_addr;
    if (guarded && p >= guarded && p < guarded + PAGE) {
        guard_hits++;
        mprotect(guarded, PAGE, PROT_READ | PROT_WRITE);
    } else {
        signal(sig, SIG_DFL);
    }
}

static void own_sigsegv_handler(W *w) {
    Buf a = get_mapped(w, opt.size, MAP_PRIVATE), b = get_mapped(w, opt.size, MAP_PRIVATE);
    in(w, a);
    copy_all(b, a);
    guard_hits = 0;
    Buf *v = w->round & 1 ? &a : &b;
    guarded = v->base + (v->mapped / 2 & ~(PAGE - 1));
    mprotect(guarded, PAGE, PROT_NONE);
    see(w, *v);
    expect(w, "hits", guard_hits, 1);
    guarded = NULL;
    verify(w, a);
    verify(w, b);
    put(w, a), put(w, b);
}

static void single_bytes(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n);
    for (int writing = 0; writing < 2; writing++) {
        in(w, a);
        copy_all(b, a);
        Buf v = (w->round & 1) ? a : b;
        size_t edge = PAGE - ((uintptr_t)v.p & (PAGE - 1)); /* first byte of the second page */
        size_t last_edge = (((uintptr_t)v.p + n) & ~(PAGE - 1)) - (uintptr_t)v.p;
        const size_t at[] = {0, n - 1, n / 2, edge, edge - 1, edge + 5 * PAGE - 1, edge + 5 * PAGE, last_edge - 1};
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            volatile u8 *p = v.p + at[i];
            if (writing) *p = (u8)(*p + 1), v.m[at[i]]++;
            else expect(w, "byte", *p, v.m[at[i]]);
        }
        verify(w, a);
        verify(w, b);
    }
    put(w, a), put(w, b);
}

static void memset_part(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    in(w, a);
    copy_all(b, a);
    copy_all(c, b);
    for (int i = 0; i < 3; i++) {
        Buf v = i == 0 ? b : i == 1 ? a : c;
        size_t off = below(w, n - 1), len = between(w, 1, n - off);
        memset(v.p + off, i, len);
        fill(v.m + off, (u8)i, len);
    }
    verify(w, a);
    verify(w, b);
    verify(w, c);
    put(w, a), put(w, b), put(w, c);
}

static int sign(int x) { return (x > 0) - (x < 0); }

static void memcmp_and_search(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n);
    in(w, a);
    copy_all(b, a);
    expect(w, "same", sign(memcmp(a.p, b.p, n)), 0);
    in(w, a);
    copy_all(b, a);
    size_t at = below(w, n);
    b.p[at] ^= 0x80, b.m[at] ^= 0x80;
    expect(w, "differs", sign(memcmp(a.p, b.p, n)), a.m[at] < b.m[at] ? -1 : 1);
    in(w, a);
    copy_all(b, a);
    u8 *end = memchr(b.p, 0x5c, n);
    size_t first = 0;
    while (first < n && b.m[first] != 0x5c) first++;
    expect(w, "memchr", end ? end - b.p : -1, first < n ? (long)first : -1);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b);
}

static void fork_sees_all(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get_mapped(w, n, MAP_PRIVATE), d = get(w, n), e = get(w, n);
    int pipes[2];
    u64 want[7], got[7] = {0};
    in(w, a);
    copy_all(b, a);
    copy_all(c, b);
    in(w, d);
    scribble(w, e);
    in_at(w, d, 100, n / 2);
    see(w, part(b, n / 2, 5000));
    want[0] = digest(a.m, n), want[1] = digest(b.m, n), want[2] = digest(c.m, n), want[3] = digest(d.m, n);
    want[4] = want[2], want[5] = want[3], want[6] = digest(e.m, n);
    if (pipe2(pipes, O_CLOEXEC)) die("pipe");
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (!pid) { /* no malloc, no locks here */
        u64 h[7] = {0};
        h[0] = digest(a.p, n);
        h[6] = digest(e.p, n);
        h[1] = digest(b.p, n);
        gen(1, b.p, n); /* the child's own business */
        memcpy(e.p, c.p, n);
        h[4] = digest(e.p, n);
        h[2] = digest(c.p, n);
        memcpy(a.p, d.p, n);
        h[3] = digest(d.p, n);
        h[5] = digest(a.p, n);
        ssize_t sent = 0;
        while (sent < (ssize_t)n) { /* and sent from the child */
            ssize_t r = write(pipes[1], e.p + sent, n - (size_t)sent);
            if (r <= 0) _exit(255);
            sent += r;
        }
        if (write(pipes[1], h, sizeof h) != sizeof h) _exit(255);
        _exit((int)((h[0] ^ h[1] ^ h[2] ^ h[3] ^ h[4] ^ h[5] ^ h[6]) & 0x7f));
    }
    Buf from_child = get(w, n);
    close(pipes[1]);
    model_move(from_child.m, c.m, n);
    scribble(w, a); /* the parent goes on */
    touch_some(w, c);
    in_at(w, b, 0, n / 2);
    copy_all(d, b);
    read_all(pipes[0], CH_PIPE, from_child.p, n);
    copy_all(e, from_child);
    read_all(pipes[0], CH_PIPE, (u8 *)got, sizeof got);
    close(pipes[0]);
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    u64 all = 0;
    for (int i = 0; i < 7; i++) {
        say(w, " %016llx", (unsigned long long)got[i]);
        if (got[i] != want[i]) wrong(w, "digest in the child", (size_t)i, 7, (int)(got[i] & 255), (int)(want[i] & 255));
        all ^= want[i];
    }
    expect(w, "status", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), (long)(all & 0x7f));
    verify(w, e);
    verify(w, from_child);
    verify(w, a);
    verify(w, b);
    verify(w, c);
    verify(w, d);
    in(w, a); /* and it still works after a fork */
    copy_all(b, a);
    verify(w, b);
    put(w, a), put(w, b), put(w, c), put(w, d), put(w, e), put(w, from_child);
}

static void exec_cat(W *w) { /* through another program: copies out, and in again */
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    int pair[2];
    in(w, a);
    copy_all(b, a);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("socketpair");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], 0);
    posix_spawn_file_actions_adddup2(&actions, pair[1], 1);
    posix_spawnattr_t attr; /* signals as at birth */
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    char *argv[] = {"cat", NULL};
    pid_t pid;
    if (posix_spawnp(&pid, "cat", &actions, &attr, argv, environ)) die("cat");
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    size_t sent = 0, back = 0;
    while (back < n) { /* both ways without a second thread: send what fits, then take what came */
        if (sent < n) {
            ssize_t r = send(pair[0], b.p + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (r > 0) sent += (size_t)r;
            else if (r < 0 && errno != EAGAIN && errno != EINTR) die("send");
            if (sent == n) shutdown(pair[0], SHUT_WR);
        }
        ssize_t r = recv(pair[0], c.p + back, n - back, sent < n ? MSG_DONTWAIT : 0);
        if (r > 0) back += (size_t)r;
        else if (r == 0) break;
        else if (errno == EAGAIN) usleep(200);
        else if (errno != EINTR) die("recv");
    }
    expect(w, "back", (long)back, (long)n);
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    expect(w, "status", status, 0);
    close(pair[0]), close(pair[1]);
    model_move(c.m, a.m, n);
    copy_all(a, c);
    verify(w, c);
    verify(w, a);
    verify(w, b);
    put(w, a), put(w, b), put(w, c);
}

static void writev_of_views_and_others(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get(w, n), plain = get(w, n);
    in(w, a);
    copy_all(b, a);
    copy_all(c, b);
    scribble(w, plain);
    scribble_at(w, b, n / 3, 10000); /* b: view, ordinary, view */
    see(w, part(c, n / 2, 9000));
    static const u8 ways[][2] = {{CH_UNIX, 3}, {CH_TCP, 4}, {CH_PIPE, 3}, {CH_FILE, 6}, {CH_TCP, 3}, {CH_UNIX, 4}};
    for (int i = 0; i < 3; i++) {
        struct iovec v[PIECES];
        int pieces = (int)between(w, 5, PIECES);
        size_t total = 0, each = n / (size_t)pieces;
        u8 *m = model(w, n);
        for (int k = 0; k < pieces; k++) {
            Buf s = k % 4 == 0 ? plain : k % 4 == 1 ? b : k % 4 == 2 ? c : a;
            size_t len = k % 9 == 8 ? 0 : k % 7 == 6 ? 3 : between(w, 1, each), off = below(w, n - len);
            v[k] = (struct iovec){s.p + off, len};
            model_move(m + total, s.m + off, len);
            total += len;
        }
        const u8 *way = ways[(w->round * 3 + i) % 6];
        send_pieces(w, way[0], way[1], v, pieces, m, total);
    }
    Buf across = part(b, n / 3 - 6000, 22000); /* straddles */
    out(w, across);
    verify(w, a);
    verify(w, b);
    verify(w, c);
    put(w, a), put(w, b), put(w, c), put(w, plain);
}

static void iov_max(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size), c = get(w, opt.size);
    struct iovec v[IOV_MAX + 1];
    size_t each = least(opt.size, 60000) / IOV_MAX;
    in(w, a);
    copy_all(b, a);
    scribble(w, c);
    for (int i = 0; i <= IOV_MAX; i++) v[i] = (struct iovec){b.p + (size_t)(IOV_MAX - i) * each, each};
    errno = 0;
    expect(w, "writev", writev(w->out_w[CH_UNIX], v, IOV_MAX + 1), -1);
    expect(w, "errno", errno, EINVAL);
    u8 *m = model(w, each * IOV_MAX);
    for (int i = 0; i < IOV_MAX; i++) model_move(m + (size_t)i * each, b.m + (size_t)(IOV_MAX - i) * each, each);
    struct iovec u[IOV_MAX];
    for (int i = 0; i < IOV_MAX; i++) u[i] = v[i];
    send_pieces(w, CH_UNIX, 3, u, IOV_MAX, m, each * IOV_MAX);
    u64 s = feed(w, CH_UNIX, each * IOV_MAX); /* scattered input */
    helper_wait(&w->feeder);
    for (int i = 0; i < IOV_MAX; i++) u[i] = (struct iovec){c.p + (size_t)i * (each + 1), each};
    expect(w, "readv", readv(w->in_r[CH_UNIX], u, IOV_MAX), (long)(each * IOV_MAX));
    u8 *flat = model(w, each * IOV_MAX);
    gen(s, flat, each * IOV_MAX);
    for (int i = 0; i < IOV_MAX; i++) model_move(c.m + (size_t)i * (each + 1), flat + (size_t)i * each, each);
    copy_all(a, c);
    verify(w, c);
    verify(w, a);
    verify(w, b);
    put(w, a), put(w, b), put(w, c);
}

/* recv of what is already there: the result is exact. */
static long take(int fd, u8 *p, size_t n, int flags) {
    long r;
    do r = recv(fd, p, n, flags);
    while (r < 0 && errno == EINTR);
    return r;
}

static void peek_then_recv(W *w) {
    size_t n = SMALL;
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    int fd = w->in_r[CH_UNIX];
    for (int i = 0; i < 2; i++) {
        u64 s = feed(w, CH_UNIX, n);
        helper_wait(&w->feeder);
        scribble(w, a);
        expect(w, "peek", take(fd, a.p, n / 2, MSG_PEEK), (long)(n / 2));
        gen(s, a.m, n / 2);
        copy_all(b, a);
        expect(w, "peek", take(fd, a.p, n, MSG_PEEK), (long)n);
        gen(s, a.m, n);
        verify(w, b);
        Buf *last = i ? &a : &c;
        expect(w, "recv", take(fd, last->p, n, 0), (long)n);
        gen(s, last->m, n);
        verify(w, a);
        verify(w, *last);
    }
    put(w, a), put(w, b), put(w, c);
}

static void short_reads_keep_the_rest(W *w) {
    static const size_t lengths[] = {1, 5, 4096, 16384, 30001, SMALL};
    Buf a = get(w, opt.size), b = get(w, opt.size), c = get(w, opt.size);
    in(w, a);
    copy_all(b, a); /* b is a view and stays one beyond what comes */
    scribble(w, c); /* c is ordinary memory */
    int fd = w->in_r[CH_UNIX];
    for (int i = 0; i < 6; i++) {
        Buf v = (i + w->round) & 1 ? b : c;
        u64 s = feed(w, CH_UNIX, lengths[i]);
        helper_wait(&w->feeder);
        long r = i & 2 ? read(fd, v.p, v.n) : take(fd, v.p, v.n, MSG_DONTWAIT);
        expect(w, "got", r, (long)lengths[i]);
        gen(s, v.m, lengths[i]);
        verify(w, v);
        copy(a, 0, v, 0, v.n / 2);
        errno = 0;
        r = take(fd, v.p, v.n, MSG_DONTWAIT);
        expect(w, "none", r, -1);
        expect(w, "errno", errno, EAGAIN);
        out(w, v);
    }
    verify(w, a);
    if (ftruncate(w->in_w[CH_FILE], 0)) die("ftruncate"); /* the end of a file */
    u64 s = feed(w, CH_FILE, 20011);
    helper_wait(&w->feeder);
    expect(w, "pread", pread(w->in_r[CH_FILE], b.p, b.n, 0), 20011);
    gen(s, b.m, 20011);
    expect(w, "pread", pread(w->in_r[CH_FILE], b.p, b.n, 20011), 0);
    expect(w, "pread", pread(w->in_r[CH_FILE], c.p + 1, c.n - 1, 20000), 11);
    model_move(c.m + 1, b.m + 20000, 11);
    verify(w, b);
    verify(w, c);
    put(w, a), put(w, b), put(w, c);
}

static void waitall(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size);
    u64 s = feed(w, CH_UNIX, SMALL);
    helper_wait(&w->feeder);
    scribble(w, a);
    expect(w, "waitall", take(w->in_r[CH_UNIX], a.p, 30000, MSG_WAITALL), 30000);
    expect(w, "waitall", take(w->in_r[CH_UNIX], a.p + 30000, SMALL - 30000, MSG_WAITALL), (long)(SMALL - 30000));
    gen(s, a.m, SMALL);
    copy_all(b, a);
    verify(w, b);
    int pair[2]; /* what is there before the end */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("socketpair");
    expect(w, "send", send(pair[0], b.p, 20000, 0), 20000);
    shutdown(pair[0], SHUT_WR);
    expect(w, "waitall", take(pair[1], a.p + 7, 40000, MSG_WAITALL), 20000);
    model_move(a.m + 7, b.m, 20000);
    expect(w, "end", take(pair[1], a.p, 40000, MSG_WAITALL), 0);
    verify(w, a);
    close(pair[0]), close(pair[1]);
    put(w, a), put(w, b);
}

static void zero_lengths(W *w) {
    Buf a = get(w, opt.size), b = get(w, opt.size);
    int fd = w->out_w[CH_UNIX];
    in(w, a);
    copy_all(b, a);
    memcpy(b.p + 100, a.p, 0);
    memmove(b.p, b.p + 1, 0);
    expect(w, "write", write(fd, b.p, 0), 0);
    expect(w, "send", send(fd, b.p, 0, 0), 0);
    expect(w, "read", read(w->in_r[CH_FILE], b.p, 0), 0);
    expect(w, "recv", recv(w->in_r[CH_UNIX], b.p, 0, MSG_DONTWAIT), -1);
    expect(w, "errno", errno, EAGAIN);
    expect(w, "pread", pread(w->in_r[CH_FILE], a.p, 0, 0), 0);
    struct iovec v[4] = {{b.p, 0}, {NULL, 0}, {a.p, 0}, {b.p + 5, 0}};
    expect(w, "writev", writev(w->out_w[CH_PIPE], v, 4), 0);
    expect(w, "writev", writev(w->out_w[CH_PIPE], v, 0), 0);
    expect(w, "readv", readv(w->in_r[CH_FILE], v, 4), 0);
    struct msghdr msg = {.msg_iov = v, .msg_iovlen = 0};
    expect(w, "sendmsg", sendmsg(fd, &msg, 0), 0);
    in_at(w, a, 10, 0);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b);
}

static void errors_are_the_kernels(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n);
    in(w, a);
    copy_all(b, a);
    errno = 0;
    expect(w, "read", read(-1, b.p, n), -1);
    expect(w, "errno", errno, EBADF);
    expect(w, "write", write(-1, b.p, n), -1);
    expect(w, "errno", errno, EBADF);
    expect(w, "recv", recv(w->in_r[CH_FILE], b.p, n, 0), -1);
    expect(w, "errno", errno, ENOTSOCK);
    expect(w, "pread", pread(w->in_r[CH_PIPE], b.p, n, 0), -1);
    expect(w, "errno", errno, ESPIPE);
    expect(w, "write", write(w->in_r[CH_FILE], b.p, n), -1); /* open for reading only */
    expect(w, "errno", errno, EBADF);
    u8 *hole = map_pages(4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    mprotect(hole + 2 * PAGE, 2 * PAGE, PROT_NONE);
    expect(w, "write", write(w->out_w[CH_FILE], hole + 2 * PAGE, 2 * PAGE), -1);
    expect(w, "errno", errno, EFAULT);
    u64 s = feed(w, CH_FILE, 4 * PAGE);
    helper_wait(&w->feeder);
    expect(w, "pread", pread(w->in_r[CH_FILE], hole + 2 * PAGE, 2 * PAGE, 0), -1);
    expect(w, "errno", errno, EFAULT);
    expect(w, "pread", pread(w->in_r[CH_FILE], hole, 4 * PAGE, 0), (long)(2 * PAGE)); /* as far as there is memory */
    Buf h = {.p = hole, .n = 2 * PAGE, .m = model(w, 2 * PAGE)};
    gen(s, h.m, 2 * PAGE);
    see(w, h);
    munmap(hole, 4 * PAGE);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair)) die("socketpair");
    expect(w, "read", read(pair[0], b.p, n), -1);
    expect(w, "errno", errno, EAGAIN);
    shutdown(pair[0], SHUT_RDWR);
    expect(w, "send", send(pair[0], b.p, n, MSG_NOSIGNAL), -1);
    expect(w, "errno", errno, EPIPE);
    expect(w, "read", read(pair[1], b.p, n), 0);
    close(pair[0]), close(pair[1]);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b);
}

static void datagrams(W *w) {
    static const size_t lengths[] = {1, 100, 4096, 16384, 60000, 33333};
    size_t n = 60000;
    Buf a = get(w, n), b = get(w, n), c = get(w, n), d = get(w, n);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair)) die("socketpair");
    scribble(w, c);
    for (int i = 0; i < 6; i++) {
        size_t len = lengths[i], less = len / 3 + 1;
        in(w, a);
        copy_all(b, a);
        expect(w, "send", send(pair[0], b.p, len, 0), (long)len);
        expect(w, "recv", take(pair[1], c.p, n, 0), (long)len);
        model_move(c.m, b.m, len);
        copy_all(d, c);
        see(w, d);
        copy_all(d, c);
        expect(w, "sendto", sendto(pair[0], b.p, len, 0, NULL, 0), (long)len);
        expect(w, "peek", take(pair[1], c.p + 3, less, MSG_PEEK | MSG_TRUNC), (long)len);
        model_move(c.m + 3, b.m, less);
        expect(w, "trunc", take(pair[1], c.p, less, MSG_TRUNC), (long)len); /* the rest of it is lost */
        model_move(c.m, b.m, less);
        verify(w, d);
        struct iovec out_v[2] = {{b.p, len / 2}, {b.p + len / 2, len - len / 2}};
        struct msghdr msg = {.msg_iov = out_v, .msg_iovlen = 2};
        expect(w, "sendmsg", sendmsg(pair[0], &msg, 0), (long)len);
        struct iovec in_v[2] = {{c.p + 50000, 9999}, {c.p, less}};
        msg = (struct msghdr){.msg_iov = in_v, .msg_iovlen = 2};
        long have = (long)least(len, 9999 + less), first = (long)least(len, 9999);
        expect(w, "recvmsg", recvmsg(pair[1], &msg, 0), have);
        expect(w, "flags", msg.msg_flags & MSG_TRUNC, have < (long)len ? MSG_TRUNC : 0);
        model_move(c.m + 50000, b.m, (size_t)first);
        model_move(c.m, b.m + first, (size_t)(have - first));
        verify(w, c);
    }
    struct iovec v[4];
    struct mmsghdr many[4] = {{{0}, 0}};
    for (int i = 0; i < 4; i++) {
        v[i] = (struct iovec){b.p + i * 9000, 9000};
        many[i].msg_hdr = (struct msghdr){.msg_iov = v + i, .msg_iovlen = 1};
    }
    expect(w, "sendmmsg", sendmmsg(pair[0], many, 4, 0), 4);
    for (int i = 0; i < 4; i++) v[i] = (struct iovec){c.p + (3 - i) * 12000 + 5, i == 2 ? 100 : 12000};
    expect(w, "recvmmsg", recvmmsg(pair[1], many, 4, 0, NULL), 4);
    for (int i = 0; i < 4; i++) {
        expect(w, "len", many[i].msg_len, i == 2 ? 100 : 9000);
        model_move(c.m + (3 - i) * 12000 + 5, b.m + i * 9000, i == 2 ? 100 : 9000);
    }
    verify(w, c);
    verify(w, b);
    close(pair[0]), close(pair[1]);
    put(w, a), put(w, b), put(w, c), put(w, d);
}

static void ancillary_data(W *w) {
    size_t n = 31000; /* the kernel passes rights with the first 36544 bytes only */
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("socketpair");
    in(w, a);
    copy_all(b, a);
    scribble(w, c);
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec v = {b.p, n - 1000};
    struct msghdr msg = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    *(int *)(void *)CMSG_DATA(head) = pair[1];
    expect(w, "sendmsg", sendmsg(pair[0], &msg, 0), (long)n - 1000);
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } back = {{0}};
    v = (struct iovec){c.p, n};
    msg = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = &back, .msg_controllen = sizeof back.room};
    expect(w, "recvmsg", recvmsg(pair[1], &msg, MSG_CMSG_CLOEXEC), (long)n - 1000);
    expect(w, "controllen", (long)msg.msg_controllen, (long)sizeof back.room);
    expect(w, "flags", msg.msg_flags, MSG_CMSG_CLOEXEC); /* the kernel gives it back */
    model_move(c.m, b.m, n - 1000);
    head = CMSG_FIRSTHDR(&msg);
    if (!head || head->cmsg_type != SCM_RIGHTS) {
        expect(w, "rights", 0, 1);
    } else {
        int fd = *(int *)(void *)CMSG_DATA(head);
        expect(w, "send", send(pair[0], b.p + 1, 30000, 0), 30000);
        expect(w, "recv", take(fd, c.p + 9, 30000, MSG_WAITALL), 30000); /* through the descriptor that came */
        model_move(c.m + 9, b.m + 1, 30000);
        close(fd);
    }
    verify(w, c);
    verify(w, b);
    close(pair[0]), close(pair[1]);
    put(w, a), put(w, b), put(w, c);
}

static long raw_call(long number, long a, long b, long c) {
    long r;
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    r = x0;
#else
    r = syscall(number, a, b, c);
    if (r < 0) r = -errno;
#endif
    return r;
}

static void raw_system_calls(W *w) { /* no library sees these: they work through the fault path */
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    for (int raw = 0; raw < 2; raw++) {
        in(w, a);
        copy_all(b, a);
        copy_all(c, b);
        drain(w, CH_TCP, c.m, n);
        for (size_t done = 0; done < n;) {
            long p = (long)(c.p + done), k = (long)(n - done);
            long r = raw ? raw_call(SYS_write, w->out_w[CH_TCP], p, k) : syscall(SYS_write, w->out_w[CH_TCP], p, k);
            if (r <= 0 && (raw ? r != -EINTR : errno != EINTR)) die("raw write");
            if (r > 0) done += (size_t)r;
        }
        drained(w);
        in(w, a);
        copy_all(b, a); /* b is a view, and the kernel writes over it */
        size_t off = below(w, n / 2), len = n / 3;
        u64 s = feed(w, CH_UNIX, len);
        for (size_t done = 0; done < len;) {
            long p = (long)(b.p + off + done), k = (long)(len - done);
            long r = raw ? raw_call(SYS_read, w->in_r[CH_UNIX], p, k) : syscall(SYS_read, w->in_r[CH_UNIX], p, k);
            if (r <= 0 && (raw ? r != -EINTR : errno != EINTR)) die("raw read");
            if (r > 0) done += (size_t)r;
        }
        helper_wait(&w->feeder);
        gen(s, b.m + off, len);
        copy_all(c, b);
        verify(w, b);
        verify(w, c);
        verify(w, a);
    }
    put(w, a), put(w, b), put(w, c);
}

static void kernels_other_ways(W *w) { /* process_vm_readv, process_vm_writev, /proc/self/mem, ioctl */
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    in(w, a);
    copy_all(b, a);
    struct iovec here = {c.p, n}, there = {b.p, n};
    expect(w, "process_vm_readv", process_vm_readv(getpid(), &here, 1, &there, 1, 0), (long)n);
    model_move(c.m, b.m, n);
    verify(w, c);
    copy_all(c, a);
    here = (struct iovec){a.p + 1, n / 2}, there = (struct iovec){c.p + 4000, n / 2};
    expect(w, "process_vm_writev", process_vm_writev(getpid(), &here, 1, &there, 1, 0), (long)(n / 2));
    model_move(c.m + 4000, a.m + 1, n / 2);
    verify(w, c);
    in(w, a);
    copy_all(b, a);
    int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (mem < 0) die("/proc/self/mem");
    size_t done = 0;
    while (done < n) {
        ssize_t r = pread(mem, c.p + done, n - done, (off_t)(uintptr_t)b.p + (off_t)done);
        if (r <= 0) break;
        done += (size_t)r;
    }
    close(mem);
    expect(w, "mem", (long)done, (long)n);
    model_move(c.m, b.m, n);
    verify(w, c);
    copy_all(b, a); /* an ioctl writes an int into a view */
    size_t at = n / 2 + (size_t)(-(uintptr_t)(b.p + n / 2) & 3);
    expect(w, "ioctl", ioctl(w->in_r[CH_PIPE], FIONREAD, b.p + at), 0);
    fill(b.m + at, 0, 4);
    verify(w, b);
    verify(w, a);
    put(w, a), put(w, b), put(w, c);
}

static void vmsplice_then_unmap(W *w) { /* a pipe keeps the pages after the program has let them go */
    size_t n = SMALL;
    Buf a = get_mapped(w, n, MAP_PRIVATE), b = get(w, n), c = get(w, n);
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC)) die("pipe");
    in(w, a);
    struct iovec v = {a.p, n};
    expect(w, "vmsplice", vmsplice(pipes[1], &v, 1, 0), (long)n);
    copy_all(b, a);
    copy_all(c, b);
    see(w, part(c, 0, 10));
    model_move(c.m, a.m, n);
    put(w, a), put(w, b);
    Buf d = get(w, opt.size), e = get(w, opt.size);
    for (int i = 0; i < 4; i++) in(w, d), copy_all(e, d); /* recycled pages would be overwritten now */
    scribble(w, c);
    model_move(c.m, a.m, n);
    read_all(pipes[0], CH_PIPE, c.p, n);
    verify(w, c);
    verify(w, e);
    close(pipes[0]), close(pipes[1]);
    put(w, c), put(w, d), put(w, e);
}

static void shared_mappings(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), s = get_mapped(w, n, MAP_SHARED), f = {.n = n, .m = model(w, n)};
    int fd = memfd_create("consistency", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)pages(n))) die("memfd");
    f.p = f.base = map_pages(pages(n), PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    f.mapped = pages(n);
    in(w, a);
    copy_all(b, a);
    copy_all(s, b);
    copy_all(f, b);
    touch_some(w, b);
    Buf back = get(w, n);
    read_all(fd, CH_FILE, back.p, n); /* the file has it at once */
    model_move(back.m, f.m, n);
    verify(w, back);
    pid_t pid = fork(); /* and another process too */
    if (pid < 0) die("fork");
    if (!pid) {
        gen(5, s.p, n / 2);
        _exit((int)(digest(s.p + n / 2, n - n / 2) & 0x7f));
    }
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    expect(w, "status", WEXITSTATUS(status), (long)(digest(s.m + n / 2, n - n / 2) & 0x7f));
    gen(5, s.m, n / 2);
    verify(w, s);
    in(w, f);
    copy_all(a, f);
    gen(6, f.p, n), gen(6, f.m, n);
    verify(w, a);
    verify(w, f);
    verify(w, b);
    close(fd);
    put(w, a), put(w, b), put(w, s), put(w, f), put(w, back);
}

static void file_mappings(W *w) { /* a private mapping of a file, as destination and as source */
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), f = {.n = n, .m = model(w, n), .mapped = pages(n)};
    feed(w, CH_FILE, n);
    helper_wait(&w->feeder);
    f.p = f.base = map_pages(pages(n), PROT_READ | PROT_WRITE, MAP_PRIVATE, w->in_w[CH_FILE]);
    gen(w->feeder.stream, f.m, n);
    copy_all(b, f);
    verify(w, b);
    in_at(w, a, 0, n / 2);
    gen(3, a.p + n / 2, n - n / 2), gen(3, a.m + n / 2, n - n / 2);
    if (w->in_turn % 2) see(w, a);
    copy(f, 1000, a, 0, n / 2);
    touch_some(w, a);
    copy_all(b, f);
    put(w, a);
    verify(w, part(b, 1000, n / 2));
    verify(w, part(f, 1000, n / 2));
    put(w, f);
    put(w, b);
}

static u8 static_source[MAX_THREADS][STATIC_MAX], static_target[MAX_THREADS][STATIC_MAX];

static void static_arrays(W *w) {
    size_t n = least(opt.size, STATIC_MAX - PAGE);
    Buf s = {.p = static_source[w->id] + offset_of_next(w), .n = n, .m = model(w, n)};
    Buf t = {.p = static_target[w->id] + offset_of_next(w), .n = n, .m = model(w, n)};
    Buf a = get(w, n);
    in(w, s);
    copy_all(a, s);
    copy_all(t, s);
    touch_some(w, s);
    verify(w, t);
    verify(w, a);
    in(w, s);
    copy_all(t, a);
    copy_all(a, s);
    verify(w, a);
    verify(w, s);
    verify(w, t);
    put(w, a);
}

__attribute__((noinline)) static void stack_arrays(W *w) {
    u8 room[STACKED];
    size_t n = STACKED - PAGE, m = least(opt.size, n);
    Buf s = {.p = room + 1 + (w->round & 3), .n = m, .m = model(w, m)};
    Buf a = get(w, m), b = get(w, m);
    in(w, a);
    copy_all(s, a);
    touch_some(w, a);
    copy_all(b, s);
    verify(w, s);
    in(w, s);
    copy_all(a, s);
    touch_some(w, s);
    verify(w, a);
    verify(w, b);
    verify(w, s);
    put(w, a), put(w, b);
}

struct errand {
    W *w;
    Buf a, b;
    int which;
    u64 result;
};

static void *on_its_stack(void *arg) { /* the stack goes back with the thread */
    struct errand *e = arg;
    u8 room[STACKED];
    size_t n = least(e->a.n, STACKED - PAGE);
    memcpy(room, e->a.p, n);
    memcpy(e->b.p, room, n);
    if (e->which) gen(7, room, n);
    else e->result = digest(room, n);
    return NULL;
}

static void *reads_all(void *arg) {
    struct errand *e = arg;
    e->result = digest(e->a.p, e->a.n);
    return NULL;
}

static void *writes_stripes(void *arg) { /* every third run of 64 bytes: all threads write to all pages */
    struct errand *e = arg;
    for (size_t at = (size_t)e->which * 64; at + 64 <= e->a.n; at += 192) gen(at, e->a.p + at, 64);
    return NULL;
}

static void in_threads(struct errand *e, int n, void *(*what)(void *)) {
    pthread_t t[4];
    for (int i = 0; i < n; i++)
        if (pthread_create(t + i, NULL, what, e + i)) die("pthread_create");
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
}

static void threads_that_exit(W *w) {
    size_t n = least(opt.size, STACKED - PAGE);
    Buf a = get(w, n), b = get(w, n);
    for (int i = 0; i < 3; i++) {
        in(w, a);
        struct errand e = {.w = w, .a = a, .b = b, .which = i & 1};
        in_threads(&e, 1, on_its_stack);
        model_move(b.m, a.m, n);
        if (!e.which) expect(w, "read", (long)(e.result >> 1), (long)(digest(a.m, n) >> 1));
        verify(w, b);
        verify(w, a);
    }
    put(w, a), put(w, b);
}

static void threads_on_the_same_pages(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), c = get(w, n);
    struct errand e[4];
    in(w, a);
    copy_all(b, a);
    for (int i = 0; i < 3; i++) e[i] = (struct errand){.w = w, .a = i == 2 ? a : b, .which = i};
    in_threads(e, 3, reads_all);
    for (int i = 0; i < 3; i++) expect(w, "read", (long)(e[i].result >> 1), (long)(digest(e[i].a.m, n) >> 1));
    in(w, a);
    copy_all(b, a);
    copy_all(c, b);
    for (int i = 0; i < 3; i++) e[i].a = b;
    e[3] = (struct errand){.w = w, .a = c};
    pthread_t reader;
    if (pthread_create(&reader, NULL, reads_all, e + 3)) die("pthread_create");
    in_threads(e, 3, writes_stripes);
    pthread_join(reader, NULL);
    for (size_t at = 0; at + 64 <= n; at += 64) gen(at, b.m + at, 64);
    expect(w, "read", (long)(e[3].result >> 1), (long)(digest(c.m, n) >> 1));
    verify(w, b);
    verify(w, a);
    verify(w, c);
    put(w, a), put(w, b), put(w, c);
}

static int scratch_file(void) {
    const char *dir = getenv("TMPDIR");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/consistency.XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) die(path);
    unlink(path);
    return fd;
}

static void file_to_file(W *w) {
    size_t n = opt.size;
    Buf a = get(w, n), b = get(w, n), back = get(w, n);
    int to = scratch_file();
    off_t end = 0;
    u64 s[3];
    for (int i = 0; i < 3; i++) { /* read, copy, append */
        s[i] = feed(w, CH_FILE, n);
        helper_wait(&w->feeder);
        read_all(w->in_r[CH_FILE], CH_FILE, a.p, n);
        memcpy(b.p, a.p, n);
        for (size_t done = 0; done < n;) {
            ssize_t r = write(to, b.p + done, n - done);
            if (r <= 0) die("write");
            done += (size_t)r;
        }
        end += (off_t)n;
        gen(s[i], b.m, n);
    }
    expect(w, "length", lseek(to, 0, SEEK_CUR), end);
    lseek(to, 0, SEEK_SET);
    for (int i = 0; i < 3; i++) {
        read_all(to, CH_PIPE, back.p, n);
        gen(s[i], back.m, n);
        verify(w, back);
    }
    /* the file it was read from changes: what was read does not */
    read_all(w->in_r[CH_FILE], CH_FILE, a.p, n);
    gen(s[2], a.m, n);
    copy_all(b, a);
    feed(w, CH_FILE, n);
    helper_wait(&w->feeder);
    verify(w, b);
    verify(w, a);
    /* and the file it was written to does not change with the buffer */
    copy_all(b, a);
    if (pwrite(to, b.p, n, 0) != (ssize_t)n) die("pwrite");
    scribble(w, b);
    scribble(w, a);
    read_all(to, CH_FILE, back.p, n);
    gen(s[2], back.m, n);
    verify(w, back);
    close(to);
    put(w, a), put(w, b), put(w, back);
}

static void written_after_sent(W *w) { /* what was sent is not changed by writing to its buffer before it is read */
    size_t n = SMALL;
    Buf a = get(w, n), b = get(w, n);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("socketpair");
    for (int i = 0; i < 3; i++) {
        Buf got = get(w, n);
        in(w, a);
        copy_all(b, a);
        model_move(got.m, b.m, n);
        expect(w, "send", send(pair[0], b.p, n, 0), (long)n);
        scribble(w, b);
        if (i == 1) in(w, a);
        if (i == 2) scribble(w, a);
        expect(w, "recv", take(pair[1], got.p, n, MSG_WAITALL), (long)n);
        verify(w, got);
        verify(w, b);
        verify(w, a);
        put(w, got);
    }
    close(pair[0]), close(pair[1]);
    put(w, a), put(w, b);
}

static void locked_memory(W *w) {
    size_t n = SMALL;
    Buf a = get_mapped(w, n, MAP_PRIVATE), b = get_mapped(w, n, MAP_PRIVATE);
    if (mlock(a.base, a.mapped)) say(w, " unlocked");
    in(w, a);
    copy_all(b, a);
    munlock(a.base, a.mapped);
    if (mlock(b.base, b.mapped)) say(w, " unlocked"); /* a view is locked */
    touch_some(w, a);
    verify(w, b);
    verify(w, a);
    munlock(b.base, b.mapped);
    put(w, a), put(w, b);
}

static void random_steps(W *w) { /* what the list above forgets */
    enum { BUFFERS = 5, STEPS = 60 };
    size_t n = opt.size;
    Buf b[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) b[i] = get(w, n), scribble(w, b[i]);
    for (int i = 0; i < STEPS; i++) {
        size_t x = below(w, BUFFERS), y = below(w, BUFFERS), len = between(w, 1, draw(w) & 1 ? n : n / 16);
        size_t from = below(w, n - len + 1), to = below(w, n - len + 1);
        switch (below(w, 12)) {
        case 0: case 1: case 2: in_at(w, b[x], to, len); break;
        case 3: case 4: case 5: case 6:
            memmove(b[x].p + to, b[y].p + from, len);
            model_move(b[x].m + to, b[y].m + from, len);
            break;
        case 7: scribble_at(w, b[x], to, least(len, 9000)); break;
        case 8: see(w, part(b[x], from, least(len, 9000))); break;
        case 9: case 10: out(w, part(b[x], from, len)); break;
        default: {
            u8 *m = b[x].m; /* free and have anew */
            put(w, b[x]);
            u8 *next = w->model_next;
            b[x] = get(w, n);
            w->model_next = next, b[x].m = m;
            if (draw(w) & 1) scribble(w, b[x]);
            else in(w, b[x]);
        }
        }
    }
    for (int i = 0; i < BUFFERS; i++) verify(w, b[i]);
    for (int i = 0; i < BUFFERS; i++) put(w, b[i]);
}

#define CASE(f) {#f, f}
static const struct {
    const char *name;
    void (*run)(W *);
} cases[] = {
    CASE(write_source_after_copy), CASE(write_copy), CASE(write_both), CASE(free_original_and_reuse),
    CASE(receive_again_into_same_buffer), CASE(receive_into_part_of_old_views), CASE(send_copy_after_writing_original),
    CASE(overlapping_destinations), CASE(chains), CASE(memmove_overlapping), CASE(copy_of_part_of_copy),
    CASE(copy_in_pieces), CASE(partly_read_partly_written_source), CASE(copy_around_untracked),
    CASE(other_copy_functions), CASE(realloc_copies), CASE(calloc_is_zero), CASE(map_again_is_zero),
    CASE(mremap_moves_data), CASE(madvise_dontneed), CASE(mprotect_then_use), CASE(own_sigsegv_handler),
    CASE(single_bytes), CASE(memset_part), CASE(memcmp_and_search), CASE(fork_sees_all), CASE(exec_cat),
    CASE(writev_of_views_and_others), CASE(iov_max), CASE(peek_then_recv), CASE(short_reads_keep_the_rest),
    CASE(waitall), CASE(zero_lengths), CASE(errors_are_the_kernels), CASE(datagrams), CASE(ancillary_data),
    CASE(raw_system_calls), CASE(kernels_other_ways), CASE(vmsplice_then_unmap), CASE(shared_mappings),
    CASE(file_mappings), CASE(static_arrays), CASE(stack_arrays), CASE(threads_that_exit),
    CASE(threads_on_the_same_pages), CASE(file_to_file), CASE(written_after_sent), CASE(locked_memory),
    CASE(random_steps),
};
#define CASES (int)(sizeof cases / sizeof *cases)

/* ---- the signal handler that works with memory while all goes on ---- */

#define HANDLED ((size_t)32768)
static __thread u8 handled_source[HANDLED + 16], handled_copy[HANDLED + 16];
static __thread u64 handled_turn;
static __thread int handled_fd = -1;
static volatile sig_atomic_t handled_wrong;

static void on_alarm(int sig) {
    (void)sig;
    int saved = errno, fd = handled_fd;
    if (fd >= 0) {
        u64 s = mix(++handled_turn);
        size_t n = HANDLED - (s & 1023);
        gen(s, handled_source, n);
        if (pwrite(fd, handled_source, n, 0) != (ssize_t)n) handled_wrong = 1;
        if (pread(fd, handled_source + 7, n, 0) != (ssize_t)n) handled_wrong = 2;
        memcpy(handled_copy, handled_source + 7, n);
        handled_source[50]++;
        if (pwrite(fd, handled_copy, n, 100) != (ssize_t)n) handled_wrong = 3;
        u64 want = digest(handled_copy, n);
        if (pread(fd, handled_source, n, 100) != (ssize_t)n || digest(handled_source, n) != want) handled_wrong = 4;
        gen(s, handled_source, n);
        if (differ(handled_source, handled_copy, n) < n) handled_wrong = 5;
    }
    errno = saved;
}

/* ---- the frame ---- */

static void tcp_pair(int *r, int *w) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &len))
        die("listen on loopback");
    *w = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*w < 0 || connect(*w, (struct sockaddr *)&at, len)) die("connect");
    *r = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (*r < 0) die("accept");
    setsockopt(*w, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listener);
}

static void channels(int r[CHANNELS], int w[CHANNELS]) {
    int v[2], big = 1 << 20;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, v)) die("socketpair");
    setsockopt(v[1], SOL_SOCKET, SO_SNDBUF, &big, sizeof big);
    r[CH_UNIX] = v[0], w[CH_UNIX] = v[1];
    if (pipe2(v, O_CLOEXEC)) die("pipe");
    r[CH_PIPE] = v[0], w[CH_PIPE] = v[1];
    tcp_pair(&r[CH_TCP], &w[CH_TCP]);
    w[CH_FILE] = scratch_file();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", w[CH_FILE]);
    r[CH_FILE] = open(path, O_RDONLY | O_CLOEXEC);
    if (r[CH_FILE] < 0) die(path);
}

static void *worker_main(void *arg) {
    W *w = arg;
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    handled_fd = scratch_file();
    if (opt.signals) pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    for (w->round = 0; w->round < opt.rounds; w->round++) {
        for (int c = 0; c < CASES; c++) {
            if (opt.only && strcmp(opt.only, cases[c].name)) continue;
            w->name = cases[c].name;
            w->rng = mix(opt.seed ^ mix((u64)w->id << 40 ^ (u64)w->round << 16 ^ (u64)c));
            w->in_turn = (unsigned)draw(w), w->out_turn = (unsigned)draw(w), w->offset_turn = (unsigned)draw(w);
            w->streams = 0;
            w->model_next = w->models;
            say(w, "thread %d round %d %s:", w->id, w->round, w->name);
            cases[c].run(w);
            say(w, "\n");
        }
    }
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    return NULL;
}

static void worker_start(W *w, int id) {
    size_t room = 32 * (opt.size + 65536);
    w->id = id;
    w->models = w->model_next = map_pages(room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    w->models_end = w->models + room;
    channels(w->in_r, w->in_w);
    channels(w->out_r, w->out_w);
    helper_start(&w->feeder, 0);
    helper_start(&w->drainer, 1);
    if (pthread_create(&w->thread, NULL, worker_main, w)) die("pthread_create");
}

static void usage(const char *problem) {
    fprintf(stderr,
            "consistency: %s\nusage: consistency [--threads N] [--align page|odd|congruent] [--size BYTES] [--rounds N] "
            "[--seed N] [--case NAME] [--list] [--no-signals]\n",
            problem);
    exit(2);
}

static u64 number(const char *s, u64 lowest, u64 highest) {
    char *end;
    errno = 0;
    u64 n = strtoull(s, &end, 0);
    if (errno || end == s || *end || n < lowest || n > highest) usage("a number is missing or out of range");
    return n;
}

static void options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(o, "--list")) {
            for (int c = 0; c < CASES; c++) puts(cases[c].name);
            exit(0);
        }
        if (!strcmp(o, "--no-signals")) {
            opt.signals = 0;
            continue;
        }
        i++;
        if (!strcmp(o, "--threads")) opt.threads = (int)number(v, 1, MAX_THREADS);
        else if (!strcmp(o, "--size")) opt.size = (size_t)number(v, 65536, 1u << 28);
        else if (!strcmp(o, "--rounds")) opt.rounds = (int)number(v, 1, 1000000);
        else if (!strcmp(o, "--seed")) opt.seed = number(v, 0, UINT64_MAX);
        else if (!strcmp(o, "--case")) opt.only = v;
        else if (!strcmp(o, "--align") && !strcmp(v, "page")) opt.align = AT_PAGE;
        else if (!strcmp(o, "--align") && !strcmp(v, "odd")) opt.align = AT_ODD;
        else if (!strcmp(o, "--align") && !strcmp(v, "congruent")) opt.align = AT_SAME;
        else usage(o);
    }
    if (opt.only) {
        int c = 0;
        while (c < CASES && strcmp(opt.only, cases[c].name)) c++;
        if (c == CASES) usage("no such case; see --list");
    }
}

int main(int argc, char **argv) {
    static W workers[MAX_THREADS];
    options(argc, argv);
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarms, NULL); /* only the workers take it */
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &act, NULL);
    struct sigaction segv = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &segv, NULL);
    for (int i = 0; i < opt.threads; i++) worker_start(workers + i, i);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    if (opt.signals) setitimer(ITIMER_REAL, &every, NULL);
    int bad = 0;
    for (int i = 0; i < opt.threads; i++) pthread_join(workers[i].thread, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    for (int i = 0; i < opt.threads; i++) {
        W *w = workers + i;
        helper_stop(&w->feeder);
        helper_stop(&w->drainer);
        fwrite(w->log, 1, w->log_len, stdout);
        bad |= w->wrong;
        free(w->log);
    }
    if (handled_wrong) printf("WRONG in the signal handler: step %d\n", (int)handled_wrong), bad = 1;
    printf("%s\n", bad ? "FAILED" : "ok");
    return bad || fflush(stdout) ? 1 : 0;
}
