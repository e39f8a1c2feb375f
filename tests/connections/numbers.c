/* Numbers that were a file's and are another's now: what was said of the first is not true of the second. */
#include "connection.h"

static char bytes[20000], back[20000];

static void echo(int fd) {
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) send_all(fd, bytes, (size_t)got);
}
static void talks(int fd) {
    for (int i = 0; i < 30; i++) {
        fill(bytes, sizeof bytes, (unsigned)i, 0);
        send_all(fd, bytes, sizeof bytes);
        receive_all(fd, back, sizeof back);
        is(back, sizeof back, (unsigned)i, 0);
    }
}

/* A socket is added to a set before it connects, and both are closed. Then the set's number is a connection's, and the socket's that of one which connects. */
static void a_connection_at_a_set_s_number(int fd) {
    struct sockaddr_in at;
    int l = listener(&at);
    for (int way = 0; way < 3; way++) {
        int set = epoll_create1(0), unconnected = socket(AF_INET, SOCK_STREAM, 0);
        struct epoll_event event = {.events = EPOLLIN};
        MUST(set >= 0 && unconnected >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, unconnected, &event) == 0);
        if (way == 0) close(unconnected), close(set);
        if (way == 1) close(set), close(unconnected);
        MUST(dup2(fd, set) == set);
        close(fd);
        fd = set;
        int other = socket(AF_INET, SOCK_STREAM, 0);
        if (other != unconnected) {
            MUST(dup2(other, unconnected) == unconnected);
            close(other);
        }
        MUST(connect(unconnected, (struct sockaddr *)&at, sizeof at) == 0);
        talks(fd);
        close(unconnected);
    }
    close(l);
    close(fd);
}

/* A number that is no set. */
static void a_connection_in_place_of_a_set(int fd) {
    struct sockaddr_in at;
    int l = listener(&at), another = connected(&at);
    struct epoll_event event = {.events = EPOLLIN};
    int added = epoll_ctl(fd, EPOLL_CTL_ADD, another, &event);
    say("no set: %d %s", added, strerror(errno));
    talks(fd);
    close(another), close(l), close(fd);
}

int main(void) {
    alarm(60);
    run_pair("a connection at a set's number", echo, a_connection_at_a_set_s_number);
    run_pair("a connection in place of a set", echo, a_connection_in_place_of_a_set);
    return 0;
}
