/* Memory that a program has unmapped stays free until it maps something: it may rely on that, and map there again. Nothing of ours takes the
 * place, while our own memory grows, threads fault and children are made. */
#include "process.h"

enum { HOLES = 256, HOLE = 256 << 10, COPIES = 12000, COPY = 16 << 10 };

static char *gaps;
static const int FREE = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;

static char *map(size_t n, int access) {
    char *p = mmap(NULL, n, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}

static void look(const char *when) {
    int taken = 0;
    for (int i = 0; i < HOLES; i++) {
        char *hole = gaps + (size_t)i * 2 * HOLE;
        /* (By number: no library sees what comes and goes here.) */
        long at = raw(SYS_mmap, (long)hole, HOLE, PROT_NONE, FREE, -1, 0);
        if (at == (long)hole)
            RAW(SYS_munmap, hole, HOLE, 0);
        else
            taken++;
    }
    if (taken)
        say("WRONG: %d of %d holes are taken, %s", taken, HOLES, when);
    else
        say("all holes are free, %s", when);
}

int main(void) {
    char *from = map(COPY, PROT_READ | PROT_WRITE), *to = map((size_t)2 * COPY * COPIES, PROT_READ | PROT_WRITE);
    fill(from, COPY, 0, 0);
    char *view = VIEW(3); /* (So libc's own memory is there.) */
    gaps = map((size_t)HOLES * 2 * HOLE, PROT_NONE);
    for (int i = 0; i < HOLES; i++) MUST(munmap(gaps + (size_t)i * 2 * HOLE, HOLE) == 0);
    look("at first");
    receive(from, COPY, 1);
    /* (Apart from each other: each is a view of its own in our books.) */
    for (int i = 0; i < COPIES; i++) ELIDED_COPY(to + (size_t)i * 2 * COPY, from, COPY);
    look("after many elided copies");
    pid_t child = fork();
    if (child == 0) {
        EXPECT_INPUT(to, COPY, 1);
        receive(from, COPY, 2);
        for (int i = 1; i < COPIES; i++) ELIDED_COPY(to + (size_t)i * 2 * COPY, from, COPY);
        look("in a child");
        _exit(0);
    }
    wait_for("the child", child);
    look("at the end");
    EXPECT_INPUT(view, SIZE, 3);
    EXPECT_INPUT(to + (size_t)2 * COPY * (COPIES - 1), COPY, 1);
    return finish();
}
