/* A server in the way of memcached with a log of its own: kv PORT LOG
 *
 * A thread takes connections and hands each to one of four by a pipe; these wait by epoll. `set KEY 0 0 LENGTH\r\nBYTES\r\n` is appended to the
 * log, synced, and then answered by `STORED\r\n`. At the start it reads its log, and cuts a torn end off. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { THREADS = 4, ROOM = 64 << 10, KEY = 64 };

#define MUST(x) ((x) ? (void)0 : (perror(#x), _exit(9)))

struct connection {
    int fd;
    size_t filled;
    char bytes[ROOM];
};

static int file, ends[THREADS][2];

/* The command at the beginning of the bytes: how long it is, 0 if it is not all there; its key and its value. */
static size_t command(const char *bytes, size_t filled, char *key, const char **value, size_t *length) {
    const char *line = memmem(bytes, filled, "\r\n", 2);
    if (!line) return 0;
    MUST(sscanf(bytes, "set %63s 0 0 %zu\r\n", key, length) == 2 && *length < ROOM - 256);
    size_t head = line + 2 - bytes, all = head + *length + 2;
    *value = bytes + head;
    return all <= filled ? all : 0;
}

/* A record of the log is a command as it came. */
static void keeps(const char *record, size_t length) {
    MUST(write(file, record, length) == (ssize_t)length);
    MUST(fdatasync(file) == 0);
}

/* False: the connection has ended. */
static int serves(struct connection *its) {
    ssize_t n = read(its->fd, its->bytes + its->filled, ROOM - its->filled);
    if (n <= 0) return 0;
    its->filled += n;
    for (;;) {
        char key[KEY];
        const char *value;
        size_t length, all = command(its->bytes, its->filled, key, &value, &length);
        if (!all) return its->filled < ROOM;
        keeps(its->bytes, all);
        struct iovec answer[2] = {{"STORED", 6}, {"\r\n", 2}};
        struct msghdr message = {.msg_iov = answer, .msg_iovlen = 2};
        if (sendmsg(its->fd, &message, MSG_NOSIGNAL) != 8) return 0;
        memmove(its->bytes, its->bytes + all, its->filled -= all);
    }
}

static void *works(void *end) {
    struct epoll_event event = {.events = EPOLLIN}, events[16];
    int set = epoll_create1(0), pipe_end = *(int *)end;
    MUST(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, pipe_end, &event) == 0);
    for (;;) {
        int n = epoll_wait(set, events, 16, -1);
        for (int i = 0; i < n; i++) {
            struct connection *its = events[i].data.ptr;
            if (its) {
                if (serves(its)) continue;
                close(its->fd);
                free(its);
                continue;
            }
            MUST((its = malloc(sizeof *its)) && read(pipe_end, &its->fd, sizeof its->fd) == sizeof its->fd);
            its->filled = 0;
            event = (struct epoll_event){.events = EPOLLIN, .data.ptr = its};
            MUST(epoll_ctl(set, EPOLL_CTL_ADD, its->fd, &event) == 0);
        }
    }
    return NULL;
}

/* What of the log is whole. */
static off_t whole(void) {
    struct stat is;
    MUST(fstat(file, &is) == 0);
    char *bytes = malloc(is.st_size + 1), key[KEY];
    const char *value;
    size_t length, at = 0, all;
    MUST(bytes && pread(file, bytes, is.st_size, 0) == is.st_size);
    while (is.st_size - at > 4 && !memcmp(bytes + at, "set ", 4) && (all = command(bytes + at, is.st_size - at, key, &value, &length))) at += all;
    free(bytes);
    return at;
}

int main(int argc, char **argv) {
    MUST(argc == 3 && (file = open(argv[2], O_RDWR | O_CREAT | O_APPEND, 0600)) >= 0);
    MUST(ftruncate(file, whole()) == 0 && fsync(file) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        MUST(pipe(ends[i]) == 0 && pthread_create(&thread, NULL, works, &ends[i][0]) == 0);
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    MUST(bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 64) == 0);
    for (unsigned i = 0;; i++) {
        int fd = accept(listener, NULL, NULL);
        MUST(fd >= 0 && write(ends[i % THREADS][1], &fd, sizeof fd) == sizeof fd);
    }
}
