/* Waits that have an end, and both sides of a connection that send much before they read, where
 * another library has stopped the clock: they end all the same. Memory that it shares with the
 * programs that are executed is made once, and removed by the first of them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "must.h"

#define MUCH (3 << 20)

static void exchange(int fd, int first) {
    char word[4];
    for (int i = 0; i < 12; i++) {
        if (first) MUST(send(fd, "ping", 4, 0) == 4);
        MUST(recv(fd, word, 4, MSG_WAITALL) == 4);
        if (!first) MUST(send(fd, "pong", 4, 0) == 4);
    }
}

static char *much;
static void *sends_much(void *place) {
    int fd = *(int *)place;
    for (size_t sent = 0; sent < MUCH;) {
        ssize_t n = send(fd, much + sent, MUCH - sent, 0);
        MUST(n > 0);
        sent += (size_t)n;
    }
    return NULL;
}
static void both_ways(int fd) {
    pthread_t thread;
    much = calloc(1, MUCH);
    MUST(much && !pthread_create(&thread, NULL, sends_much, &fd));
    static char room[1 << 16];
    for (size_t got = 0; got < MUCH;) {
        ssize_t n = recv(fd, room, sizeof room, 0);
        MUST(n > 0);
        got += (size_t)n;
    }
    pthread_join(thread, NULL);
}

static void waits(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    printf("poll %d\n", poll(&one, 1, 100));
    struct timespec tenth = {0, 100000000};
    one.revents = 0;
    printf("ppoll %d\n", ppoll(&one, 1, &tenth, NULL));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval short_time = {0, 100000};
    printf("select %d\n", select(fd + 1, &set, NULL, NULL, &short_time));
    int events = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(events >= 0 && !epoll_ctl(events, EPOLL_CTL_ADD, fd, &event));
    printf("epoll_wait %d\n", epoll_wait(events, &event, 1, 100));
    close(events);
    short_time = (struct timeval){0, 100000};
    MUST(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof short_time));
    char word[4];
    ssize_t n = recv(fd, word, 4, 0);
    printf("recv %zd %s\n", n, strerror(errno));
    short_time = (struct timeval){0, 0};
    MUST(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof short_time));
}

int main(int count, char **words) {
    if (count > 1) {
        printf("%s: %ld\n", words[1], (long)time(NULL));
        return 0;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0), status;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    MUST(listener >= 0 && !bind(listener, (struct sockaddr *)&name, length) && !listen(listener, 5));
    MUST(!getsockname(listener, (struct sockaddr *)&name, &length));
    fflush(stdout);
    pid_t peer = fork();
    if (!peer) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        MUST(fd >= 0 && !connect(fd, (struct sockaddr *)&name, length));
        exchange(fd, 1);
        char word;
        MUST(recv(fd, &word, 1, 0) == 1);
        both_ways(fd);
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    MUST(fd >= 0);
    exchange(fd, 0);
    waits(fd);
    MUST(send(fd, "x", 1, 0) == 1);
    both_ways(fd);
    MUST(waitpid(peer, &status, 0) == peer && !status);
    for (char name[] = "1"; *name < '4'; ++*name) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            execl(words[0], words[0], name, NULL);
            _exit(127);
        }
        MUST(waitpid(child, &status, 0) == child && !status);
    }
    return 0;
}
