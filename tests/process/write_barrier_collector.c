/* A garbage collector: it protects pages against writing and learns by SIGSEGV which ones the program writes to, on memory that also
 * receives input and holds views. */
#include "process.h"

enum { PAGES = 256 };
static char *heap;
static volatile unsigned char dirty[PAGES];

static void barrier(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    size_t page = (size_t)((char *)info->si_addr - heap) / PAGE;
    if (page >= PAGES || dirty[page]) _exit(44);
    dirty[page] = 1;
    if (mprotect(heap + page * PAGE, PAGE, PROT_READ | PROT_WRITE) != 0) _exit(45);
}

static int dirty_pages(void) {
    int n = 0;
    for (int i = 0; i < PAGES; i++) n += dirty[i];
    return n;
}

static void collect(void) {
    memset((void *)dirty, 0, sizeof dirty);
    MUST(mprotect(heap, PAGES * PAGE, PROT_READ) == 0);
}

int main(void) {
    struct sigaction act = {.sa_sigaction = barrier, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGSEGV, &act, NULL) == 0);
    heap = fresh(PAGES * PAGE);
    char *from = VIEW(1);
    for (unsigned round = 0; round < 4; round++) {
        /* The nursery gets views, from outside and within. */
        if (round) MUST(mprotect(heap, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
        ELIDED_COPY(heap + 10 * PAGE, from, SIZE);
        receive(heap + 100 * PAGE, SIZE / 2, 10 + round);
        ELIDED_COPY(heap + 150 * PAGE + 7, heap + 100 * PAGE, SIZE / 2);
        collect();
        EXPECT_INPUT(heap + 10 * PAGE, SIZE, 1);
        EXPECT_INPUT(heap + 150 * PAGE + 7, SIZE / 2, 10 + round);
        say("read only: %d dirty", dirty_pages());
        heap[12 * PAGE + 1] = 'w';
        heap[12 * PAGE + 2] = 'w';
        heap[160 * PAGE] = 'w';
        say("two pages written: %d dirty", dirty_pages());
        /* A system call into a protected page fails as ever, and raises no signal. */
        int pair[2];
        MUST(pipe(pair) == 0 && RAW(SYS_write, pair[1], "abc", 3) == 3);
        ssize_t got = read(pair[0], heap + 20 * PAGE, 3);
        say("read into protected: %zd %s", got, got < 0 ? strerror(errno) : "");
        close(pair[0]);
        close(pair[1]);
        memcpy(heap + 200 * PAGE, from, 20 * PAGE); /* a copy into protected pages: the barrier sees each */
        say("twenty pages copied: %d dirty", dirty_pages());
        EXPECT_INPUT(heap + 200 * PAGE, 20 * PAGE, 1);
        EXPECT_INPUT(heap + 100 * PAGE, SIZE / 2, 10 + round);
        show("heap", heap, PAGES * PAGE);
    }
    return finish();
}
