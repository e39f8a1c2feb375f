/* Buffers that are views are filled with zeros before the next input, as C++ and Python do: the zeros are there, what lies beside
 * them stays, and no page of it comes back before it is touched. */
#include "process.h"
#include <pthread.h>

static void *(*volatile set)(void *, int, size_t) = memset;
extern void *__memset_chk(void *, int, size_t, size_t);

static char *from, *to;

static void *half(void *at) {
    for (int i = 0; i < 50; i++) {
        set(at, 0, SIZE / 2);
        if (!is_filled(at, SIZE / 2, 0)) say("WRONG: a thread's half");
    }
    return NULL;
}

int main(void) {
    from = fresh(SIZE), to = fresh(SIZE);
    receive(from, SIZE, 1);
    /* From within a page to within another. */
    ELIDED_COPY(to, from, SIZE);
    MUST(set(to + 5000, 0, SIZE - 9000) == to + 5000);
    if (eager() && !page_missing(to + 9 * PAGE)) say("NOT UNMAPPED");
    EXPECT_INPUT(to, 5000, 1);
    EXPECT_FILLED(to + 5000, SIZE - 9000, 0);
    EXPECT_INPUT_FROM(to + SIZE - 4000, 4000, 1, SIZE - 4000);
    /* All of it, and again while it is empty; then the next input. */
    for (unsigned i = 2; i < 6; i++) {
        ELIDED_COPY(to, from, SIZE);
        set(to, 0, SIZE);
        __memset_chk(to, 0, SIZE, SIZE);
        if (i % 2) EXPECT_FILLED(to, SIZE, 0);
        receive(to, SIZE, i);
        EXPECT_INPUT(to, SIZE, i);
    }
    /* Sent on, copied on, and seen by a child, without having been touched. */
    ELIDED_COPY(to, from, SIZE);
    set(to, 0, SIZE);
    send_on("zeros", to, SIZE);
    char *other = fresh(SIZE);
    memcpy(other, to, SIZE);
    EXPECT_FILLED(other, SIZE, 0);
    ELIDED_COPY(to, from, SIZE);
    set(to, 0, SIZE);
    pid_t child = fork();
    if (!child) _exit(!is_filled(to, SIZE, 0));
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    EXPECT_FILLED(to, SIZE, 0);
    /* Other bytes, and too few zeros for a page. */
    ELIDED_COPY(to, from, SIZE);
    set(to, 7, SIZE / 2);
    set(to + SIZE / 2, 0, 100);
    EXPECT_FILLED(to, SIZE / 2, 7);
    EXPECT_FILLED(to + SIZE / 2, 100, 0);
    EXPECT_INPUT_FROM(to + SIZE / 2 + 100, SIZE / 2 - 100, 1, SIZE / 2 + 100);
    /* Two threads side by side. */
    ELIDED_COPY(to, from, SIZE);
    pthread_t two;
    MUST(!pthread_create(&two, NULL, half, to));
    half(to + SIZE / 2);
    MUST(!pthread_join(two, NULL));
    EXPECT_INPUT(from, SIZE, 1);
    return finish();
}
