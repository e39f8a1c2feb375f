/* process_vm_readv and process_vm_writev from another process, into and out of memory that holds views. */
#include "process.h"

static int ready[2], done[2];

int main(void) {
    char *v = VIEW(1), *w = VIEW(2);
    MUST(pipe(ready) == 0 && pipe(done) == 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        char *got = calloc(1, SIZE), *other = malloc(SIZE), mark;
        MUST(read(ready[0], &mark, 1) == 1);
        struct iovec mine = {got, SIZE}, theirs = {v, SIZE};
        if (process_vm_readv(parent, &mine, 1, &theirs, 1, 0) != (ssize_t)SIZE) _exit(2);
        if (!is_input(got, SIZE, 1, 0)) _exit(3);
        fill(other, SIZE, 3, 0);
        struct iovec out = {other, SIZE / 2}, into = {w + PAGE + 100, SIZE / 2};
        if (process_vm_writev(parent, &out, 1, &into, 1, 0) != (ssize_t)SIZE / 2) _exit(4);
        MUST(write(done[1], "d", 1) == 1);
        _exit(0);
    }
    char mark;
    MUST(write(ready[1], "r", 1) == 1 && read(done[0], &mark, 1) == 1);
    wait_for("child", child);
    EXPECT_INPUT(w, PAGE + 100, 2);
    EXPECT_INPUT(w + PAGE + 100, SIZE / 2, 3);
    EXPECT_INPUT_FROM(w + PAGE + 100 + SIZE / 2, SIZE / 2 - PAGE - 100, 2, PAGE + 100 + SIZE / 2);
    EXPECT_INPUT(v, SIZE, 1);
    /* Into and out of itself. */
    char *x = VIEW(4), *y = VIEW(5);
    struct iovec from = {x + 9, SIZE - 9}, to = {y, SIZE - 9};
    MUST(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == (ssize_t)SIZE - 9);
    EXPECT_INPUT_FROM(y, SIZE - 9, 4, 9);
    return finish();
}
