/* The bytes of one buffer never show in another, nor where zeros are promised, however often pages are
 * recycled.
 *
 * Secrets (messages whose bytes are known) are received, copied and freed all the time. In between fresh memory of every kind is looked
 * at: calloc, mmap, a mapping over another, a dropped range, the heap's end, a new thread's stack, a grown mapping: all zeros. And short
 * messages are received into buffers that hold something else: behind the message that must still be there, in memory and in what is sent.
 *
 *   recycled_pages [--seed N] [--rounds N] */
#include "../stress/stress.h"

#define LARGEST (512 << 10)
#define SLOTS 12

static uint64_t seed;

static void zeros(const char *at, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (at[i]) die("NOT ZERO: byte %zu of %s is %02x; seed %llu", i, what, (unsigned char)at[i], (unsigned long long)seed);
}

/* A message comes in, is copied about, and stays where it is until its slot is used again. */
static char *slots[SLOTS];

static void secret(Random *r, Channel *c, uint64_t message)
{
    size_t n = LARGEST / (1 + below(r, 6)), at = below(r, 4096);
    char *a = malloc(LARGEST + 4096), *b = malloc(LARGEST + 4096);
    receive(c, a + at, n, message, (unsigned)next(r));
    memcpy(b + below(r, 2) * at, a + at, n);
    char **slot = &slots[below(r, SLOTS)];
    free(*slot);
    *slot = b;
    free(a);
}

static void *fresh_stack(void *unused)
{
    (void)unused;
    /* Below what this thread has used of its stack. */
    char *here = __builtin_frame_address(0);
    zeros(here - (256 << 10), 200 << 10, "a new thread's stack");
    return 0;
}

static void look(Random *r)
{
    size_t n = 4096 * (1 + below(r, 100)) + below(r, 4096);
    char *p = calloc(1, n);
    zeros(p, n, "calloc");
    free(p);
    p = calloc(n / 8, 8);
    zeros(p, n / 8 * 8, "calloc of many");
    free(p);
    p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    zeros(p, n, "mmap");
    p = mremap(p, n, 2 * n, MREMAP_MAYMOVE);
    zeros(p, 2 * n, "a grown mapping");
    munmap(p, 2 * n);
    p = realloc(0, 100);
    free(p);
}

static void over(Random *r, Channel *c, uint64_t message)
{
    size_t n = 65536 * (1 + below(r, 4));
    char *p = mmap(0, 2 * n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *q = mmap(0, 2 * n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    receive(c, p, 2 * n, message, (unsigned)next(r));
    memcpy(q, p, 2 * n);
    if (mmap(q, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != q) die("mmap over");
    zeros(q, n, "a mapping over another");
    madvise(q + n, n, MADV_DONTNEED);
    zeros(q + n, n, "a dropped range");
    munmap(p, 2 * n);
    munmap(q, 2 * n);
    char *end = sbrk(0);
    if (sbrk(65536) == end) {
        zeros(end, 65536, "the heap's end");
        sbrk(-65536);
    }
}

/* A short message into a buffer that is longer, on pages that were somebody's. */
static void short_message(Random *r, Channel *c, uint64_t message)
{
    static char *a, *b;
    size_t whole = 128 << 10, n = whole - 1 - below(r, 9000);
    if (!a) a = aligned_alloc(4096, whole), b = aligned_alloc(4096, whole);
    receive(c, a, whole, message, (unsigned)next(r));
    memcpy(b, a, whole); /* now both are views */
    receive(c, a, n, message + 1, (unsigned)next(r));
    memcpy(b, a, n);
    for (int turn = 0; turn < 2; turn++) {
        const char *p = turn ? b : a;
        static unsigned char sent[128 << 10];
        for (size_t at = 0; at < whole;) {
            size_t k = whole - at < PIECE ? whole - at : PIECE;
            ssize_t out = write(c->in, p + at, k);
            if (out <= 0) die("write: %s", strerror(errno));
            for (ssize_t have = 0; have < out;) {
                long m = raw(SYS_read, c->out, (long)(sent + at + (size_t)have), out - have);
                if (m <= 0) die("raw read: %ld", m);
                have += m;
            }
            at += (size_t)out;
        }
        for (size_t i = 0; i < whole; i++) {
            unsigned char expected = byte_of(message + (i < n), i);
            if (sent[i] != expected) die("WRONG BYTE %zu of %zu sent of a short message; seed %llu", i, n, (unsigned long long)seed);
            if (i % 997 == 0 && (unsigned char)p[i] != expected) die("WRONG BYTE %zu of %zu of a short message; seed %llu", i, n, (unsigned long long)seed);
        }
    }
}

int main(int argc, char **argv)
{
    seed = (uint64_t)option(argc, argv, "--seed", 1);
    long rounds = option(argc, argv, "--rounds", 150);
    Random r = { seed };
    Channel c = channel();
    for (long i = 0; i < rounds; i++) {
        secret(&r, &c, (uint64_t)i * 4 + (1ull << 50));
        look(&r);
        over(&r, &c, (uint64_t)i * 4 + (2ull << 50));
        short_message(&r, &c, (uint64_t)i * 4 + (3ull << 50));
        if (i % 10 == 0) {
            /* libc gives an ended thread's stack to the next: only the first of this size is fresh. */
            pthread_attr_t attr;
            pthread_attr_init(&attr);
            pthread_attr_setstacksize(&attr, (41 << 20) + (size_t)i * 65536);
            pthread_t t;
            if (pthread_create(&t, &attr, fresh_stack, 0) || pthread_join(t, 0)) die("pthread");
        }
    }
    printf("ok: %ld rounds, seed %llu\n", rounds, (unsigned long long)seed);
    return 0;
}
