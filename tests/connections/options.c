/* Features that a connection can be asked for, and rings do not have or have to imitate: signals for news, the fewest bytes to wait for, looking ahead,
 * marks beside the data; and how a peer's death is told to a sender that waits for room. */
#include "connection.h"
#include <linux/filter.h>

static char bytes[1 << 20];
static volatile sig_atomic_t came;
static void comes(int signal) { (void)signal, came = 1; }

/* Answers each byte with 50 bytes, and a little later with 60 more. */
static void in_two_parts(int fd) {
    char byte;
    fill(bytes, 110, 3, 0);
    while (recv(fd, &byte, 1, 0) == 1) {
        send_all(fd, bytes, 50);
        usleep(300000);
        send_all(fd, bytes + 50, 60);
    }
}
static void ask(int fd) { MUST(send(fd, "?", 1, 0) == 1); }
static int there(int fd) {
    int n = 0;
    MUST(ioctl(fd, FIONREAD, &n) == 0);
    return n;
}
static void until_there(int fd, int n) {
    for (int i = 0; i < 2000 && there(fd) < n; i++) usleep(1000);
}

static void fewest(int fd) {
    /* (More than either part has: what was copied already does not count for Linux.) */
    int n = 60;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof n) == 0);
    ask(fd), until_there(fd, 50);
    say("poll with 50 bytes: %d", poll(&p, 1, 20));
    say("with 110: %d", poll(&p, 1, 5000));
    ssize_t got = recv(fd, bytes, 200, 0);
    say("recv: %zd, %s", got, got > 0 && is(bytes, (size_t)got, 3, 0) ? "right" : "WRONG");
    ask(fd), until_there(fd, 50);
    got = recv(fd, bytes, 200, 0);
    say("recv waits: %zd", got);
    ask(fd), until_there(fd, 50);
    got = recv(fd, bytes, 200, MSG_DONTWAIT);
    say("without waiting: %zd", got);
    close(fd);
}
static void ahead(int fd) {
    ask(fd), until_there(fd, 50);
    ssize_t got = recv(fd, bytes, 110, MSG_PEEK | MSG_WAITALL);
    say("all, and none is taken: %zd, %s", got, got > 0 && is(bytes, (size_t)got, 3, 0) ? "right" : "WRONG");
    got = recv(fd, bytes, 110, MSG_WAITALL);
    say("all: %zd, %s", got, got > 0 && is(bytes, (size_t)got, 3, 0) ? "right" : "WRONG");
    ask(fd), until_there(fd, 50);
    struct timeval patience = {.tv_usec = 50000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    got = recv(fd, bytes, 111, MSG_PEEK | MSG_WAITALL);
    say("in time: %d", got > 0);
    patience.tv_usec = 0;
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    until_there(fd, 110);
    say("thrown away: %zd, left %d", recv(fd, NULL, 10, MSG_TRUNC), there(fd));
    got = recv(fd, bytes, 200, 0);
    say("the rest: %zd, %s", got, got > 0 && is(bytes, (size_t)got, 3, 10) ? "right" : "WRONG");
    got = recv(fd, bytes, 0, MSG_DONTWAIT);
    say("no bytes of nothing: %zd %s", got, got < 0 ? strerror(errno) : "");
    say("read: %zd", read(fd, bytes, 0));
    close(fd);
}
static void by_signal(int fd) {
    signal(SIGIO, comes);
    MUST(fcntl(fd, F_SETOWN, getpid()) == 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC) == 0);
    for (int i = 0; i < 3; i++) {
        until_there(fd, 0);
        came = 0;
        ask(fd), until_there(fd, 110);
        for (int turn = 0; turn < 200 && !came; turn++) usleep(1000);
        say("SIGIO: %d", (int)came);
        MUST(recv(fd, bytes, 110, MSG_WAITALL) == 110);
    }
    close(fd);
}

/* Marks beside the data. */
static int has_control(int fd, int level, int type) {
    char control[256], data[200];
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control, .msg_namelen = 77};
    MUST(recvmsg(fd, &message, 0) > 0);
    if (message.msg_namelen != 77) say("WRONG: a name's length of %u", message.msg_namelen);
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at))
        if (at->cmsg_level == level && at->cmsg_type == type) return 1;
    return 0;
}
static void stamped(int fd) {
    int on = 1;
    MUST(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) == 0);
    ask(fd), until_there(fd, 110);
    say("a time beside the data: %d", has_control(fd, SOL_SOCKET, SO_TIMESTAMPNS));
    on = 0;
    MUST(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) == 0);
    ask(fd), until_there(fd, 110);
    say("none: %d", has_control(fd, SOL_SOCKET, SO_TIMESTAMPNS));
    close(fd);
}
static void counted(int fd) {
    int on = 1;
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof on) == 0);
    ask(fd), until_there(fd, 110);
    say("what is left beside the data: %d", has_control(fd, IPPROTO_TCP, TCP_CM_INQ));
    close(fd);
}

