/* A runtime that wants to see every handler that is installed (the Erlang emulator) defines
 * `sigaction` and its second name itself, and asks for the next one by either name: each call of
 * the program's comes to its function once, none of libc's (`signal`) does, and handlers run. */
#include "process.h"

static int (*next)(int, const struct sigaction *, struct sigaction *);
static int installed;

int sigaction(int signal, const struct sigaction *new, struct sigaction *old) {
    installed++;
    return next(signal, new, old);
}
int __sigaction(int, const struct sigaction *, struct sigaction *) __attribute__((alias("sigaction"), copy(sigaction)));

static volatile int handled;
static void handle(int signal) {
    (void)signal;
    handled++;
}

int main(void) {
    static const char *const NAMES[] = {"sigaction", "__sigaction"};
    char *from = fresh(SIZE), *to = fresh(SIZE);
    for (unsigned i = 0; i < 2; i++) {
        next = dlsym(RTLD_NEXT, NAMES[i]);
        MUST(next);
        struct sigaction new = {.sa_handler = handle}, old;
        MUST(!sigaction(SIGUSR1, &new, NULL) && !__sigaction(SIGUSR1, NULL, &old) && old.sa_handler == handle);
        MUST(signal(SIGUSR2, handle) != SIG_ERR);
        receive(from, SIZE, i);
        ELIDED_COPY(to, from, SIZE);
        MUST(!raise(SIGUSR1) && !raise(SIGUSR2));
        EXPECT_INPUT(to, SIZE, i);
        say("by %s: %d installed, %d handled", NAMES[i], installed, handled);
    }
    return finish();
}
