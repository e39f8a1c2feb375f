/* siginterrupt: what it says of a signal holds for the handler that is there, and for those that `signal` installs later. */
#include "process.h"

static volatile sig_atomic_t handled;
static void handler(int signal) { handled = signal; }

static void restarts(const char *when, int number) {
    struct sigaction now;
    MUST(sigaction(number, NULL, &now) == 0);
    say("%s: handler %d, restarts %d", when, now.sa_handler == handler, !!(now.sa_flags & SA_RESTART));
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
int main(void) {
    EXPECT_INPUT(VIEW(1), SIZE, 1);
    const int numbers[] = {SIGALRM, SIGSEGV, SIGABRT};
    for (int i = 0; i < 3; i++) {
        restarts("at first", numbers[i]);
        MUST(signal(numbers[i], handler) == SIG_DFL);
        restarts("signal", numbers[i]);
        MUST(siginterrupt(numbers[i], 1) == 0);
        restarts("siginterrupt 1", numbers[i]);
        MUST(signal(numbers[i], handler) == handler);
        restarts("signal after it", numbers[i]);
        MUST(siginterrupt(numbers[i], 0) == 0);
        restarts("siginterrupt 0", numbers[i]);
        MUST(signal(numbers[i], handler) == handler);
        restarts("signal after that", numbers[i]);
    }
    for (int number = -1; number <= 65; number += 33) say("%d: %d", number, siginterrupt(number, 1) == 0);
    say("SIGKILL: %d", siginterrupt(SIGKILL, 1) == 0);

    /* And calls are interrupted. */
    int empty[2];
    char byte;
    MUST(siginterrupt(SIGALRM, 1) == 0 && pipe(empty) == 0);
    MUST(signal(SIGALRM, handler) == handler);
    ualarm(50000, 0);
    ssize_t n = read(empty[0], &byte, 1);
    say("read: %zd, interrupted %d, handled %d", n, n < 0 && errno == EINTR, handled == SIGALRM);
    return finish();
}
