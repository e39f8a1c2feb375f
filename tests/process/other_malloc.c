/* A server's use of malloc, with whatever allocator is linked or preloaded: blocks of many sizes that receive, grow, are copied, sent,
 * freed by other threads and given out again; fresh zeros where calloc promises them. */
#include "process.h"
#include <malloc.h>

enum { BLOCKS = 24 };
static char *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static unsigned numbers[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int wrong;

static void *serves(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (int round = 0; round < 60; round++) {
        size_t n = 10000 + rand_r(&seed) % 300000;
        unsigned number = (unsigned)rand_r(&seed) % 1000;
        char *in = round % 5 == 0 ? aligned_alloc(4096, (n + 4095) & ~4095ul) : malloc(n);
        receive(in, n, number);
        char *grown = malloc(n / 2);
        memcpy(grown, in, n / 2);
        grown = realloc(grown, n + 100);
        memcpy(grown + n / 2, in + n / 2, n - n / 2);
        if (round % 3 == 0) grown = realloc(grown, n);
        if (round % 7 == 0) wrong |= !is_input(in, n, number, 0);
        if (round % 2) memset(in, 0xee, n);
        free(in);
        char *zeros = calloc(n, 1);
        wrong |= !is_filled(zeros, n, 0);
        pthread_mutex_lock(&lock);
        unsigned slot = (unsigned)rand_r(&seed) % BLOCKS;
        char *old = blocks[slot];
        size_t old_size = sizes[slot];
        unsigned old_number = numbers[slot];
        blocks[slot] = grown, sizes[slot] = n, numbers[slot] = number;
        pthread_mutex_unlock(&lock);
        if (old) {
            if (round % 2) memcpy(zeros, old, old_size < n ? old_size : n);
            if (round % 2) wrong |= !is_input(zeros, old_size < n ? old_size : n, old_number, 0);
            wrong |= !is_input(old, old_size, old_number, 0);
        }
        free(old); /* of another thread, mostly */
        free(zeros);
    }
    return NULL;
}

int main(void) {
    /* Elided into a block of this allocator, freed and taken again. */
    for (unsigned i = 0; i < 10; i++) {
        char *from = malloc(SIZE), *to = malloc(SIZE);
        receive(from, SIZE, i);
        ELIDED_COPY(to, from, SIZE);
        free(from);
        from = malloc(SIZE);
        memset(from, 0x77, SIZE);
        if (i % 2) EXPECT_INPUT(to, SIZE, i);
        send_on("block", to, SIZE);
        free(to);
        free(from);
    }
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, serves, (void *)(i + 1)) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i]) wrong |= !is_input(blocks[i], sizes[i], numbers[i], 0), free(blocks[i]);
    malloc_trim(0);
    say("wrong: %d", wrong);
    if (wrong) return 1;
    return finish();
}
