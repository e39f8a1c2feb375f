/* libc's clone without CLONE_VM, the system call by number, clone3, and _Fork: the child has every byte and can write on. */
#include "process.h"
#include <linux/sched.h>

static char *v, *origin;

static int copies(void *unused) {
    (void)unused;
    if (!is_input(v, SIZE, 1, 0)) return 1;
    v[5] = 'x';
    receive(origin, SIZE, 3);
    char *mine = fresh(SIZE);
    memcpy(mine, origin, SIZE);
    return is_input(mine, SIZE, 3, 0) && is_input(origin, SIZE, 3, 0) ? 12 : 1;
}

int main(void) {
    origin = fresh(SIZE);
    v = fresh(SIZE);
    for (int round = 0; round < 4; round++) {
        receive(origin, SIZE, 1);
        memset(v, 0, SIZE); /* no longer shared with the last child */
        ELIDED_COPY(v, origin, SIZE);
        MUST_BE_UNMAPPED(v + SIZE / 2);
        pid_t child;
        switch (round) {
        case 0: child = clone(copies, fresh(SIZE) + SIZE, SIGCHLD, NULL); break;
        case 1: child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); break;
        case 2: {
            struct clone_args args = {.exit_signal = SIGCHLD};
            child = (pid_t)syscall(SYS_clone3, &args, sizeof args);
            break;
        }
        default: child = _Fork();
        }
        if (child == 0) _exit(copies(NULL));
        EXPECT_INPUT(v, SIZE, 1);
        wait_for("copies memory", child);
        EXPECT_INPUT(origin, SIZE, 1);
    }
    return finish();
}