/* Lets nothing through. */
static void a_filter_is_heeded(int fd) {
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog filter = {.len = 1, .filter = &nothing};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ask(fd);
    receive_all(fd, bytes, 110);
    MUST(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
    ask(fd);
    say("behind the filter: %d", poll(&p, 1, 500));
    int none = 0;
    MUST(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none) == 0);
    receive_all(fd, bytes, 110);
    say("without it: %s", is(bytes, 110, 3, 0) ? "right" : "WRONG");
    close(fd);
}

/* The listener's, which connections have from the beginning: no segment of more than 500 bytes comes through. */
static void sends_little_and_much(int fd) {
    char byte;
    fill(bytes, 1000, 3, 0);
    send_all(fd, bytes, 100);
    MUST(recv(fd, &byte, 1, 0) == 1);
    send_all(fd, bytes, 1000);
    MUST(recv(fd, &byte, 1, 0) == 1);
    close(fd);
}
static void a_listeners_filter_is_heeded(void) {
    if (!is_wanted("a listener's filter")) return;
    struct sock_filter little[] = {BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 500, 0, 1), BPF_STMT(BPF_RET | BPF_K, 0),
                                   BPF_STMT(BPF_RET | BPF_K, ~0u)};
    struct sock_fprog filter = {.len = 4, .filter = little};
    struct sockaddr_in at;
    int l = listener(&at);
    MUST(setsockopt(l, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        close(l);
        int fd = connected(&at);
        /* (As often as a connection takes that gets a ring. Not by the counter: this one is to get none.) */
        for (int i = 0; i < 300; i++) {
            char byte;
            ask(fd), receive_all(fd, &byte, 1);
            if (under_tcp()) usleep(500);
        }
        sends_little_and_much(fd);
        _exit(0);
    }
    int fd = accepted(l), none = 0;
    close(l);
    for (int i = 0; i < 300; i++) {
        char byte;
        receive_all(fd, &byte, 1), ask(fd);
    }
    struct pollfd p = {.fd = fd, .events = POLLIN};
    receive_all(fd, bytes, 100);
    say("little: %s", is(bytes, 100, 3, 0) ? "right" : "WRONG");
    ask(fd);
    say("behind the filter: %d", poll(&p, 1, 500));
    MUST(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none) == 0);
    receive_all(fd, bytes, 1000);
    say("without it: %s", is(bytes, 1000, 3, 0) ? "right" : "WRONG");
    ask(fd);
    other_ends();
    close(fd);
}

/* Much is sent before any answer is read: it lies in buffers. */
static void echo(int fd) {
    static char piece[60000];
    ssize_t got;
    while ((got = recv(fd, piece, sizeof piece, 0)) > 0) send_all(fd, piece, (size_t)got);
}
static void much_first(int fd) {
    for (int part = 0; part < 3; part++) {
        fill(bytes, sizeof bytes / 2, (unsigned)part, 0);
        send_all(fd, bytes, sizeof bytes / 2);
    }
    for (int part = 0; part < 3; part++) {
        receive_all(fd, bytes, sizeof bytes / 2);
        if (!is(bytes, sizeof bytes / 2, (unsigned)part, 0)) return;
    }
    say("all came back");
    close(fd);
}
static void much_first_by_poll(int fd) {
    nonblocking(fd, 1);
    much_first(fd);
}

/* A set by edge: a call that receives less than it asked for has taken all that is there. Bytes that are sent by a ring and those by Linux come from one
 * stream. */
