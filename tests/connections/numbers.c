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

/* The other end goes back to Linux and to its ring again, and this one has not looked since: what is sent now is offered, and nobody has taken it. */
static void reads_late(int fd) {
    receive_all(fd, bytes, sizeof bytes);
    send_all(fd, bytes, 1);
    usleep(300000);
    receive_all(fd, bytes, 6);
    say("it has come: %.6s", bytes);
    close(fd);
}
static void offers(int fd) {
    memset(bytes, 0, sizeof bytes);
    /* Past the ring: printf to a number. */
    MUST(dprintf(fd, "%0*d", (int)sizeof bytes, 0) == (int)sizeof bytes);
    receive_all(fd, bytes, 1);
    usleep(50000);
    send_all(fd, "unread", 6);
}
/* A child of vfork has its parent's memory, and other files under its numbers: what it does there is not done to the parent's connection. */
static void another_file_in_a_child_of_vfork(int fd, int duplicates) {
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    offers(fd);
    pid_t child = vfork();
    if (child == 0) {
        if (dup2(pair[1], fd) != fd) _exit(5);
        if (duplicates && dup2(fd, 1) != 1) _exit(6);
        execlp("true", "true", NULL);
        _exit(7);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    say("the child: %x", status);
    close(pair[1]);
    char byte;
    say("in the pair: %zd", recv(pair[0], &byte, 1, 0));
    close(pair[0]), close(fd);
}
static void duplicated_there(int fd) { another_file_in_a_child_of_vfork(fd, 1); }
static void executed_there(int fd) { another_file_in_a_child_of_vfork(fd, 0); }

int main(void) {
    alarm(60);
    run_pair("a connection at a set's number", echo, a_connection_at_a_set_s_number);
    run_pair("a connection in place of a set", echo, a_connection_in_place_of_a_set);
    run_pair("another file, duplicated after vfork", reads_late, duplicated_there);
    run_pair("another file, executed after vfork", reads_late, executed_there);
    return 0;
}
