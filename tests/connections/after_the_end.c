/* Calls once a stream has ended, or the connection was reset. */
#include "connection.h"

static char bytes[20000];

static const char *outcome(long result) { return result < 0 ? strerror(errno) : result > 0 ? "bytes" : "the end"; }
static int pending(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}
static void closes(int fd) { close(fd); }
static void closes_later(int fd) {
    usleep(100000);
    close(fd);
}
static void waits_for_ever(int fd) {
    send_all(fd, "x", 1);
    pause();
}

/* A program ends its stream before its connection has a ring, and then goes on calling. */
static void ended_before_it_had_a_ring(void) {
    struct sockaddr_in at;
    int l = listener(&at), enough[2];
    MUST(pipe2(enough, O_NONBLOCK) == 0);
    other = fork();
    MUST(other >= 0);
    char byte;
    if (other == 0) {
        int fd = accepted(l);
        MUST(recv(fd, &byte, 1, 0) == 0);
        while (read(enough[0], &byte, 1) < 0) send_all(fd, "x", 1), usleep(300);
        for (int i = 0; i < 3; i++) {
            if (recv(fd, &byte, 1, 0) != 0) say("WRONG: bytes after the end");
            usleep(50000);
        }
        _exit(0);
    }
    close(l);
    int fd = connected(&at);
    MUST(shutdown(fd, SHUT_WR) == 0);
    for (int i = 0; i < 300 || (under_tcp() && i < 20000 && counter("tcp_connections") == 0); i++) receive_all(fd, &byte, 1);
    if (under_tcp() && counter("tcp_connections") == 0) not_upgraded();
    MUST(write(enough[1], "!", 1) == 1);
    /* (The peer looks for bytes meanwhile.) */
    usleep(50000);
    ssize_t sent = send(fd, "x", 1, MSG_NOSIGNAL);
    say("ended before it had a ring: %s", outcome(sent));
    other_ends();
}

/* The peer is killed, and bytes were unread there. */
static void kill_it(int fd) {
    char byte;
    receive_all(fd, &byte, 1);
    send_all(fd, "unread", 6);
    kill(other, SIGKILL);
    siginfo_t ended;
    MUST(waitid(P_PID, (id_t)other, &ended, WEXITED | WNOWAIT) == 0);
    usleep(20000);
}
static void polls(int fd) {
    kill_it(fd);
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    MUST(poll(&p, 1, 0) == 1);
    say("poll says %x", p.revents);
    int first = pending(fd), second = pending(fd);
    say("SO_ERROR: %s, %s", strerror(first), strerror(second));
}
static void waits_for_a_set(int fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    kill_it(fd);
    /* (All that is so is told by one of the first few.) */
    unsigned all = 0;
    for (int i = 0; i < 5; i++) {
        MUST(epoll_wait(set, &event, 1, 0) == 1);
        all |= event.events;
    }
    say("a set says %x", all);
    close(set);
}
static void had_ended(int fd) {
    char byte;
    receive_all(fd, &byte, 1);
    send_all(fd, "unread", 6);
    MUST(shutdown(fd, SHUT_WR) == 0);
    kill(other, SIGKILL);
    siginfo_t ended;
    MUST(waitid(P_PID, (id_t)other, &ended, WEXITED | WNOWAIT) == 0);
    usleep(20000);
    for (int i = 0; i < 2; i++) {
        ssize_t sent = send(fd, "x", 1, MSG_NOSIGNAL);
        say("after its own end: %s", outcome(sent));
    }
}
static void splices_to_it(int fd) {
    kill_it(fd);
    int ends[2];
    MUST(pipe(ends) == 0 && write(ends[1], "bytes", 5) == 5);
    for (int i = 0; i < 2; i++) {
        ssize_t moved = splice(ends[0], NULL, fd, NULL, 5, 0);
        say("splice to it: %s", outcome(moved));
    }
    close(ends[0]), close(ends[1]);
}
static void shuts(int fd) {
    kill_it(fd);
    int done = shutdown(fd, SHUT_RD);
    say("shutdown: %s", done < 0 ? strerror(errno) : "done");
}

/* The peer has closed, and what is sent to it is answered by a reset. */
static void receives_many(int fd) {
    usleep(50000);
    MUST(send(fd, "x", 1, MSG_NOSIGNAL) == 1);
    usleep(20000);
    struct iovec part = {bytes, 100};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    int got = recvmmsg(fd, &message, 1, 0, NULL);
    say("recvmmsg: %s", got < 0 ? strerror(errno) : message.msg_len ? "bytes" : "the end");
    ssize_t end = recv(fd, bytes, 100, 0);
    say("then: %s", outcome(end));
}
static void sends_and_closes(int fd) {
    send_all(fd, bytes, 252);
    close(fd);
}
static void asks_how_much(int fd) {
    usleep(50000);
    MUST(send(fd, "x", 1, MSG_NOSIGNAL) == 1);
    usleep(20000);
    int unread = -1;
    MUST(ioctl(fd, FIONREAD, &unread) == 0);
    say("FIONREAD: %d", unread);
    receive_all(fd, bytes, 252);
}
/* It closes with bytes unread. */
static void splices(int fd) {
    send_all(fd, bytes, 12000);
    usleep(200000);
    int ends[2];
    MUST(pipe(ends) == 0);
    ssize_t moved = splice(fd, NULL, ends[1], NULL, 1000, 0);
    say("splice: %s", outcome(moved));
    moved = splice(fd, NULL, ends[1], NULL, 1000, 0);
    say("then: %s", outcome(moved));
    close(ends[0]), close(ends[1]);
}

/* Both streams have ended, and urgent data is waited for. */
static void selects(int fd) {
    usleep(50000);
    MUST(shutdown(fd, SHUT_RDWR) == 0);
    struct timespec since;
    clock_gettime(CLOCK_MONOTONIC, &since);
    fd_set urgent;
    FD_ZERO(&urgent);
    FD_SET(fd, &urgent);
    struct timeval patience = {.tv_usec = 50000};
    int n = select(fd + 1, NULL, NULL, &urgent, &patience);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long passed = (now.tv_sec - since.tv_sec) * 1000 + (now.tv_nsec - since.tv_nsec) / 1000000;
    say("select for urgent data: %d, %s", n, passed >= 49 ? "in time" : "WRONG: too early");
}

int main(void) {
    ended_before_it_had_a_ring();
    run_pair("poll after a death", waits_for_ever, polls);
    run_pair("a set after a death", waits_for_ever, waits_for_a_set);
    run_pair("a death after the own end", waits_for_ever, had_ended);
    signal(SIGPIPE, SIG_IGN);
    run_pair("splice after a death", waits_for_ever, splices_to_it);
    run_pair("shutdown after a death", waits_for_ever, shuts);
    run_pair("recvmmsg after a reset", closes, receives_many);
    run_pair("FIONREAD after a reset", sends_and_closes, asks_how_much);
    run_pair("splice after a reset", closes_later, splices);
    run_pair("select after both ends", closes, selects);
    return 0;
}
