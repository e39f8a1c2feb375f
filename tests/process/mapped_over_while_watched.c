/* One thread maps over memory (mmap and mremap with a place that they name); another sees that this is done, before the call is back, and copies from there or
 * to there: from there come the new bytes, and what it copies to there stays. */
#define MAP_CHANGES_MEANWHILE
#include "process.h"
#include <stdatomic.h>

enum { ROUNDS = 250 };
static _Atomic(volatile unsigned char *) place;
static atomic_int done, ended;
static char *view;

/* The old mapping has input 9, or 1 in its eighth byte; the new one 0. */
static void *copies(void *copies_to) {
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    char *other = fresh(SIZE);
    while (!atomic_load(&ended)) {
        volatile unsigned char *at = atomic_exchange(&place, NULL);
        if (!at) continue;
        while (at[7] != 0) __asm__ volatile("pause");
        if (copies_to) {
            copy((void *)at, view, SIZE);
        } else {
            copy(other, (const void *)(at + PAGE), SIZE - PAGE);
            if (!is_filled(other, SIZE - PAGE, 0)) exit(1);
        }
        atomic_store(&done, 1);
    }
    MUST(munmap(other, SIZE) == 0);
    return NULL;
}

static void map_over(int copied_to, int by_mremap) {
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    pthread_t other;
    MUST(pthread_create(&other, NULL, copies, copied_to ? &done : NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        char *at = fresh(SIZE), *new = fresh(SIZE);
        memset(at, 1, SIZE);
        memset(new, 0, SIZE);
        if (!copied_to) copy(at, view, SIZE);
        atomic_store(&done, 0);
        atomic_store(&place, (volatile unsigned char *)at);
        for (int i = 0; i < round % 7 * 500; i++) __asm__ volatile("pause");
        if (by_mremap) {
            MUST(mremap(new, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
        } else {
            MUST(mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
            MUST(munmap(new, SIZE) == 0);
        }
        while (!atomic_load(&done)) sched_yield();
        if (copied_to && !is_input(at, SIZE, 9, 0)) say("round %d", round), exit(1);
        MUST(munmap(at, SIZE) == 0);
    }
    atomic_store(&ended, 1);
    MUST(pthread_join(other, NULL) == 0);
    atomic_store(&ended, 0);
}

int main(void) {
    view = VIEW(9);
    MUST((unsigned char)view[7] != 0);
    for (int way = 0; way < 4; way++) map_over(way & 1, way >> 1);
    return finish();
}
