/* Calls that would unmap views are refused, while another thread reads them: munmap of a range with a sealed end, shmat to an
 * address that is none. The views stay there, at every moment. */
#include "process.h"
#include <sys/shm.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

static char *volatile shared;
static volatile int wrong, readers;

static void *reads(void *unused) {
    (void)unused;
    char *last = NULL;
    for (;;) {
        char *v = shared;
        if (v == (char *)1) return NULL;
        if (!v || v == last) continue;
        last = v;
        unsigned number = *(volatile unsigned *)(v + SIZE);
        for (size_t at = 5; at < SIZE; at += PAGE)
            if (((volatile unsigned char *)v)[at] != input_byte(number, at)) wrong++;
        readers++;
    }
}

int main(void) {
    int segment = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
    MUST(segment >= 0);
    pthread_t reader;
    MUST(pthread_create(&reader, NULL, reads, NULL) == 0);
    for (unsigned round = 0; round < 200; round++) {
        char *v = fresh(SIZE + PAGE), *from = fresh(SIZE);
        receive(from, SIZE, round);
        *(unsigned *)(v + SIZE) = round;
        ELIDED_COPY(v, from, SIZE);
        int use_seal = round % 2 && raw(SYS_mseal, (long)v + (long)SIZE, PAGE, 0, 0, 0, 0) == 0;
        int before = readers;
        shared = v;
        while (readers == before) {
            if (use_seal)
                MUST(munmap(v, SIZE + PAGE) == -1);
            else
                MUST(shmat(segment, v + 1, SHM_REMAP) == (void *)-1);
            /* (A fault waits for a change of the memory map that is under way.) */
            usleep(20);
        }
        if (!is_input(v, SIZE, round, 0)) exit(1);
        munmap(v, SIZE), munmap(from, SIZE);
    }
    shared = (char *)1;
    pthread_join(reader, NULL);
    shmctl(segment, IPC_RMID, NULL);
    say("refused: what the other thread read was wrong %d times", wrong);
    return finish();
}
