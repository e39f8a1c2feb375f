/* Large blocks that were locked (mlock, mlockall, by calls that no library sees) and freed: the memory of later blocks is zeros where calloc
 * says so, and is not locked. */
#include "process.h"
#include <malloc.h>
#include <sys/resource.h>

#define BIG (96ul << 20) /* more than is kept for later blocks */

static long locked_kilobytes(void) {
    char line[200];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    MUST(f);
    while (fgets(line, sizeof line, f)) sscanf(line, "VmLck: %ld kB", &n);
    fclose(f);
    return n;
}

static void used(char *p, size_t n) {
    for (size_t i = 0; i < n; i += PAGE) memset(p + i, 0x5a, 64);
}

static int zeros(const char *p, size_t n) {
    for (size_t i = 0; i < n; i += PAGE)
        if (p[i] || p[i + 63]) {
            say("WRONG: byte %zu of calloc's block is %02x", i, (unsigned char)p[i]);
            return 0;
        }
    return 1;
}

/* Blocks of several sizes, all from calloc. */
static void all_zeros(const char *when) {
    char *blocks[12];
    int ok = 1;
    for (int k = 0; k < 12; k++) {
        size_t n = k % 2 ? BIG / 24 : BIG;
        blocks[k] = calloc(1, n);
        MUST(blocks[k]);
        ok &= zeros(blocks[k], n);
    }
    for (int k = 0; k < 12; k++) free(blocks[k]);
    say("%s: calloc's blocks are zeros: %d", when, ok);
    if (!ok) exit(1);
}

static int by_libc(char *p, size_t n) { return mlock(p, n); }
static int by_libc2(char *p, size_t n) { return mlock2(p, n, 1 /* MLOCK_ONFAULT */); }
static int by_number(char *p, size_t n) { return (int)syscall(SYS_mlock, p, n); }
static int unseen(char *p, size_t n) { return (int)RAW(SYS_mlock, p, n, 0); }

static void lock_and_free(const char *name, int (*lock)(char *, size_t)) {
    for (int k = 0; k < 3; k++) {
        char *p = malloc(BIG);
        MUST(p);
        used(p, BIG);
        MUST(lock(p, 1 << 20) == 0);
        free(p);
    }
    all_zeros(name);
    if (lock != unseen) say("%s: locked: %ld kB", name, locked_kilobytes());
}

int main(void) {
    /* (Large blocks are mappings of their own plainly, whatever came before.) */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    char *v = VIEW(1);
    lock_and_free("mlock", by_libc);
    lock_and_free("mlock2", by_libc2);
    lock_and_free("mlock by number", by_number);

    /* A block that holds a view, locked. */
    char *from = malloc(SIZE), *to = malloc(SIZE);
    receive(from, SIZE, 2);
    ELIDED_COPY(to, from, SIZE);
    MUST(mlock(to, SIZE) == 0);
    EXPECT_INPUT(to, SIZE, 2);
    free(to);
    to = calloc(1, SIZE);
    EXPECT_FILLED(to, SIZE, 0);
    say("locked: %ld kB", locked_kilobytes());
    free(from);
    free(to);

    /* A lock counts only as long as its memory is there. */
    pid_t child = fork();
    if (child == 0) {
        struct rlimit r = {8 << 20, 8 << 20};
        MUST(setrlimit(RLIMIT_MEMLOCK, &r) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        for (size_t i = 1; i <= 12; i++) {
            size_t n = i * (256 << 10);
            char *p = malloc(n);
            MUST(p && mlock(p, n) == 0);
            free(p);
        }
        say("all were locked");
        _exit(0);
    }
    wait_for("limited", child);

    static const int ways[] = {MCL_CURRENT, MCL_CURRENT | MCL_FUTURE};
    for (int way = 0; way < 2; way++) {
        child = fork();
        if (child == 0) {
            char *before[4];
            for (int i = 0; i < 4; i++) {
                MUST((before[i] = malloc(BIG / 3)));
                used(before[i], BIG / 3);
            }
            MUST(mlockall(ways[way]) == 0);
            long others = locked_kilobytes() - 4 * (long)(BIG / 3 >> 10);
            for (int i = 0; i < 4; i++) free(before[i]);
            say("%d: freed: %d", way, locked_kilobytes() <= others);
            for (int i = 0; i < 4; i++) {
                char *p = calloc(1, BIG / 3);
                MUST(p && zeros(p, BIG / 3));
                used(p, BIG / 3);
                p = realloc(p, BIG / 2);
                MUST(p);
                free(p);
            }
            say("%d: freed again: %d", way, locked_kilobytes() <= others + 64);
            EXPECT_INPUT(v, SIZE, 1);
            _exit(0);
        }
        wait_for("locker", child);
    }
    lock_and_free("mlock, unseen", unseen);
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
