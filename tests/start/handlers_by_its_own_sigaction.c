/* A runtime that wants to see every handler that is installed: it defines `sigaction` and its
 * second name itself, and asks for the next one by either. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>

static int (*next)(int, const struct sigaction *, struct sigaction *);
static int installed;
static volatile int handled;

int sigaction(int signal, const struct sigaction *new, struct sigaction *old) {
    installed++;
    return next(signal, new, old);
}
int __sigaction(int, const struct sigaction *, struct sigaction *)
    __attribute__((alias("sigaction"), copy(sigaction)));

static void handle(int signal) {
    (void)signal;
    handled++;
}

int main(void) {
    static const char *const NAMES[] = {"sigaction", "__sigaction"};
    for (int i = 0; i < 2; i++) {
        next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, NAMES[i]);
        struct sigaction new = {.sa_handler = handle};
        if (!next || sigaction(SIGUSR1, &new, NULL) || signal(SIGUSR2, handle) == SIG_ERR) return 1;
        raise(SIGUSR1), raise(SIGUSR2);
        printf("by %s: %d installed, %d handled\n", NAMES[i], installed, handled);
    }
    return 0;
}
