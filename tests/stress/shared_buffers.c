/* Threads that share buffers: input, copies, writes, output, frees, while other threads fork and signals arrive.
 *
 * Every buffer has a shadow that says what it must hold, and a lock. A forked child verifies every byte of every buffer that no
 * thread was changing while fork copied the memory, goes on working with them, verifies again, and forks itself.
 *
 * fork copies memory from the lowest address to the highest while the other threads run. So each buffer has two counts, one at the
 * lowest address (static data of a non-PIE program) and one at the highest (the first thread's stack), both odd while it is
 * being changed: where the child finds the same even number in both, nothing happened to the buffer in between.
 *
 *   --seed N --seconds N --threads N --forkers N --signals 0|1 --buffers N */
#include "stress.h"

#define BUFFERS 64
#define LARGEST (384 << 10)

enum kind { HEAP, MAPPED, STATIC, KINDS };

typedef struct {
    pthread_mutex_t lock;
    char *at;
    unsigned char *shadow;
    size_t size;
    enum kind kind;
    int index;
} Buffer;

static _Atomic unsigned long low[BUFFERS]; /* see above */
static _Atomic unsigned long *high;
static Buffer buffers[BUFFERS];
static char arrays[4][LARGEST + 4096];
static int count;
static uint64_t seed;
static double end;
static _Atomic uint64_t messages;
static _Atomic long operations, forks, verified;
static _Atomic int working;

static void begin(Buffer *b)
{
    atomic_fetch_add(&low[b->index], 1);
    atomic_fetch_add(&high[b->index], 1);
}

static void done(Buffer *b)
{
    atomic_fetch_add(&low[b->index], 1);
    atomic_fetch_add(&high[b->index], 1);
}

static void verify(Buffer *b, size_t from, size_t n, const char *when)
{
    const unsigned char *at = (const unsigned char *)b->at;
    for (size_t i = from; i < from + n; i++) {
        unsigned char is = at[i];
        if (is != b->shadow[i])
            die("WRONG BYTE %s: buffer %d (kind %d, %p, %zu bytes), byte %zu is %02x, not %02x, now %02x; pid %d, seed %llu",
                when, b->index, b->kind, (void *)b->at, b->size, i, is, b->shadow[i], at[i], getpid(), (unsigned long long)seed);
    }
    verified += (long)n;
}

