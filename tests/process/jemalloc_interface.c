/* jemalloc's own interface on blocks of malloc, and the other way round: sizes, alignment, zeros, growing in place and elsewhere, ends. */
#include "process.h"
#include <malloc.h>

void *mallocx(size_t n, int flags);
void *rallocx(void *p, size_t n, int flags);
size_t xallocx(void *p, size_t n, size_t extra, int flags);
size_t sallocx(const void *p, int flags);
void dallocx(void *p, int flags);
void sdallocx(void *p, size_t n, int flags);
size_t nallocx(size_t n, int flags);
int mallctl(const char *name, void *old, size_t *old_length, void *new, size_t new_length);

enum { ZERO = 64 };
static int aligned_by(size_t bytes) { return __builtin_ctzl(bytes); }

static void sizes_and_alignment(size_t n, int flags, size_t alignment) {
    char *p = mallocx(n, flags);
    MUST(p && (uintptr_t)p % alignment == 0);
    MUST(sallocx(p, 0) >= n && sallocx(p, 0) == nallocx(n, flags) && sallocx(p, 0) == malloc_usable_size(p));
    if (flags & ZERO) MUST(is_filled(p, sallocx(p, 0), 0));
    memset(p, 0x5a, sallocx(p, 0));
    sdallocx(p, n, flags);
}

/* Grows and shrinks, by every way; what it holds must stay. */
static void grows(char *p, unsigned number) {
    size_t n = SIZE;
    receive(p, n, number);
    for (size_t next = SIZE + 5000; next < 6 * SIZE; next += next / 3) {
        size_t before = sallocx(p, 0);
        size_t now = xallocx(p, next, number % 3 * 10000, ZERO);
        MUST(now == sallocx(p, 0) && now >= before);
        if (now < next) {
            char *grown = number % 2 ? rallocx(p, next, ZERO) : realloc(p, next);
            MUST(grown);
            if (number % 2) MUST(is_filled(grown + now, sallocx(grown, 0) - now, 0));
            p = grown;
        }
        MUST(sallocx(p, 0) >= next);
        EXPECT_INPUT(p, n, number);
        memset(p + n, 0x77, sallocx(p, 0) - n);
    }
    p = rallocx(p, 100, 0);
    MUST(p && sallocx(p, 0) >= 100);
    EXPECT_INPUT(p, 100, number);
    dallocx(p, 0);
}

int main(void) {
    const char *version;
    size_t length = sizeof version;
    MUST(mallctl("version", &version, &length, NULL, 0) == 0);
    for (size_t n = 100; n < 4 * SIZE; n += n / 2)
        for (size_t alignment = 16; alignment <= 16 * PAGE; alignment *= 8)
            for (int zero = 0; zero <= ZERO; zero += ZERO)
                sizes_and_alignment(n, aligned_by(alignment) | zero, alignment);
    for (unsigned i = 0; i < 12; i++) {
        char *from = i % 2 ? malloc(SIZE) : mallocx(SIZE, 0), *to = i % 3 ? malloc(SIZE) : mallocx(SIZE, 0);
        receive(from, SIZE, i);
        ELIDED_COPY(to, from, SIZE);
        /* (Blocks end by any call.) */
        if (i % 4 == 0) free(from);
        else if (i % 4 == 1) dallocx(from, 0);
        else sdallocx(from, SIZE, 0);
        send_on("block", to, SIZE);
        grows(i % 2 ? malloc(SIZE) : mallocx(SIZE, 0), i);
        EXPECT_INPUT(to, SIZE, i);
        grows(to, i + 100);
    }
    unsigned arena;
    length = sizeof arena;
    MUST(mallctl("arenas.create", &arena, &length, NULL, 0) == 0);
    char *there = mallocx(SIZE, (int)(arena + 1) << 20);
    MUST(there);
    memset(there, 1, SIZE);
    char name[64];
    snprintf(name, sizeof name, "arena.%u.destroy", arena);
    /* An arena of the program's own ends with its blocks. */
    MUST(mallctl(name, NULL, NULL, NULL, 0) == 0);
    return finish();
}
