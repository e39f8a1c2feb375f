/* Signals that interrupt blocking calls on views: EINTR and SA_RESTART as ever, partial transfers, alarm, handlers that receive, copy and
 * fork themselves, and SIGCHLD handlers. */
#include "process.h"
#include <sys/time.h>

static char *v, *origin, *to;
static volatile sig_atomic_t handled, wrong, ticks;
static int pair[2];

static void works(int signal) {
    int saved = errno;
    handled++;
    receive(origin, SIZE, (unsigned)handled);
    memcpy(to, origin, SIZE);
    wrong |= !is_input(to, PAGE * 3, (unsigned)handled, 0) || !is_input(v, PAGE, 1, 0);
    if (signal == SIGCHLD)
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    errno = saved;
}
static void feeds(int signal) { /* ends the blocking call that it interrupts */
    (void)signal;
    char bytes[1000];
    fill(bytes, sizeof bytes, 50, 0);
    MUST(RAW(SYS_write, pair[1], bytes, sizeof bytes) == (long)sizeof bytes);
}
static size_t drained;
static void drains(int signal) { /* makes room for what the interrupted call has not sent */
    (void)signal;
    char bytes[4096];
    long n;
    while ((n = raw(SYS_recvfrom, pair[0], (long)bytes, sizeof bytes, MSG_DONTWAIT, 0, 0)) > 0) drained += (size_t)n;
}
static void ticks_on(int signal) {
    (void)signal;
    ticks++;
    wrong |= !is_input(v + PAGE * 40, PAGE, 1, PAGE * 40);
}

static void soon(void) {
    struct itimerval in = {.it_value = {.tv_usec = 20000}};
    MUST(setitimer(ITIMER_REAL, &in, NULL) == 0);
}
static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(signal, &act, NULL) == 0);
}

int main(void) {
    v = VIEW(1), origin = fresh(SIZE), to = fresh(SIZE);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char *into = VIEW(2);
    /* Without SA_RESTART: EINTR. */
    handle(SIGALRM, works, 0);
    soon();
    ssize_t n = recv(pair[0], into, SIZE, 0);
    say("recv: %zd %s", n, n < 0 ? strerror(errno) : "");
    soon();
    n = read(pair[0], into + PAGE, SIZE - PAGE);
    say("read: %zd %s", n, n < 0 ? strerror(errno) : "");
    EXPECT_INPUT(into, SIZE, 2);
    /* With it: goes on. */
    into = VIEW(2);
    handle(SIGALRM, feeds, SA_RESTART);
    soon();
    n = recv(pair[0], into, SIZE, 0);
    say("recv: %zd", n);
    EXPECT_INPUT(into, 1000, 50);
    EXPECT_INPUT_FROM(into + 1000, SIZE - 1000, 2, 1000);
    /* A transfer that was interrupted in its midst. */
    into = VIEW(3);
    handle(SIGALRM, works, 0);
    feeds(0);
    soon();
    n = recv(pair[0], into, SIZE, MSG_WAITALL);
    say("recv, waiting for all: %zd", n);
    EXPECT_INPUT(into, 1000, 50);
    EXPECT_INPUT_FROM(into + 1000, SIZE - 1000, 3, 1000);
    alarm(0);
    /* Output that blocks: sent in part. */
    char *out = VIEW(4), *got = fresh(SIZE * 8);
    soon();
    size_t sent = 0;
    for (int i = 0; i < 8 && (n = write(pair[1], out, SIZE)) == (ssize_t)SIZE; i++) sent += (size_t)n;
    if (n > 0) sent += (size_t)n;
    say("write: %s", n < 0 ? strerror(errno) : "in part");
    size_t received = 0;
    while ((n = recv(pair[0], got + received, SIZE, MSG_DONTWAIT)) > 0) received += (size_t)n;
    say("as much received as sent: %d", received == sent);
    for (size_t at = 0; at < received; at += SIZE)
        MUST(is_input(got + at, received - at < SIZE ? received - at : SIZE, 4, 0));
    /* Of several messages, the one that was sent in part is the last. */
    struct iovec parts[2] = {{VIEW(5), SIZE}, {VIEW(6), 1000}};
    struct mmsghdr messages[2] = {{{.msg_iov = &parts[0], .msg_iovlen = 1}, 0}, {{.msg_iov = &parts[1], .msg_iovlen = 1}, 0}};
    handle(SIGALRM, drains, 0);
    soon();
    n = sendmmsg(pair[1], messages, 2, 0);
    say("sendmmsg: %zd, the first in part: %d, of the second: %u", n, messages[0].msg_len < SIZE, messages[1].msg_len);
    drains(0);
    say("as much received as sent: %d", drained == messages[0].msg_len);
    /* Children that end at any moment. */
    handle(SIGCHLD, works, SA_RESTART | SA_NOCLDSTOP);
    for (unsigned i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        char *from = fresh(SIZE), *copy = fresh(SIZE);
        receive(from, SIZE, 100 + i);
        memcpy(copy, from, SIZE);
        MUST(is_input(copy, SIZE, 100 + i, 0));
        munmap(from, SIZE), munmap(copy, SIZE);
    }
    handle(SIGCHLD, SIG_DFL, 0);
    /* Timer signals all the time. */
    handle(SIGALRM, ticks_on, SA_RESTART);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (unsigned i = 0; i < 100 || ticks < 50; i++) {
        char *from = fresh(SIZE), *copy = fresh(SIZE);
        receive(from, SIZE, 200 + i);
        memcpy(copy, from, SIZE);
        memmove(copy + 100, copy, SIZE - 100);
        MUST(is_input(copy + 100, SIZE - 100, 200 + i, 0));
        munmap(from, SIZE), munmap(copy, SIZE);
    }
    MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
    say("wrong: %d, handled: %d", wrong, handled > 2);
    EXPECT_INPUT(v, SIZE, 1);
    if (wrong) return 1;
    return finish();
}
