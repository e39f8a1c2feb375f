/* More threads than a process has doors, each in calls that wait, or in a set of its own; over IPv4 and IPv6. */
#include "connection.h"

enum { CROWD = 12, ROUNDS = 400, SLOW = 200, BYTES = 64 };
static int fds[CROWD];
static int by_sets;

/* The next message, after a wait in a set of this thread's, or in the call. */
static void next(int fd, int set, char *message) {
    struct epoll_event event;
    if (by_sets) MUST(epoll_wait(set, &event, 1, 20000) == 1);
    receive_all(fd, message, BYTES);
}
static int a_set(int fd) {
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    MUST(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}
static void *answers(void *at) {
    int fd = *(int *)at, set = a_set(fd);
    char message[BYTES];
    for (int i = 0; i < ROUNDS; i++) next(fd, set, message), send_all(fd, message, BYTES);
    return NULL;
}
static void *asks(void *at) {
    int fd = *(int *)at, set = a_set(fd);
    unsigned seed = (unsigned)((int *)at - fds);
    char message[BYTES];
    for (int i = 0; i < ROUNDS; i++) {
        fill(message, BYTES, seed, (size_t)i * BYTES);
        send_all(fd, message, BYTES);
        memset(message, 0, BYTES);
        next(fd, set, message);
        if (!is(message, BYTES, seed, (size_t)i * BYTES)) break;
        if (under_tcp() && i < SLOW) usleep(500);
    }
    return NULL;
}
static void all(void *(*does)(void *)) {
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++) MUST(pthread_create(&threads[i], NULL, does, &fds[i]) == 0);
    for (int i = 0; i < CROWD; i++) MUST(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < CROWD; i++) close(fds[i]);
}

static void crowd(const char *name, int family, int sets) {
    struct sockaddr_in6 at = {.sin6_family = (sa_family_t)family};
    if (family == AF_INET6) at.sin6_addr = in6addr_loopback;
    else ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof at;
    int l = socket(family, SOCK_STREAM, 0);
    if (l < 0 || bind(l, (struct sockaddr *)&at, len) != 0) {
        say("%s: done", name); /* (No IPv6 here.) */
        return;
    }
    MUST(listen(l, CROWD) == 0 && getsockname(l, (struct sockaddr *)&at, &len) == 0);
    by_sets = sets;
    unsigned long before = counter("tcp_connections");
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        for (int i = 0; i < CROWD; i++) fds[i] = accepted(l);
        all(answers);
        _exit(0);
    }
    for (int i = 0; i < CROWD; i++) {
        fds[i] = socket(family, SOCK_STREAM, 0);
        MUST(fds[i] >= 0 && connect(fds[i], (struct sockaddr *)&at, len) == 0);
    }
    close(l);
    all(asks);
    if (under_tcp() && counter("tcp_connections") - before < CROWD) not_upgraded();
    other_ends();
    say("%s: done", name);
}

int main(void) {
    alarm(100);
    crowd("calls that wait", AF_INET, 0);
    crowd("a set each", AF_INET, 1);
    crowd("calls that wait, IPv6", AF_INET6, 0);
    return 0;
}
