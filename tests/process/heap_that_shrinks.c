/* The heap grown and shrunk by brk and sbrk with views on it, and malloc_trim: what is grown again is zeros. */
#include "process.h"
#include <malloc.h>

int main(void) {
    free(malloc(100)); /* what libc itself allocates (dlsym does) comes from below */
    elided_copies();
    for (unsigned round = 0; round < 5; round++) {
        char *heap = sbrk(0);
        heap = (char *)(((uintptr_t)heap + PAGE - 1) & ~(PAGE - 1));
        MUST(brk(heap + 3 * SIZE) == 0);
        char *kept = fresh(SIZE);
        receive(heap, SIZE, round);
        memset(heap + SIZE, 1, 2 * SIZE);
        ELIDED_COPY(heap + SIZE, heap, SIZE);
        ELIDED_COPY(heap + 2 * SIZE + 5, heap + SIZE, SIZE - 5);
        ELIDED_COPY(kept, heap + SIZE, SIZE);
        if (round % 2) MUST(sbrk(-(intptr_t)(SIZE + SIZE / 2)) != (void *)-1);
        else MUST(brk(heap + SIZE + SIZE / 2) == 0);
        EXPECT_INPUT(heap + SIZE, SIZE / 2, round);
        MUST(brk(heap + 3 * SIZE) == 0);
        EXPECT_FILLED(heap + SIZE + SIZE / 2, SIZE + SIZE / 2, 0);
        EXPECT_INPUT(heap, SIZE, round);
        EXPECT_INPUT(kept, SIZE, round);
        if (round % 2) {
            MUST(raw(SYS_brk, (long)heap, 0, 0, 0, 0, 0) == (long)heap); /* past libc */
            MUST(raw(SYS_brk, (long)(heap + 3 * SIZE), 0, 0, 0, 0, 0) == (long)(heap + 3 * SIZE));
            EXPECT_FILLED(heap, SIZE, 0);
        }
        MUST(brk(heap) == 0);
    }
    /* malloc on the heap: trimmed at its top and within. */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    for (unsigned round = 0; round < 4; round++) {
        char *block[10];
        for (int i = 0; i < 10; i++) {
            block[i] = malloc(SIZE);
            memset(block[i], 1, SIZE);
        }
        receive(block[1], SIZE, round);
        for (int i = 2; i < 10; i++) {
            char *from = VIEW((unsigned)i);
            ELIDED_COPY(block[i], from, SIZE);
            munmap(from, SIZE);
        }
        free(block[3]), free(block[4]), free(block[8]), free(block[9]);
        malloc_trim(0);
        EXPECT_INPUT(block[1], SIZE, round);
        EXPECT_INPUT(block[7], SIZE, 7);
        char *zeros = calloc(SIZE, 2);
        EXPECT_FILLED(zeros, SIZE * 2, 0);
        EXPECT_INPUT(block[2], SIZE, 2);
        EXPECT_INPUT(block[5], SIZE, 5);
        for (int i = 0; i < 10; i++)
            if (i != 3 && i != 4 && i < 8) free(block[i]);
        free(zeros);
        malloc_trim(0);
    }
    return finish();
}
