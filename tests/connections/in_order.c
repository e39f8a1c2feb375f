/* The first that a program sends is told of first: of two connections in one set, also where one is Linux' and the other at a ring, with bytes, ends, resets and
 * new connections, while the receiver waits, and where it comes late and finds both. In every second round the sender has just sent something else by Linux, to
 * a connection that is not in the set. */
#include "connection.h"
#include <linux/filter.h>

enum { ROUNDS = 20 };
enum { BYTE, SHUTDOWN, CLOSE, RESET, CONNECT, ACTIONS };
static const char *const actions[] = {"a byte", "an end", "a close", "a reset", "a connection"};
static int go[2];
static struct sockaddr_in at;

static void signal_to(int fd) { MUST(write(fd, "!", 1) == 1); }
static void wait_for(int fd) {
    char byte;
    MUST(read(fd, &byte, 1) == 1);
}
/* A's way: Linux, for it is hardly used; a ring; Linux for good, for it has a filter. */
enum { BY_LINUX, BY_RING, FOR_GOOD, WAYS };
static const char *const names[] = {"by Linux", "by ring", "by Linux for good"};
/* How often A is used first. */
static int uses(int by) { return by == BY_LINUX ? 1 : 12; }
static void takes_its_way(int a, int by) {
    struct sock_filter all = {.code = 0x06, .k = 0xffffffff};
    struct sock_fprog filter = {.len = 1, .filter = &all};
    if (by == FOR_GOOD) MUST(setsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
}

static int acts(int a, int action) {
    struct linger none = {.l_onoff = 1};
    switch (action) {
    case BYTE: send_all(a, "a", 1); break;
    case SHUTDOWN: MUST(shutdown(a, SHUT_WR) == 0); break;
    case RESET:
        MUST(setsockopt(a, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
        /* fallthrough */
    case CLOSE: close(a); return -1;
    case CONNECT: close(a); return connected(&at);
    }
    return a;
}

static void client(int b, int elsewhere, int action, int by, int a_first) {
    char byte = 'w';
    int a = connected(&at);
    takes_its_way(a, by);
    for (int i = 0; i < uses(by); i++) send_all(a, &byte, 1), receive_all(a, &byte, 1);
    if (action == CONNECT) close(a), a = socket(AF_UNIX, SOCK_STREAM, 0);
    wait_for(go[0]);
    if (elsewhere >= 0) send_all(elsewhere, "e", 1);
    if (!a_first) send_all(b, "b", 1);
    a = acts(a, action);
    if (a_first) send_all(b, "b", 1);
    wait_for(go[0]);
    if (a >= 0) close(a);
}

/* 1: A is told of first. */
static int server(int l, int b, int action, int by, int late) {
    char byte;
    int a = accepted(l), set = epoll_create1(0), seen_a = 0, seen_b = 0, first = -1;
    for (int i = 0; i < uses(by); i++) receive_all(a, &byte, 1), send_all(a, &byte, 1);
    /* (So that it has its ring.) */
    if (by != BY_LINUX) usleep(3000);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = b}, events[8];
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    if (action == CONNECT) close(a), a = -1;
    event.data.fd = action == CONNECT ? l : a;
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event) == 0);
    /* The set comes to rest. */
    MUST(epoll_wait(set, events, 8, 3) == 0);
    signal_to(go[1]);
    if (late) usleep(2000);
    while (!seen_a || !seen_b) {
        int n = epoll_wait(set, events, 8, 2000);
        if (n <= 0) say("WRONG: nothing is told of");
        MUST(n > 0);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == b) {
                if (!seen_b) receive_all(b, &byte, 1);
                seen_b = 1;
                if (first < 0) first = 0;
                continue;
            }
            if (first < 0) first = 1;
            seen_a = 1;
            /* (An ended connection is told of for ever.) */
            epoll_ctl(set, EPOLL_CTL_DEL, events[i].data.fd, NULL);
            if (action == CONNECT && a < 0) a = accepted(l);
        }
    }
    signal_to(go[1]);
    close(a), close(set);
    return first;
}

int main(void) {
    alarm(100);
    signal(SIGPIPE, SIG_IGN);
    MUST(pipe(go) == 0);
    int l = listener(&at);
    other = fork();
    MUST(other >= 0);
    int b = other == 0 ? connected(&at) : accepted(l);
    warm_up(b, other == 0);
    int elsewhere = other == 0 ? connected(&at) : accepted(l);
    takes_its_way(elsewhere, FOR_GOOD);
    for (int action = 0; action < ACTIONS; action++)
        for (int way = 0; way < 4 * WAYS; way++) {
            int by = way % WAYS, a_first = way / WAYS & 1, late = way / WAYS >> 1, wrong = 0;
            for (int i = 0; i < ROUNDS; i++) {
                if (other == 0) client(b, i % 2 ? elsewhere : -1, action, by, a_first);
                else wrong += server(l, b, action, by, late) != a_first;
            }
            if (other == 0) continue;
            const char *ways = names[by], *when = late ? "late" : "waiting";
            if (wrong) say("WRONG: %s %s, %s, %s: told of in the wrong order", actions[action], ways, a_first ? "first" : "second", when);
            if (wrong && getenv("COUNT")) say("  %d of %d", wrong, ROUNDS);
            if (!wrong) say("%s %s, %s, %s: in order", actions[action], ways, a_first ? "first" : "second", when);
        }
    if (other == 0) _exit(0);
    other_ends();
    if (under_tcp() && counter("tcp_receives") == 0) say("NOT BY RINGS");
    return 0;
}
