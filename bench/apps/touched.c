// An echo server that receives messages of 64 KB, copies each once, writes to every page of the copy, and sends that: eliding such a copy can only lose.
// One thread, epoll by edge; of small.py.
//
//     touched PORT
#define _GNU_SOURCE
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE = 64 << 10, PAGE = 4096, EVENTS = 64 };

struct connection {
    int fd, answers; // it is being answered
    size_t done; // of the message, or of the answer
    char *received, *copied;
};

static void accepted(int epoll, int fd) {
    struct connection *c = calloc(1, sizeof *c);
    if (!c || !(c->received = malloc(MESSAGE)) || !(c->copied = malloc(MESSAGE))) err(1, "memory");
    c->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct epoll_event e = {EPOLLIN | EPOLLOUT | EPOLLET, {.ptr = c}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e)) err(1, "epoll_ctl");
}

static void answer(struct connection *c) {
    memcpy(c->copied, c->received, MESSAGE);
    for (size_t at = 0; at < MESSAGE; at += PAGE) {
        volatile char *byte = c->copied + at + 64;
        *byte = *byte;
    }
    c->answers = 1, c->done = 0;
}

static void ended(struct connection *c) {
    close(c->fd);
    free(c->received), free(c->copied), free(c);
}

static void served(struct connection *c) {
    for (;;) {
        ssize_t n = c->answers ? send(c->fd, c->copied + c->done, MESSAGE - c->done, MSG_NOSIGNAL) : recv(c->fd, c->received + c->done, MESSAGE - c->done, 0);
        if (n == 0) return ended(c);
        if (n < 0) return;
        c->done += (size_t)n;
        if (c->done < MESSAGE) continue;
        if (c->answers)
            c->answers = 0, c->done = 0;
        else
            answer(c);
    }
}

int main(int count, char **words) {
    if (count != 2) errx(2, "usage: touched PORT");
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(words[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 100)) err(1, "port %s", words[1]);
    struct epoll_event e = {EPOLLIN, {.ptr = NULL}}, events[EVENTS];
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e)) err(1, "epoll_ctl");
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) {
                served(events[i].data.ptr);
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            if (fd >= 0) accepted(epoll, fd);
        }
    }
}
