/* A program that brings its own memcpy: exported (it stands before everybody's), and static ones in C and assembly. */
#include "process.h"
#pragma GCC optimize("no-tree-loop-distribute-patterns")

__attribute__((noinline)) static void *copies_words(void *dst, const void *src, size_t n) {
    volatile uint64_t *d = dst;
    const volatile uint64_t *s = src;
    for (size_t i = 0; i < n / 8; i++) d[i] = s[i];
    for (size_t i = n & ~7ul; i < n; i++) ((volatile char *)dst)[i] = ((const volatile char *)src)[i];
    return dst;
}
static void copies_string(void *dst, const void *src, size_t n) {
    __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
}

/* The program's own, also for the libraries that it loads. */
void *memcpy(void *restrict dst, const void *restrict src, size_t n) { return copies_words(dst, src, n); }

int main(void) {
    /* memmove is still libc's: views come from there. */
    void *(*volatile move)(void *, const void *, size_t) = memmove;
    char *from = fresh(SIZE), *v = fresh(SIZE), *to = fresh(SIZE);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t before = elided_copies();
        receive(from, SIZE, round);
        move(v, from, SIZE);
        if (counters() && elided_copies() != before) elided_here++;
        if (eager() && elided_copies() == before) say("NOT ELIDED");
        MUST_BE_UNMAPPED(v + SIZE / 2);
        if (round == 0) memcpy(to, v, SIZE);          /* out of views */
        if (round == 1) copies_string(to, v, SIZE);
        if (round == 2) copies_words(to + 3, v, SIZE - 3);
        EXPECT_INPUT(to + (round == 2 ? 3 : 0), SIZE - 3, round);
        receive(from, SIZE, 10 + round);
        move(v, from, SIZE);
        if (round == 0) memcpy(v + 5, to, SIZE / 2);  /* into views */
        if (round == 1) copies_string(v + 5, to, SIZE / 2);
        if (round == 2) copies_words(v + 5, to + 3, SIZE / 2);
        EXPECT_INPUT(v, 5, 10 + round);
        EXPECT_INPUT(v + 5, SIZE / 2, round);
        EXPECT_INPUT_FROM(v + 5 + SIZE / 2, SIZE / 2 - 5, 10 + round, SIZE / 2 + 5);
        EXPECT_INPUT(from, SIZE, 10 + round);
    }
    return finish();
}
