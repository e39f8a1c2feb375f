/* A server sends one value again and again to a client that does not look at it, over one connection. What it costs each end, in processor time.
 *
 *     cc -O2 -o sent_again sent_again.c
 *     [uncopy run --tcp --] ./sent_again KIND BYTES TIMES [PART]
 *
 * KIND: `made` (by the program, once), `copied` (input, copied once, as a cache's), `rewritten` (whole, before each send), `counted` (a word of it,
 * before each send), `now-and-then` (whole, before each 20th). PART: the client receives so many bytes at most at once, each time to the same
 * place. Says: KIND BYTES, and each end's microseconds for a message. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(what) \
    do { \
        if (!(what)) { \
            perror(#what); \
            _exit(1); \
        } \
    } while (0)

static double used(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void sends(int fd, const char *at, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        MUST(sent > 0);
        at += sent, n -= (size_t)sent;
    }
}

static void receives(int fd, char *at, size_t n) {
    while (n > 0) {
        ssize_t got = recv(fd, at, n, 0);
        MUST(got > 0);
        at += got, n -= (size_t)got;
    }
}

static void receives_in_parts(int fd, char *at, size_t n, size_t part) {
    while (n > 0) {
        ssize_t got = recv(fd, at, n < part ? n : part, 0);
        MUST(got > 0);
        n -= (size_t)got;
    }
}

static char *pages(size_t n) {
    char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

/* As `malloc` would place it. */
static char *value_of(const char *kind, size_t n) {
    char *value = pages(n + 64) + 16;
    if (strcmp(kind, "copied") != 0) {
        memset(value, 'v', n);
        return value;
    }
    static void *(*volatile copies)(void *, const void *, size_t) = memcpy;
    char *came = pages(n);
    int ends[2];
    MUST(pipe(ends) == 0);
    for (size_t got = 0; got < n;) {
        char part[4096] = {'v'};
        MUST(write(ends[1], part, sizeof part) == sizeof part);
        ssize_t more = read(ends[0], came + got, n - got < sizeof part ? n - got : sizeof part);
        MUST(more > 0);
        got += (size_t)more;
    }
    return copies(value, came, n);
}

int main(int count, char **words) {
    if (count != 4 && count != 5) return fprintf(stderr, "%s KIND BYTES TIMES [PART]\n", *words), 2;
    const char *kind = words[1];
    size_t bytes = strtoull(words[2], NULL, 0), times = strtoull(words[3], NULL, 0), warm = times / 10 + 50, part = count > 4 ? strtoull(words[4], NULL, 0) : 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, told[2];
    MUST(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
    MUST(getsockname(listener, (struct sockaddr *)&at, &length) == 0 && pipe(told) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        MUST(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        char *room = pages(bytes), byte = 'n';
        double begun = 0;
        for (size_t i = 0; i < warm + times; i++) {
            if (i == warm) begun = used();
            sends(fd, &byte, 1);
            if (part > 0) receives_in_parts(fd, room, bytes, part);
            else receives(fd, room, bytes);
        }
        double each = (used() - begun) / (double)times;
        MUST(write(told[1], &each, sizeof each) == sizeof each);
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    MUST(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char *value = value_of(kind, bytes), byte;
    double begun = 0;
    for (size_t i = 0; i < warm + times; i++) {
        if (i == warm) begun = used();
        receives(fd, &byte, 1);
        if (strcmp(kind, "rewritten") == 0 || (strcmp(kind, "now-and-then") == 0 && i % 20 == 0)) memset(value, (int)i, bytes);
        if (strcmp(kind, "counted") == 0) value[bytes / 2]++;
        sends(fd, value, bytes);
    }
    double each = (used() - begun) / (double)times, theirs;
    MUST(read(told[0], &theirs, sizeof theirs) == sizeof theirs && waitpid(child, NULL, 0) == child);
    printf("%s %zu: server %.1f us, client %.1f us\n", kind, bytes, each, theirs);
    return 0;
}
