/* A program that wraps libc's free and realloc, by the names that libc has for them: each of its own calls comes to its wrapper once, and no other. */
#include "process.h"

void __libc_free(void *);
void *__libc_realloc(void *, size_t);

static int frees, reallocs;

void free(void *p) {
    frees++;
    __libc_free(p);
}

void *realloc(void *p, size_t n) {
    reallocs++;
    return __libc_realloc(p, n);
}

int main(void) {
    char *source = malloc(SIZE);
    int counted = 0;
    for (unsigned i = 0; i < 20; i++) {
        receive(source, SIZE, i);
        char *copy = malloc(SIZE), *small = malloc(100);
        ELIDED_COPY(copy, source, SIZE);
        int before = frees + 1000 * reallocs;
        copy = realloc(copy, 2 * SIZE);
        small = realloc(small, 300);
        small = realloc(small, SIZE);
        small = realloc(small, 10);
        counted += frees + 1000 * reallocs - before;
        MUST(copy && small);
        if (!is_input(copy, SIZE, i, 0)) return 1;
        before = frees;
        free(copy);
        free(small);
        counted += frees - before;
    }
    say("%d frees, %d reallocs", counted % 1000, counted / 1000);
    free(source);
    return finish();
}