/* A new piece of memory; zeros where zeros are promised. */
static void renew(Buffer *b, Random *r)
{
    int zeros = 0;
    switch (b->kind) {
    case HEAP:
        free(b->at);
        zeros = below(r, 2);
        b->at = zeros ? calloc(1, b->size) : malloc(b->size);
        if (!b->at) die("no memory");
        break;
    case MAPPED:
        zeros = 1;
        if (b->at && below(r, 2)) {
            size_t page = 4096, n = (b->size + page - 1) & ~(page - 1);
            if (madvise(b->at, n, MADV_DONTNEED)) die("madvise: %s", strerror(errno));
        } else {
            if (b->at && munmap(b->at, b->size)) die("munmap: %s", strerror(errno));
            b->at = mmap(0, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (b->at == MAP_FAILED) die("mmap: %s", strerror(errno));
        }
        break;
    default:
        return;
    }
    for (size_t i = 0; i < b->size; i++)
        if (zeros) b->shadow[i] = 0;
        else b->at[i] = (char)(b->shadow[i] = (unsigned char)i);
}

static void operate(Random *r, Channel *c, Buffer *a, Buffer *b)
{
    size_t n = below(r, 4) ? a->size - below(r, 3) * below(r, 5000) : 1 + below(r, a->size);
    size_t to = below(r, a->size - n + 1);
    if (below(r, 2)) to &= ~(size_t)63;
    begin(a);
    switch (below(r, 20)) {
    case 0: case 1: case 2: case 3: case 4: case 5: {
        uint64_t message = ++messages;
        receive(c, a->at + to, n, message, (unsigned)next(r));
        for (size_t i = 0; i < n; i++) a->shadow[to + i] = byte_of(message, i);
        break;
    }
    case 6: case 7: case 8: case 9: case 10: case 11: case 12: {
        if (n > b->size) n = b->size;
        size_t from = below(r, b->size - n + 1);
        if (below(r, 2)) memcpy(a->at + to, b->at + from, n);
        else memmove(a->at + to, b->at + from, n);
        for (size_t i = 0; i < n; i++) a->shadow[to + i] = b->shadow[from + i];
        break;
    }
    case 13: { /* within one buffer, overlapping */
        size_t from = below(r, a->size - n + 1);
        memmove(a->at + to, a->at + from, n);
        if (to < from)
            for (size_t i = 0; i < n; i++) a->shadow[to + i] = a->shadow[from + i];
        else
            for (size_t i = n; i-- > 0;) a->shadow[to + i] = a->shadow[from + i];
        break;
    }
    case 14: /* a few bytes */
        for (int i = 0; i < 20; i++) {
            size_t at = below(r, a->size);
            a->at[at] = (char)(a->shadow[at] = (unsigned char)next(r));
        }
        break;
    case 15:
        memset(a->at + to, 7, n);
        for (size_t i = 0; i < n; i++) a->shadow[to + i] = 7;
        break;
    case 16: { /* output, verified at the other end */
        unsigned char got[PIECE];
        for (size_t at = 0; at < n;) {
            size_t k = n - at < PIECE ? n - at : PIECE;
            ssize_t sent = below(r, 2) ? write(c->in, a->at + to + at, k) : send(c->in, a->at + to + at, k, 0);
            if (sent < 0 && errno == EINTR) continue;
            if (sent <= 0) die("output: %zd, %s", sent, strerror(errno));
            for (ssize_t have = 0; have < sent;) {
                long m = raw(SYS_read, c->out, (long)(got + have), sent - have);
                if (m <= 0 && m != -EINTR) die("raw read: %ld", m);
                if (m > 0) have += m;
            }
            for (ssize_t i = 0; i < sent; i++)
                if (got[i] != a->shadow[to + at + (size_t)i])
                    die("WRONG BYTE in output: buffer %d, byte %zu; seed %llu", a->index, to + at + (size_t)i, (unsigned long long)seed);
            at += (size_t)sent;
        }
        break;
    }
    case 17: renew(a, r); break;
    case 18: { /* the kernel reads and writes it, by calls that nobody looks at */
        unsigned char got[PIECE];
        uint64_t message = ++messages;
        if (n > PIECE) n = PIECE;
        if (raw(SYS_write, c->in, (long)(a->at + to), (long)n) != (long)n) die("raw write");
        for (size_t have = 0; have < n;) {
            long m = raw(SYS_read, c->out, (long)(got + have), (long)(n - have));
            if (m <= 0 && m != -EINTR) die("raw read: %ld", m);
            if (m > 0) have += (size_t)m;
        }
        for (size_t i = 0; i < n; i++) {
            if (got[i] != a->shadow[to + i])
                die("WRONG BYTE by a raw call: buffer %d, byte %zu; seed %llu", a->index, to + i, (unsigned long long)seed);
            got[i] = a->shadow[to + i] = byte_of(message, i);
        }
        if (raw(SYS_write, c->in, (long)got, (long)n) != (long)n) die("raw write");
        for (size_t have = 0; have < n;) {
            long m = raw(SYS_read, c->out, (long)(a->at + to + have), (long)(n - have));
            if (m <= 0 && m != -EINTR) die("raw read: %ld", m);
            if (m > 0) have += (size_t)m;
        }
        break;
    }
    default: verify(a, to, n, "in a buffer"); break;
    }
    done(a);
    operations++;
}

/* Takes two buffers, in their order, so that nobody waits in a circle. */
static void step(Random *r, Channel *c)
{
    Buffer *a = &buffers[below(r, (size_t)count)], *b = &buffers[below(r, (size_t)count)];
    Buffer *first = a < b ? a : b, *second = a < b ? b : a;
    pthread_mutex_lock(&first->lock);
    if (second != first) pthread_mutex_lock(&second->lock);
    if (a != b) {
        /* b is read, and (by raw calls) written with what is then put back. */
        operate(r, c, a, b);
    } else {
        size_t from = below(r, a->size);
        verify(a, from, a->size - from, "in a buffer");
    }
    if (second != first) pthread_mutex_unlock(&second->lock);
    pthread_mutex_unlock(&first->lock);
}

static void *work(void *number)
{
    Random r = { seed * 1000 + (uintptr_t)number };
    Channel c = channel();
    while (now() < end) step(&r, &c);
    close_channel(&c);
    working--;
    return 0;
}

/* In a child: everything that nobody was changing is verified, and is still a buffer like any other. */
static void live(uint64_t number, const char *where)
{
    alarm(300);
    Random r = { seed ^ (number * 0x1234567) };
    int quiet[BUFFERS], n = 0;
    for (int i = 0; i < count; i++) {
        unsigned long l = low[i], h = high[i];
        if (l != h || l & 1) continue;
        quiet[n++] = i;
        verify(&buffers[i], 0, buffers[i].size, where);
    }
    Channel c = channel();
    for (int k = 0; k < 30 && n >= 2; k++) {
        int x = (int)below(&r, (size_t)n), y = (int)below(&r, (size_t)n);
        if (x != y) operate(&r, &c, &buffers[quiet[x]], &buffers[quiet[y]]);
    }
    close_channel(&c);
    for (int i = 0; i < n; i++) verify(&buffers[quiet[i]], 0, buffers[quiet[i]].size, "at a child's end");
}

/* Its life, with a child of its own now and then. */
static void child(uint64_t number)
{
    live(number, "in a child");
    if (number % 4 == 0) {
        pid_t p = fork();
        if (!p) {
            live(number + 1, "in a grandchild");
            _exit(0);
        }
        int status;
        if (waitpid(p, &status, 0) != p || status) die("a grandchild ended with %x", status);
        live(number + 2, "in a child, after forking");
    }
    if (number % 2) _exit(0);
    exit(0);
}

static void *fork_on(void *number)
{
    Random r = { seed * 77 + (uintptr_t)number };
    while (now() < end) {
        pid_t p = fork();
        if (p < 0) {
            if (errno == EAGAIN || errno == ENOMEM) { usleep(1000); continue; }
            die("fork: %s", strerror(errno));
        }
        if (!p) child(next(&r));
        forks++;
        int status;
        while (waitpid(p, &status, 0) != p)
            if (errno != EINTR) die("waitpid: %s", strerror(errno));
        if (status) die("child %d ended with status %x (seed %llu)", p, status, (unsigned long long)seed);
        usleep((useconds_t)below(&r, 3000));
    }
    working--;
    return 0;
}

static _Atomic long handled;
static char from_handler[2][8192];

static void handler(int signal)
{
    int errno_before = errno;
    (void)signal;
    handled++;
    memcpy(from_handler[0], from_handler[1], sizeof from_handler[0]);
    /* It may look at any buffer; what it finds is somebody's business, that it comes back is ours. */
    for (int i = 0; i < count; i += 7) (void)*(volatile char *)(buffers[i].at + (buffers[i].kind == STATIC ? 5000 : 0));
    errno = errno_before;
}

int main(int argc, char **argv)
{
    _Atomic unsigned long last[BUFFERS];
    high = last;
    for (int i = 0; i < BUFFERS; i++) last[i] = 0;
    seed = (uint64_t)option(argc, argv, "--seed", 1);
    int threads = (int)option(argc, argv, "--threads", 4), forkers = (int)option(argc, argv, "--forkers", 1);
    int signals = (int)option(argc, argv, "--signals", 0);
    count = (int)option(argc, argv, "--buffers", 24);
    if (count < 2 || count > BUFFERS) die("--buffers: 2 to %d", BUFFERS);
    Random r = { seed };
    for (int i = 0; i < count; i++) {
        Buffer *b = &buffers[i];
        pthread_mutex_init(&b->lock, 0);
        b->index = i;
        b->kind = i < 4 ? STATIC : 1 + (int)below(&r, 2) == 1 ? HEAP : MAPPED;
        b->size = LARGEST / (1 + below(&r, 4)) - below(&r, 2) * below(&r, 9000);
        /* With signals the handler looks at buffers at any moment: they must stay mapped. */
        if (signals) b->kind = STATIC;
        b->at = b->kind != STATIC ? 0 : i < 4 ? arrays[i] + below(&r, 4096) : malloc(b->size);
        b->shadow = mmap(0, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t k = 0; k < b->size; k++) b->shadow[k] = 0;
        if (b->kind == STATIC)
            for (size_t k = 0; k < b->size; k++) b->at[k] = 0;
        renew(b, &r);
    }
    end = now() + (double)option(argc, argv, "--seconds", 5);
    working = threads + forkers;
    struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &act, 0);
    pthread_t t[64];
    int made = 0;
    for (intptr_t i = 0; i < threads; i++) pthread_create(&t[made++], 0, work, (void *)i);
    for (intptr_t i = 0; i < forkers; i++) pthread_create(&t[made++], 0, fork_on, (void *)i);
    while (signals && working > 0) {
        for (int i = 0; i < threads; i++) {
            if (now() < end - 0.5) pthread_kill(t[i], SIGUSR1);
            usleep(300);
        }
    }
    for (int i = 0; i < made; i++) pthread_join(t[i], 0);
    for (int i = 0; i < count; i++) verify(&buffers[i], 0, buffers[i].size, "at the end");
    printf("ok: %ld operations, %ld forks, %ld signals, %ld MB verified, seed %llu\n", (long)operations, (long)forks,
           (long)handled, (long)verified >> 20, (unsigned long long)seed);
    return 0;
}
