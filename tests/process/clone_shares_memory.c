/* clone with CLONE_VM (a thread or helper process without pthread): both sides touch and write the same views. */
#include "process.h"

static char *v, *w;

static int shares(void *unused) {
    (void)unused;
    for (size_t at = 0; at < SIZE; at += PAGE * 2) v[at] = 'c'; /* writes to every other page */
    if (!is_input(w, SIZE, 2, 0)) return 1;
    return 11;
}

int main(void) {
    int flags[] = {CLONE_VM | SIGCHLD, CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD, CLONE_VM | CLONE_VFORK | SIGCHLD};
    for (int round = 0; round < 3; round++) {
        v = VIEW(1);
        w = VIEW(2);
        char *stack = fresh(SIZE);
        pid_t child = clone(shares, stack + SIZE, flags[round], NULL);
        for (size_t at = PAGE; at < SIZE; at += PAGE * 2) v[at] = 'p';
        wait_for("shares memory", child);
        for (size_t at = 0; at < SIZE; at += PAGE) {
            if (v[at] != (at / PAGE % 2 ? 'p' : 'c')) say("WRONG: page %zu", at / PAGE);
            if (!is_input(v + at + 1, PAGE - 1, 1, at + 1)) return 1;
        }
        EXPECT_INPUT(w, SIZE, 2);
    }
    return finish();
}
