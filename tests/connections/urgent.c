/* Urgent data: a byte ahead of the stream, its mark in the stream, and who is told of it: as telnet, rlogin and FTP use it. */
#include "connection.h"

static char bytes[1 << 20];
/* From who sends to who receives: all that was sent has arrived. */
static int told[2];

static void arrived(int fd) {
    int left = 1;
    while (ioctl(fd, TIOCOUTQ, &left) == 0 && left > 0) usleep(500);
    MUST(write(told[1], "t", 1) == 1);
}
static void is_told(void) {
    char byte;
    MUST(read(told[0], &byte, 1) == 1);
}
static void urge(int fd, const char *text) { MUST(send(fd, text, strlen(text), MSG_OOB) == (ssize_t)strlen(text)); }
static void put(int fd, const char *text) { send_all(fd, text, strlen(text)); }
static void got(const char *what, int fd, size_t most, int flags) {
    ssize_t n = recv(fd, bytes, most, flags);
    say("%s: %zd '%.*s' %s", what, n, n > 0 ? (int)n : 0, bytes, n < 0 ? strerror(errno) : "");
}
static void mark(int fd) {
    int at = -1, there = -1;
    MUST(ioctl(fd, SIOCATMARK, &at) == 0 && ioctl(fd, FIONREAD, &there) == 0);
    say("at the mark: %d, %d; can be read: %d", at, sockatmark(fd), there);
}
static void ready(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLPRI};
    int n = poll(&p, 1, 5000);
    say("poll: %d, in %d, urgent %d", n, (p.revents & POLLIN) != 0, (p.revents & POLLPRI) != 0);
}
/* Afterwards all is as it was, by rings. */
static void answer_all(int fd) {
    char back[100] = "a";
    send_all(fd, back, 1);
    for (int i = 0; i < 400; i++) {
        receive_all(fd, back, sizeof back);
        MUST(is(back, sizeof back, 9, (size_t)i));
        send_all(fd, back, sizeof back);
    }
    say("the end: %zd", recv(fd, back, 1, 0));
}
static void ask_all(int fd) {
    char to[100], back[100];
    receive_all(fd, back, 1);
    unsigned long before = counter("tcp_receives");
    for (int i = 0; i < 400; i++) {
        fill(to, sizeof to, 9, (size_t)i);
        send_all(fd, to, sizeof to), receive_all(fd, back, sizeof back);
        MUST(is(back, sizeof back, 9, (size_t)i));
    }
    if (under_tcp() && counter("tcp_receives") < before + 300) say("NOT BY RINGS");
    close(fd);
}

/* The byte is fetched for itself; a call stops at its mark. */
static void apart_sends(int fd) {
    put(fd, "before"), urge(fd, "abc"), urge(fd, "de"), put(fd, "on"), arrived(fd);
    ask_all(fd);
}
static void apart(int fd) {
    is_told(), ready(fd), mark(fd);
    got("up to the mark", fd, 3, 0), mark(fd), got("up to the mark", fd, 100, 0), mark(fd);
    got("looked at", fd, 1, MSG_OOB | MSG_PEEK), got("urgent", fd, 1, MSG_OOB), got("again", fd, 1, MSG_OOB);
    mark(fd), got("what follows", fd, 100, 0), mark(fd);
    answer_all(fd);
}
/* One after the other, each read before the next. */
static void alternately_sends(int fd) {
    char byte;
    for (int i = 0; i < 4; i++) put(fd, "before"), urge(fd, "!"), put(fd, "after"), arrived(fd), receive_all(fd, &byte, 1);
    ask_all(fd);
}
static void alternately(int fd) {
    for (int i = 0; i < 4; i++) {
        is_told(), ready(fd), mark(fd);
        got("up to the mark", fd, 100, 0), mark(fd), got("urgent", fd, 1, MSG_OOB), mark(fd), got("what follows", fd, 100, 0);
        mark(fd), got("nothing", fd, 100, MSG_DONTWAIT), send_all(fd, "k", 1);
    }
    answer_all(fd);
}
/* All that was asked for stops there too. */
static void all_of_it(int fd) {
    is_told(), got("all up to the mark", fd, 11, MSG_WAITALL), mark(fd), got("all", fd, 5, MSG_WAITALL), send_all(fd, "k", 1);
    for (int i = 0; i < 3; i++) is_told(), got("all up to the mark", fd, 11, MSG_WAITALL), got("all", fd, 5, MSG_WAITALL), send_all(fd, "k", 1);
    answer_all(fd);
}
/* In the stream, where it was sent. */
static void within(int fd) {
    int on = 1;
    MUST(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
    is_told(), ready(fd), mark(fd), got("urgent", fd, 1, MSG_OOB);
    got("up to the mark", fd, 100, 0), mark(fd), got("from it", fd, 100, 0), mark(fd);
    answer_all(fd);
}

/* As telnet: what lies before the mark is thrown away. */
static void discarded_sends(int fd) {
    fill(bytes, 20000, 4, 0);
    for (int i = 0; i < 4; i++) {
        send_all(fd, bytes, 20000), urge(fd, "!"), put(fd, "kept");
        char byte;
        receive_all(fd, &byte, 1);
    }
    ask_all(fd);
}
static void discarded(int fd) {
    char four[4];
    for (int i = 0; i < 4; i++) {
        size_t all = 0;
        struct pollfd p = {.fd = fd, .events = POLLPRI};
        say("told: %d", poll(&p, 1, 10000));
        while (sockatmark(fd) == 0) {
            ssize_t n = recv(fd, bytes, 999, 0);
            MUST(n > 0 && is(bytes, (size_t)n, 4, all));
            all += (size_t)n;
        }
        got("urgent", fd, 1, MSG_OOB);
        receive_all(fd, four, 4);
        say("thrown away: %zu, and then '%.4s'", all, four);
        send_all(fd, "k", 1);
    }
    answer_all(fd);
}

static volatile sig_atomic_t urged;
static void is_urged(int signal) { (void)signal, urged++; }
static void by_signal(int fd) {
    struct sigaction act = {.sa_handler = is_urged, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGURG, &act, NULL) == 0 && fcntl(fd, F_SETOWN, getpid()) == 0);
    char byte = 'r';
    for (int i = 0; i < 4; i++) {
        send_all(fd, &byte, 1);
        for (int turn = 0; turn < 5000 && urged <= i; turn++) usleep(1000);
        say("SIGURG: %d", (int)urged);
        is_told(), got("up to the mark", fd, 100, 0), got("urgent", fd, 1, MSG_OOB), got("what follows", fd, 100, 0);
    }
    /* And one that comes while it waits for bytes. */
    send_all(fd, &byte, 1);
    got("waited for", fd, 100, 0), is_told();
    while (urged < 5) usleep(1000);
    say("SIGURG: %d", (int)urged);
    answer_all(fd);
}
static void signals_sends(int fd) {
    char byte;
    for (int i = 0; i < 4; i++) receive_all(fd, &byte, 1), put(fd, "before"), urge(fd, "!"), put(fd, "after"), arrived(fd);
    receive_all(fd, &byte, 1), usleep(50000), urge(fd, "!"), usleep(50000), put(fd, "after"), arrived(fd);
    ask_all(fd);
}

