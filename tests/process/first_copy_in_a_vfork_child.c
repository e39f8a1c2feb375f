/* The first copy that could be elided is made by a child of vfork, then by a process that shares memory: a thread made there would end
 * with it, and nobody would answer its parent's faults. */
#include "process.h"

static char *from, *to;
static int copies(void *unused) {
    (void)unused;
    memcpy(to, from, SIZE);
    return 0;
}

int main(void) {
    alarm(10);
    from = fresh(SIZE), to = fresh(SIZE);
    char *stack = fresh(1 << 20);
    receive(from, SIZE, 1);
    int status, pid = vfork();
    if (pid == 0) {
        memcpy(to, from, SIZE);
        _exit(0);
    }
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT_INPUT(to, SIZE, 1);
    EXPECT_INPUT(from, SIZE, 1);
    pid = clone(copies, stack + (1 << 20), CLONE_VM | SIGCHLD, NULL);
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT_INPUT(to, SIZE, 1);
    /* In the process itself it is elided still. */
    receive(from, SIZE, 2);
    ELIDED_COPY(to, from, SIZE);
    EXPECT_INPUT(to, SIZE, 2);
    return 0;
}
