/* A plain echo server for the soak: takes connections at any time, copies what it receives three times between buffers of its
 * own, sends the last copy back. A connection's buffers live as long as it does.
 *
 *   echo          prints the port of 127.0.0.1 on which it listens; ends with standard input */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIZE (256 << 10)

typedef struct {
    int fd;
    char *received, *copies[3];
    size_t have, sent;
} Connection;

static void leave(Connection *c)
{
    close(c->fd);
    free(c->received);
    for (int i = 0; i < 3; i++) free(c->copies[i]);
    free(c);
}

/* Returns 0 when the connection has come to its end. */
static int advance(Connection *c)
{
    for (;;) {
        if (c->sent == c->have) {
            ssize_t n = recv(c->fd, c->received, SIZE, 0);
            if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
            if (n <= 0) return 0;
            c->have = (size_t)n;
            c->sent = 0;
            char *from = c->received;
            for (int i = 0; i < 3; i++) {
                memcpy(c->copies[i], from, c->have);
                from = c->copies[i];
            }
        }
        ssize_t n = send(c->fd, c->copies[2] + c->sent, c->have - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
        if (n < 0) return 0;
        c->sent += (size_t)n;
    }
}

int main(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 64) ||
        getsockname(listener, (struct sockaddr *)&at, &length)) {
        perror("echo");
        return 1;
    }
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = &listener }, in = { .events = EPOLLIN, .data.ptr = 0 };
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &e);
    epoll_ctl(poll, EPOLL_CTL_ADD, 0, &in);
    for (;;) {
        struct epoll_event ready[64];
        int n = epoll_wait(poll, ready, 64, -1);
        for (int i = 0; i < n; i++) {
            if (!ready[i].data.ptr) return 0;
            if (ready[i].data.ptr != &listener) {
                Connection *c = ready[i].data.ptr;
                if (!advance(c)) leave(c);
                continue;
            }
            int fd = accept4(listener, 0, 0, SOCK_NONBLOCK);
            if (fd < 0) continue;
            Connection *c = calloc(1, sizeof *c);
            if (!c) return 1;
            c->fd = fd;
            c->received = malloc(SIZE);
            for (int k = 0; k < 3; k++) c->copies[k] = malloc(SIZE);
            struct epoll_event new = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c };
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &new);
        }
    }
}
