/* poll, ppoll, select, pselect and epoll_pwait over rings; timeouts, handlers that interrupt, SA_RESTART. */
#include "connection.h"

static volatile sig_atomic_t handled;
static void handler(int signal) { (void)signal, handled++; }
static void handle(int flags) {
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(SIGALRM, &act, NULL) == 0);
}
static void soon(int milliseconds) {
    struct itimerval in = {.it_value = {.tv_usec = milliseconds * 1000}};
    MUST(setitimer(ITIMER_REAL, &in, NULL) == 0);
}
static long elapsed(const struct timespec *since) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
}

/* Answers each byte after 30 ms. */
static void slow_echo(int fd) {
    char byte;
    while (recv(fd, &byte, 1, 0) == 1) {
        usleep(30000);
        send_all(fd, &byte, 1);
    }
}

static void ask(int fd) { MUST(send(fd, "?", 1, 0) == 1); }
static void answered(int fd) {
    char byte = 0;
    MUST(recv(fd, &byte, 1, MSG_DONTWAIT) == 1 && byte == '?');
}

static void client(int fd) {
    int pipes[2];
    MUST(pipe(pipes) == 0);
    for (int round = 0; round < 3; round++) {
        struct pollfd fds[3] = {{.fd = pipes[0], .events = POLLIN}, {.fd = -1, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
        MUST(poll(fds, 3, 0) == 0 && poll(fds, 3, 5) == 0);
        ask(fd);
        int n = poll(fds, 3, 5000);
        say("poll: %d, %x %x %x", n, fds[0].revents, fds[1].revents, fds[2].revents);
        answered(fd);
        MUST(write(pipes[1], "x", 1) == 1);
        fds[2].events = POLLIN | POLLOUT;
        n = poll(fds, 3, 5000);
        say("poll: %d, %x %x %x", n, fds[0].revents, fds[1].revents, fds[2].revents);
        char byte;
        MUST(read(pipes[0], &byte, 1) == 1);
        fd_set r, w;
        FD_ZERO(&r);
        FD_ZERO(&w);
        FD_SET(fd, &r);
        FD_SET(pipes[0], &r);
        struct timeval time = {.tv_usec = 3000};
        n = select(fd + 1, &r, NULL, NULL, &time);
        say("select: %d, %d left", n, (int)(time.tv_usec + time.tv_sec));
        FD_SET(fd, &r);
        FD_SET(pipes[0], &r);
        FD_SET(fd, &w);
        n = select(fd + 1, &r, &w, NULL, NULL);
        say("select: %d, %d %d %d", n, FD_ISSET(fd, &r), FD_ISSET(pipes[0], &r), FD_ISSET(fd, &w));
        ask(fd);
        FD_SET(fd, &r);
        n = select(fd + 1, &r, NULL, NULL, NULL);
        say("select: %d, %d", n, FD_ISSET(fd, &r));
        answered(fd);
    }
    /* Handlers. */
    char byte;
    handle(0);
    soon(10);
    ssize_t got = recv(fd, &byte, 1, 0);
    say("recv, interrupted: %zd %s", got, got < 0 ? strerror(errno) : "");
    handle(SA_RESTART);
    ask(fd), soon(10);
    got = recv(fd, &byte, 1, 0);
    say("recv, restarted: %zd, handled %d", got, handled);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    soon(10);
    int n = poll(&p, 1, 1000);
    say("poll, interrupted: %d %s", n, n < 0 ? strerror(errno) : "");
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    soon(10);
    n = epoll_wait(set, &event, 1, 1000);
    say("epoll_wait, interrupted: %d %s", n, n < 0 ? strerror(errno) : "");
    sigset_t blocked, none;
    sigemptyset(&none), sigemptyset(&blocked), sigaddset(&blocked, SIGALRM);
    MUST(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    int before = handled;
    raise(SIGALRM);
    struct timespec second = {.tv_sec = 1};
    n = ppoll(&p, 1, &second, &none);
    say("ppoll lets it in: %d %s, %d", n, n < 0 ? strerror(errno) : "", handled - before);
    raise(SIGALRM);
    n = epoll_pwait(set, &event, 1, 1000, &none);
    say("epoll_pwait lets it in: %d %s, %d", n, n < 0 ? strerror(errno) : "", handled - before);
    MUST(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
    /* Timeouts. */
    struct timeval patience = {.tv_usec = 50000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    struct timespec since;
    clock_gettime(CLOCK_MONOTONIC, &since);
    got = recv(fd, &byte, 1, 0);
    say("recv, in time: %zd %s, %s", got, strerror(errno), elapsed(&since) >= 49 ? "after the timeout" : "WRONG: too early");
    soon(10);
    got = recv(fd, &byte, 1, 0);
    say("recv with a timeout, interrupted: %zd %s", got, strerror(errno));
    patience.tv_usec = 0;
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    nonblocking(fd, 1);
    got = recv(fd, &byte, 1, 0);
    say("nonblocking: %zd %s", got, strerror(errno));
    int on = 0;
    MUST(ioctl(fd, FIONBIO, &on) == 0);
    ask(fd);
    say("blocking again: %zd", recv(fd, &byte, 1, 0));
    ask(fd);
    MUST(poll(&p, 1, 1000) == 1);
    int queued = -1;
    MUST(ioctl(fd, FIONREAD, &queued) == 0);
    say("FIONREAD: %d", queued);
    answered(fd);
    if (under_tcp() && counter("tcp_receives") < 5) say("NOT BY RINGS");
    close(fd);
}

int main(void) {
    run_pair("waiting", slow_echo, client);
    return 0;
}