/* Sets and select are told of it too. */
static void in_sets(int fd) {
    struct epoll_event level = {.events = EPOLLPRI}, edge = {.events = EPOLLIN | EPOLLPRI | EPOLLET}, event;
    int a = epoll_create1(0), b = epoll_create1(0);
    MUST(epoll_ctl(a, EPOLL_CTL_ADD, fd, &level) == 0 && epoll_ctl(b, EPOLL_CTL_ADD, fd, &edge) == 0);
    char byte = 'r';
    for (int i = 0; i < 3; i++) {
        send_all(fd, &byte, 1);
        is_told();
        memset(&event, 0, sizeof event);
        int n = epoll_wait(a, &event, 1, 5000);
        say("by level: %d %x", n, event.events);
        n = epoll_wait(a, &event, 1, 0);
        say("still: %d %x", n, event.events);
        /* (The ring's news and Linux' may be told one after the other.) */
        uint32_t all = 0;
        for (int patience = 5000; epoll_wait(b, &event, 1, patience) == 1; patience = 0) all |= event.events;
        say("by edge: %x", all);
        fd_set r, e;
        struct timeval patience = {.tv_sec = 5};
        FD_ZERO(&r);
        FD_ZERO(&e);
        FD_SET(fd, &r);
        FD_SET(fd, &e);
        n = select(fd + 1, &r, NULL, &e, &patience);
        say("select: %d, %d %d", n, FD_ISSET(fd, &r) != 0, FD_ISSET(fd, &e) != 0);
        got("up to the mark", fd, 100, 0), got("urgent", fd, 1, MSG_OOB), got("what follows", fd, 100, 0);
        say("no more: %d", epoll_wait(a, &event, 1, 0));
    }
    close(a), close(b);
    answer_all(fd);
}
static void sets_sends(int fd) {
    char byte;
    for (int i = 0; i < 3; i++) receive_all(fd, &byte, 1), put(fd, "before"), urge(fd, "!"), put(fd, "after"), arrived(fd);
    ask_all(fd);
}

/* The byte is fetched before the connection may have a ring, and more comes behind its mark, by whichever way: nothing counts or looks past that. */
static void before_a_ring(void) {
    enum { ROUNDS = 60 };
    if (!is_wanted("before a ring")) return;
    struct sockaddr_in at;
    int l = listener(&at);
    char byte;
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        int fd = connected(&at);
        close(l);
        urge(fd, "012345678!");
        for (int i = 0; i < ROUNDS; i++) receive_all(fd, &byte, 1), put(fd, "x");
        put(fd, "after"), arrived(fd);
        MUST(recv(fd, &byte, 1, 0) == 0);
        _exit(0);
    }
    int fd = accepted(l);
    close(l);
    struct pollfd p = {.fd = fd, .events = POLLPRI};
    MUST(poll(&p, 1, 5000) == 1);
    got("urgent", fd, 1, MSG_OOB);
    for (int i = 0; i < ROUNDS; i++) {
        put(fd, "y"), usleep(1000);
        MUST(recv(fd, bytes, 100, MSG_PEEK | MSG_DONTWAIT) == 9);
    }
    is_told();
    mark(fd);
    got("looked at", fd, 100, MSG_PEEK);
    mark(fd);
    got("before it", fd, 100, 0);
    got("behind it", fd, 100, 0);
    close(fd);
    other_ends();
    say("before a ring: done");
}

int main(void) {
    alarm(150);
    MUST(pipe(told) == 0);
    run_pair("apart", apart, apart_sends);
    run_pair("alternately", alternately, alternately_sends);
    run_pair("all of it", all_of_it, alternately_sends);
    run_pair("within", within, apart_sends);
    run_pair("discarded", discarded, discarded_sends);
    run_pair("by a signal", by_signal, signals_sends);
    run_pair("in sets", in_sets, sets_sends);
    before_a_ring();
    return 0;
}