enum { PIECE = 3000, PART = 100000, TURNS = 60 };
static void sends_by_both(int fd) {
    char name[] = "/tmp/uncopy-connections-XXXXXX", byte;
    int one = 1;
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    int file = mkstemp(name);
    MUST(file >= 0 && unlink(name) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        /* A little by the ring, which the other side has come to, and much by Linux. */
        fill(bytes, PART, 9, 0);
        send_all(fd, "r", 1);
        if (recv(fd, &byte, 1, 0) != 1) _exit(4);
        send_all(fd, bytes, PIECE);
        MUST(pwrite(file, bytes + PIECE, PART - PIECE, 0) == PART - PIECE);
        off_t at = 0;
        while (at < PART - PIECE) MUST(sendfile(fd, file, &at, (size_t)(PART - PIECE - at)) > 0);
        if (recv(fd, &byte, 1, 0) != 1) _exit(4);
    }
    close(fd);
}
static void receives_by_edge(int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET | EPOLLRDHUP};
    int set = epoll_create1(0);
    nonblocking(fd, 1);
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        char byte;
        nonblocking(fd, 0);
        receive_all(fd, &byte, 1);
        nonblocking(fd, 1);
        MUST(send(fd, "r", 1, 0) == 1);
        if (turn % 4) usleep(3000); /* All is there. */
        for (size_t got = 0; got < PART;) {
            int n = epoll_wait(set, &event, 1, 5000);
            if (n != 1) {
                say("WRONG: turn %d: nothing more is told after %zu bytes", turn, got);
                _exit(1);
            }
            ssize_t more;
            do {
                more = recv(fd, bytes + got, 8192, 0);
                if (more > 0) got += (size_t)more;
            } while (more == 8192);
        }
        if (!is(bytes, PART, 9, 0)) return;
        MUST(send(fd, "n", 1, 0) == 1);
    }
    say("all was told");
    close(set), close(fd);
}

/* A process that is killed leaves bytes unread. A sender that waits for room hears of it. */
static void waits_for_ever(int fd) {
    char byte;
    MUST(recv(fd, &byte, 1, 0) == 1);
    pause();
}
static void fills(int fd) {
    nonblocking(fd, 1);
    while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0 || errno != EAGAIN) {}
    for (int i = 0; i < 3; i++) {
        usleep(20000);
        while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {}
    }
}
static void told_by_poll(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    fills(fd);
    kill(other, SIGKILL);
    say("poll: %d", poll(&p, 1, 3000));
    say("room: %d", !!(p.revents & POLLOUT));
    close(fd);
}
static void told_by_select(int fd) {
    fd_set room;
    struct timeval patience = {.tv_sec = 3};
    fills(fd);
    kill(other, SIGKILL);
    FD_ZERO(&room);
    FD_SET(fd, &room);
    say("select: %d", select(fd + 1, NULL, &room, NULL, &patience));
    close(fd);
}
static void told_by_a_set(int fd, unsigned mode) {
    struct epoll_event event = {.events = EPOLLOUT | mode};
    int set = epoll_create1(0);
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    fills(fd);
    while (epoll_wait(set, &event, 1, 0) > 0 && mode) fills(fd);
    kill(other, SIGKILL);
    int n = epoll_wait(set, &event, 1, 3000);
    say("epoll_wait: %d, room %d", n, n == 1 && event.events & EPOLLOUT ? 1 : 0);
    close(set), close(fd);
}
static void told_by_level(int fd) { told_by_a_set(fd, 0); }
static void told_by_edge(int fd) { told_by_a_set(fd, EPOLLET); }

static void resets(int fd) {
    char byte;
    struct linger at_once = {.l_onoff = 1};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    MUST(recv(fd, &byte, 1, 0) == 1);
    /* (The other end sleeps by then. The kernel sets the error first, and ends the connection then: who looks just between these, plainly too, finds POLLERR alone.) */
    usleep(50000);
    close(fd);
}
static void asks_for_the_error(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ask(fd);
    int n = poll(&p, 1, 5000);
    say("poll: %d %x", n, p.revents);
    MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
    say("SO_ERROR: %s", strerror(error));
    ssize_t got = recv(fd, bytes, 1, 0);
    say("recv: %zd %s", got, got < 0 ? strerror(errno) : "");
    struct tcp_info info;
    len = sizeof info;
    MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
    say("TCP_INFO: state %d", info.tcpi_state);
    close(fd);
}

int main(void) {
    alarm(100);
    run_pair("the fewest bytes", in_two_parts, fewest);
    run_pair("looking ahead", in_two_parts, ahead);
    run_pair("a signal for news", in_two_parts, by_signal);
    run_pair("time stamps", in_two_parts, stamped);
    run_pair("bytes that are left", in_two_parts, counted);
    run_pair("a filter", in_two_parts, a_filter_is_heeded);
    a_listeners_filter_is_heeded();
    run_pair("much first", echo, much_first);
    run_pair("much first, by poll", echo, much_first_by_poll);
    run_pair("by both, and an edge", sends_by_both, receives_by_edge);
    run_pair("killed: poll", waits_for_ever, told_by_poll);
    run_pair("killed: select", waits_for_ever, told_by_select);
    run_pair("killed: a set by level", waits_for_ever, told_by_level);
    run_pair("killed: a set by edge", waits_for_ever, told_by_edge);
    run_pair("the error", resets, asks_for_the_error);
    return 0;
}
