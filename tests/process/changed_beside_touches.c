/* Memory is dropped, or moved, while another thread touches what lies beside it, or where it arrives: the kernel's reports of the one
 * and faults of the other come together, and both must be heeded in the order that leaves each byte right. */
#include "process.h"
#include <stdatomic.h>

#define HALF (SIZE / 2)
enum { ROUNDS = 1200 };
static _Atomic(char *) touched, watched;
static atomic_int looked, ended;

/* Touches, page after page, the first half of what it is given; then it is given the next. */
static void *touches(void *unused) {
    (void)unused;
    while (!atomic_load(&ended)) {
        char *at = atomic_exchange(&touched, NULL);
        if (!at) continue;
        for (size_t i = 0; i < HALF; i += PAGE)
            if ((unsigned char)at[i] != input_byte(9, i)) say("WRONG: a page that was touched in order"), exit(1);
        atomic_store(&looked, 1);
    }
    return NULL;
}

/* Looks at one byte of each page of what it is given until that is what `view` holds there. */
static void *watches(void *unused) {
    (void)unused;
    while (!atomic_load(&ended)) {
        volatile char *at = atomic_exchange(&watched, NULL);
        if (!at) continue;
        for (size_t i = 5; i < SIZE; i += PAGE)
            for (unsigned char seen = 1; seen != input_byte(9, i);) {
                seen = (unsigned char)at[i];
                if (seen != 1 && seen != input_byte(9, i)) say("WRONG: %02x, neither old nor new", seen), exit(1);
            }
        atomic_store(&looked, 1);
    }
    return NULL;
}

static void moved_while_watched(char *view) {
    pthread_t other;
    MUST(pthread_create(&other, NULL, watches, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        char *mine = fresh(SIZE), *there = fresh(SIZE);
        memcpy(mine, view, SIZE);
        memset(there, 1, SIZE);
        atomic_store(&looked, 0);
        atomic_store(&watched, there);
        for (int i = 0; i < round * 37 % 1000; i++) __asm__ volatile("pause");
        MUST(mremap(mine, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
        while (!atomic_load(&looked)) sched_yield();
        MUST(munmap(there, SIZE) == 0);
    }
    atomic_store(&ended, 1);
    MUST(pthread_join(other, NULL) == 0);
    atomic_store(&ended, 0);
}

static void dropped_beside_touched(char *view) {
    pthread_t other;
    MUST(pthread_create(&other, NULL, touches, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        char *mine = fresh(SIZE);
        memcpy(mine, view, SIZE);
        atomic_store(&looked, 0);
        atomic_store(&touched, mine);
        for (int i = 0; i < round * 37 % 4000; i++) __asm__ volatile("pause");
        MUST(madvise(mine + HALF, HALF, MADV_DONTNEED) == 0);
        if (!is_filled(mine + HALF, HALF, 0)) say("round %d: what was dropped came back", round), exit(1);
        while (!atomic_load(&looked)) sched_yield();
        MUST(munmap(mine, SIZE) == 0);
    }
    atomic_store(&ended, 1);
    MUST(pthread_join(other, NULL) == 0);
    atomic_store(&ended, 0);
}

int main(void) {
    char *view = VIEW(9);
    moved_while_watched(view);
    dropped_beside_touched(view);
    return finish();
}
