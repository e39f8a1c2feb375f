/* Urgent data beside others, as sets, poll and select tell of it: all that is so by one event. */
#include "connection.h"

static char bytes[100];
static int set, fd_;

static char next(int fd) {
    char byte;
    receive_all(fd, &byte, 1);
    return byte;
}
static void sends_urgent(int fd) {
    for (int i = 0; i < 3; i++) {
        next(fd);
        MUST(send(fd, "hello", 5, MSG_OOB) == 5);
        next(fd);
        send_all(fd, "world", 5);
        next(fd);
        send_all(fd, "abc", 3);
        MUST(send(fd, "d", 1, MSG_OOB) == 1);
        send_all(fd, "ef", 2);
    }
    next(fd);
}
static void told(const char *when, unsigned mask) {
    struct epoll_event event = {.events = mask};
    struct pollfd p = {fd_, POLLIN | POLLPRI, 0};
    struct timeval now = {0, 0};
    fd_set in, urgent;
    FD_ZERO(&in);
    FD_ZERO(&urgent);
    FD_SET(fd_, &in);
    FD_SET(fd_, &urgent);
    if (mask & EPOLLONESHOT) MUST(epoll_ctl(set, EPOLL_CTL_MOD, fd_, &event) == 0);
    int n = epoll_wait(set, &event, 1, 100), polled = poll(&p, 1, 0);
    MUST(select(fd_ + 1, &in, NULL, &urgent, &now) >= 0);
    say("%s: epoll %d %x, poll %d %x, select %d %d", when, n, n > 0 ? event.events : 0, polled, (unsigned)p.revents, !!FD_ISSET(fd_, &in),
        !!FD_ISSET(fd_, &urgent));
}
static void got(int flags) {
    ssize_t n = recv(fd_, bytes, sizeof bytes, flags | MSG_DONTWAIT);
    say("  %s%.*s%s", flags ? "urgent: " : "", n > 0 ? (int)n : 0, bytes, n < 0 ? strerror(errno) : "");
}
static void asks(int fd) {
    static const unsigned MASKS[] = {EPOLLIN | EPOLLPRI, EPOLLPRI, EPOLLIN | EPOLLPRI | EPOLLONESHOT};
    fd_ = fd;
    for (int i = 0; i < 3; i++) {
        unsigned mask = MASKS[i];
        set = epoll_create1(0);
        struct epoll_event event = {.events = mask};
        MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        say("by %x", mask);
        told("nothing", mask);
        send_all(fd, "g", 1);
        usleep(100000);
        told("the last is urgent", mask), told("again", mask);
        got(0), told("at the mark", mask);
        got(MSG_OOB), told("beyond", mask);
        got(0);
        send_all(fd, "g", 1);
        usleep(100000);
        told("none is", mask);
        got(0), told("all is read", mask);
        send_all(fd, "g", 1);
        usleep(100000);
        told("one within", mask);
        got(MSG_OOB), told("that is taken", mask);
        got(0), told("what came before", mask);
        got(0), told("what came after", mask);
        close(set);
    }
    send_all(fd, "g", 1);
    close(fd);
}

int main(void) {
    alarm(60);
    run_pair("by level", sends_urgent, asks);
    return 0;
}
