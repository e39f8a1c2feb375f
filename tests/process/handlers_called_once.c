/* SA_RESETHAND: after the handler has begun the action is the default one, with the flags and the mask that were given; also of signals
 * that come while copies are being elided, and of a handler that is installed again from inside itself. */
#include "process.h"

static struct sigaction inside;
static volatile int handled, again;
static struct sigaction act;

static void handler(int signal) {
    sigaction(signal, NULL, &inside);
    if (again) sigaction(signal, &act, NULL);
    handled++;
}

static void shown(const char *what, const struct sigaction *a) {
    say("%s: default %d, flags %x, masks SIGUSR2 %d, SIGHUP %d", what, a->sa_handler == SIG_DFL, (unsigned)a->sa_flags,
        sigismember(&a->sa_mask, SIGUSR2), sigismember(&a->sa_mask, SIGHUP));
}

static void fires(int signal, int flags) {
    struct sigaction now;
    act.sa_flags = (int)SA_RESETHAND | flags;
    sigemptyset(&act.sa_mask);
    sigaddset(&act.sa_mask, SIGUSR2);
    say("signal %d, flags %x", signal, flags);
    MUST(sigaction(signal, &act, NULL) == 0);
    raise(signal);
    shown("inside", &inside);
    MUST(sigaction(signal, NULL, &now) == 0);
    shown("afterwards", &now);
    pid_t child = fork();
    if (child == 0) raise(signal), _exit(0);
    wait_for("once more", child);
    act.sa_flags = 0;
    MUST(sigaction(signal, &act, &now) == 0);
    shown("before the next", &now);
    MUST(sigaction(signal, &act, &now) == 0 && now.sa_handler == handler);
}

/* One after the other: the kernel itself would end the process by one that comes while the first is being delivered. */
static void *sends(void *to) {
    for (int i = 0; i < 3000; i++) {
        pthread_kill(*(pthread_t *)to, SIGUSR1);
        while (handled == i) sched_yield();
    }
    return NULL;
}

int main(void) {
    act.sa_handler = handler;
    for (int turn = 0; turn < 2; turn++) {
        const int signals[] = {SIGUSR1, SIGALRM, SIGSEGV, SIGQUIT};
        for (int i = 0; i < 4; i++) fires(signals[i], 0), fires(signals[i], SA_NODEFER), fires(signals[i], SA_SIGINFO);
        if (turn == 0) VIEW(1);
    }
    /* While the tracker works. */
    char *x = fresh(SIZE), *y = fresh(SIZE);
    receive(x, SIZE, 2);
    ELIDED_COPY(y, x, SIZE);
    again = 1;
    act.sa_flags = (int)SA_RESETHAND | SA_RESTART;
    MUST(sigaction(SIGUSR1, &act, NULL) == 0);
    handled = 0;
    pthread_t self = pthread_self(), sender;
    MUST(pthread_create(&sender, NULL, sends, &self) == 0);
    while (handled < 3000)
        for (int k = 0; k < 20; k++) memcpy(y, x, SIZE);
    pthread_join(sender, NULL);
    EXPECT_INPUT(y, SIZE, 2);
    return finish();
}
