/* A child made by libc's clone() without CLONE_VM goes on without uncopy: it may unmap, protect, move, advise and free what its
 * parent's copies were elided into, and its own children are its own business. */
#include "process.h"

enum { UNMAP, PROTECT, MOVE, ADVISE, CALLOC, FREE, FORK, CASES };
static char *view;
static int what;

static int child(void *unused) {
    (void)unused;
    switch (what) {
    case UNMAP: MUST(munmap(view, SIZE) == 0); break;
    case PROTECT: MUST(mprotect(view, SIZE, PROT_READ) == 0 && is_input(view, SIZE, 1, 0)); break;
    case MOVE: MUST((view = mremap(view, SIZE, 2 * SIZE, MREMAP_MAYMOVE)) != MAP_FAILED && is_input(view, SIZE, 1, 0)); break;
    case ADVISE: MUST(madvise(view, SIZE, MADV_WIPEONFORK) == 0); break;
    case CALLOC: {
        char *zeros = calloc(1, SIZE);
        for (size_t i = 0; i < SIZE; i++) MUST(zeros[i] == 0);
        break;
    }
    case FREE: free(view); break;
    case FORK: {
        int status, pid = fork();
        if (pid == 0) _exit(is_input(view, SIZE, 1, 0) ? 0 : 1);
        MUST(waitpid(pid, &status, 0) == pid && status == 0);
    }
    }
    say("child %d is done", what);
    return 7;
}

int main(void) {
    for (what = 0; what < CASES; what++) {
        char *from = fresh(SIZE), *stack = fresh(1 << 20);
        receive(from, SIZE, 1);
        view = what == CALLOC || what == FREE ? malloc(SIZE) : fresh(SIZE);
        memset(view, 1, SIZE);
        ELIDED_COPY(view, from, SIZE);
        if (what == CALLOC) free(view);
        int status = 0, pid = clone(child, stack + (1 << 20), SIGCHLD, NULL);
        MUST(pid > 0);
        for (int waited = 0; waitpid(pid, &status, WNOHANG) == 0; waited++) {
            if (waited == 500) {
                kill(pid, SIGKILL);
                say("child %d hangs", what);
                break;
            }
            usleep(10000);
        }
        say("child %d: %x", what, status);
        EXPECT_INPUT(from, SIZE, 1);
    }
    return 0;
}
