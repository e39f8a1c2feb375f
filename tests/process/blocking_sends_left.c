/* A blocking send (which may go by reference) is left in the middle: by longjmp out of a handler, which saves no mask, and by
 * pthread_cancel. Nothing stays behind: SIGPIPE is not blocked, the socket not corked. Handlers and cleanup handlers find the masks that they
 * should, and a send that is interrupted by a handler that returns, again and again, goes on with every byte right. */
#include "process.h"
#include <sys/time.h>

#define N (900ul << 10)
#define WAYS 2
#define JUMPS 3 /* (each leaves one of eight pipes behind: docs/limitations.md) */
static int out, in;
static char *value;
static jmp_buf back;
static volatile int jumps, ticks, blocked_in_handler, wrong;
static volatile size_t want, have;

static int sigpipe_blocked(void) {
    sigset_t set;
    MUST(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
    return sigismember(&set, SIGPIPE);
}
static void on_alarm(int signal) {
    (void)signal;
    ticks++;
    blocked_in_handler += sigpipe_blocked();
    if (jumps) longjmp(back, 1);
}
static void install(int blocks_sigpipe) {
    struct sigaction a = {.sa_handler = on_alarm, .sa_flags = SA_NODEFER | SA_RESTART};
    if (blocks_sigpipe) sigaddset(&a.sa_mask, SIGPIPE);
    MUST(sigaction(SIGALRM, &a, NULL) == 0);
}
static void every(long us, long again) {
    struct itimerval t = {{0, again}, {0, us}};
    MUST(setitimer(ITIMER_REAL, &t, NULL) == 0);
}
static void others_take_no_signals(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

/* Reads what was announced; the value again and again, while `checked`. */
static int checked;
static void *drain(void *arg) {
    static char got[1 << 16];
    others_take_no_signals();
    while (have < want) {
        size_t most = want - have < sizeof got ? want - have : sizeof got, left = N - have % N;
        long n = RAW(SYS_read, in, got, most < left ? most : left);
        if (n <= 0) break;
        if (checked && !is_input(got, (size_t)n, 5, have % N)) wrong = 1;
        have += (size_t)n;
    }
    return arg;
}
static void send_whole(int flags) {
    for (size_t s = 0; s < N;) {
        ssize_t n = send(out, value + s, N - s, flags);
        MUST(n > 0);
        s += (size_t)n;
    }
}
static void exchange(unsigned rounds, int flags) {
    pthread_t t;
    have = 0, want = rounds * N, checked = 1;
    MUST(pthread_create(&t, NULL, drain, NULL) == 0);
    for (unsigned i = 0; i < rounds; i++) send_whole(flags);
    pthread_join(t, NULL);
    if (wrong) exit(1);
}
static void empty(void) {
    static char got[1 << 16];
    while (recv(in, got, sizeof got, MSG_DONTWAIT) > 0) {}
    usleep(1000);
    while (recv(in, got, sizeof got, MSG_DONTWAIT) > 0) {}
}
static void renew(int way) {
    if (out) close(out), close(in);
    if (way == 0) {
        tcp_pair(&out, &in, "reno");
    } else {
        int s[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
        out = s[0], in = s[1];
    }
}
static void state(const char *after) {
    int cork = 0;
    socklen_t len = sizeof cork;
    getsockopt(out, IPPROTO_TCP, TCP_CORK, &cork, &len);
    say("%s: SIGPIPE blocked: %d, corked: %d, blocked in the handler: %d", after, sigpipe_blocked(), cork, blocked_in_handler > 0);
    blocked_in_handler = 0;
}

static volatile int cleaned_blocked, cleaned_corked, cancel_first, asked;
static void cleanup(void *arg) {
    (void)arg;
    int cork = 0;
    socklen_t len = sizeof cork;
    getsockopt(out, IPPROTO_TCP, TCP_CORK, &cork, &len);
    cleaned_blocked = sigpipe_blocked();
    cleaned_corked = cork;
}
static void *sends_for_ever(void *arg) {
    sigset_t set;
    others_take_no_signals();
    sigemptyset(&set), sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    pthread_cleanup_push(cleanup, NULL);
    /* Cancelled before it sends: it ends where its send first waits, not in the middle of what is prepared for that. */
    if (cancel_first) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        while (!asked) RAW(SYS_sched_yield, 0, 0, 0);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    }
    for (;;) send_whole(MSG_NOSIGNAL);
    pthread_cleanup_pop(0);
    return arg;
}

int main(void) {
    value = VIEW_OF(5, N);
    for (int way = 0; way < WAYS; way++) {
        const char *name = way ? "unix" : "tcp";
        int small = 65536;
        renew(way);
        exchange(8, 0); /* by reference from here on */
        for (volatile int round = 0; round < JUMPS; round++) {
            install(round & 1);
            jumps = 1;
            if (setjmp(back) == 0) {
                every(20000, 0);
                for (;;) send_whole(round < 2 ? MSG_NOSIGNAL : 0);
            }
            char after[40];
            snprintf(after, sizeof after, "%s, jump %d", name, round);
            state(after);
            sigset_t set;
            sigemptyset(&set), sigaddset(&set, SIGPIPE);
            sigprocmask(SIG_UNBLOCK, &set, NULL); /* (of the handler's own mask) */
            empty();
        }
        /* Handlers that return: nothing is lost, sent twice, or sent otherwise. */
        jumps = 0, ticks = 0;
        install(0);
        renew(way);
        setsockopt(out, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        every(300, 300);
        exchange(20, MSG_NOSIGNAL);
        every(0, 0);
        say("%s: interrupted: %d", name, ticks > 3);
        state("after that");
        for (int round = 0; round < 10; round++) {
            pthread_t t;
            renew(way);
            cancel_first = round % 2, asked = 0;
            MUST(pthread_create(&t, NULL, sends_for_ever, NULL) == 0);
            usleep(10000);
            MUST(pthread_cancel(t) == 0);
            asked = 1;
            MUST(pthread_join(t, NULL) == 0);
            if (cleaned_blocked || cleaned_corked || round == 9)
                say("%s, cancelled: SIGPIPE blocked: %d, corked: %d", name, cleaned_blocked, cleaned_corked);
        }
        renew(way);
        uint64_t lent = counter("lent_sends");
        exchange(3, MSG_NOSIGNAL);
        /* (Each thread that was cancelled had a pipe of ours.) */
        if (eager() && counter("lent_sends") == lent) say("NOTHING ELIDED by reference");
    }
    return finish();
}
