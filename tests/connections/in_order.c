/* What a program sends first is told of first: of two connections in one set, also where one is Linux' and the other at a ring, with bytes, ends, resets and new
 * connections, while the receiver waits, and where it comes late and finds both. */
#include "connection.h"

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
/* How often A is used first: hardly, or until it has its ring. */
static int uses(int by_ring) { return by_ring ? 12 : 1; }

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

static void client(int b, int action, int by_ring, int a_first) {
    char byte = 'w';
    int a = connected(&at);
    for (int i = 0; i < uses(by_ring); i++) send_all(a, &byte, 1), receive_all(a, &byte, 1);
    if (action == CONNECT) close(a), a = socket(AF_UNIX, SOCK_STREAM, 0);
    wait_for(go[0]);
    if (!a_first) send_all(b, "b", 1);
    a = acts(a, action);
    if (a_first) send_all(b, "b", 1);
    wait_for(go[0]);
    if (a >= 0) close(a);
}

/* 1: A is told of first. */
static int server(int l, int b, int action, int by_ring, int late) {
    char byte;
    int a = accepted(l), set = epoll_create1(0), seen_a = 0, seen_b = 0, first = -1;
    for (int i = 0; i < uses(by_ring); i++) receive_all(a, &byte, 1), send_all(a, &byte, 1);
    /* (So that it has its ring.) */
    if (by_ring) usleep(3000);
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
            /* (What has ended is told of for ever.) */
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
    for (int action = 0; action < ACTIONS; action++)
        for (int way = 0; way < 8; way++) {
            int by_ring = way & 1, a_first = way >> 1 & 1, late = way >> 2, wrong = 0;
            for (int i = 0; i < ROUNDS; i++) {
                if (other == 0) client(b, action, by_ring, a_first);
                else wrong += server(l, b, action, by_ring, late) != a_first;
            }
            if (other == 0) continue;
            const char *ways = by_ring ? "by ring" : "by Linux", *when = late ? "late" : "waiting";
            if (wrong) say("WRONG: %s %s, %s, %s: told of in the wrong order", actions[action], ways, a_first ? "first" : "second", when);
            if (wrong && getenv("COUNT")) say("  %d of %d", wrong, ROUNDS);
            if (!wrong) say("%s %s, %s, %s: in order", actions[action], ways, a_first ? "first" : "second", when);
        }
    if (other == 0) _exit(0);
    other_ends();
    if (under_tcp() && counter("tcp_receives") == 0) say("NOT BY RINGS");
    return 0;
}
