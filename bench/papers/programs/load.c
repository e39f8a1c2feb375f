// Requests in a closed loop over connections of one program, one request under way on each.
//
//   load PORT CONNECTIONS REQUEST ANSWER keep|close raw|http CONTROL
//
// REQUEST and ANSWER are files: what is sent, and what must come back: all of it, or with "http" its body
// (a head before it is read and left out). "close": each request has a connection of its own, which ends
// with the answer. A line "NANOSECONDS COMPARE" begins a turn, which is answered by a line of JSON: answers,
// wall time and this process's processor time in ns, the 99th percentile of latencies in ns, and the
// congestion control that a connection says it has. COMPARE: each byte is compared with what it
// must be; otherwise an answer's length, and the first and last bytes that a read brings.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct bytes {
    char *at;
    size_t length;
};
struct link {
    int fd, ends;         // how much of "\r\n\r\n" has been seen; 4: the body is coming
    size_t got;           // of the answer
    uint64_t began;
};

static struct bytes request, answer;
static int port, closes, http, compares;
static const char *controlled;
static char *room;
enum { ROOM = 1 << 18 };

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static struct bytes whole(const char *path) {
    int fd = open(path, O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) err(1, "%s", path);
    struct bytes b = {malloc(st.st_size + 1), st.st_size};
    if (read(fd, b.at, b.length) != (ssize_t)b.length) err(1, "%s", path);
    close(fd);
    return b;
}

static void ask(struct link *l) {
    l->got = 0;
    l->ends = http ? 0 : 4;
    l->began = now(CLOCK_MONOTONIC);
    for (size_t sent = 0; sent < request.length;) {
        ssize_t n = send(l->fd, request.at + sent, request.length - sent, MSG_NOSIGNAL);
        if (n > 0) {
            sent += n;
        } else if (n == 0 || errno != EAGAIN) {
            err(1, "send");
        } else {
            // (Its answer comes when all of it is there: nothing is missed meanwhile.)
            struct pollfd p = {.fd = l->fd, .events = POLLOUT};
            poll(&p, 1, 20000);
        }
    }
}

static void open_link(struct link *l, int set) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0) err(1, "socket");
    if (setsockopt(l->fd, IPPROTO_TCP, TCP_CONGESTION, controlled, strlen(controlled))) err(1, "congestion control %s", controlled);
    if (closes) {
        // Of many addresses, so that no search for a port meets those that ended lately.
        static uint32_t nth;
        struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + nth++ % 200)};
        setsockopt(l->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(l->fd, (void *)&from, sizeof from)) err(1, "bind");
    }
    if (connect(l->fd, (void *)&to, sizeof to)) err(1, "connect");
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(l->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};
    if (epoll_ctl(set, EPOLL_CTL_ADD, l->fd, &e)) err(1, "epoll");
}

// Whether the answer is complete.
static int pull(struct link *l) {
    for (;;) {
        ssize_t n = recv(l->fd, room, ROOM, 0);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) errx(1, "the server ended a connection after %zu of %zu bytes", l->got, answer.length);
        char *at = room;
        while (n && l->ends < 4) {
            l->ends = *at == "\r\n\r\n"[l->ends] ? l->ends + 1 : *at == '\r';
            at++, n--;
        }
        if ((size_t)n > answer.length - l->got) errx(1, "an answer is longer than it must be");
        if (n && (compares ? memcmp(at, answer.at + l->got, n) : at[0] != answer.at[l->got] || at[n - 1] != answer.at[l->got + n - 1]))
            errx(1, "an answer is wrong within %zd bytes from byte %zu on", n, l->got);
        l->got += n;
        if (l->ends == 4 && l->got == answer.length) return 1;
        if (n < ROOM / 2 && !closes) return 0;
    }
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int count, char **words) {
    if (count != 8) errx(2, "PORT CONNECTIONS REQUEST ANSWER keep|close raw|http CONTROL");
    port = atoi(words[1]);
    int connections = atoi(words[2]);
    request = whole(words[3]), answer = whole(words[4]);
    closes = !strcmp(words[5], "close"), http = !strcmp(words[6], "http"), controlled = words[7];
    room = malloc(ROOM);
    struct link *links = calloc(connections, sizeof *links);
    int set = epoll_create1(0);
    for (int i = 0; !closes && i < connections; i++) open_link(&links[i], set);
    enum { MOST = 1 << 20 };
    static uint64_t late[MOST];
    unsigned long long nanos, compare;
    char has[16] = "";
    while (scanf("%llu %llu", &nanos, &compare) == 2) {
        compares = compare;
        uint64_t begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID), answers = 0;
        int busy = connections;
        for (int i = 0; i < connections; i++) {
            if (closes) open_link(&links[i], set);
            ask(&links[i]);
        }
        while (busy) {
            struct epoll_event events[64];
            int n = epoll_wait(set, events, 64, 20000);
            if (n <= 0) errx(1, "nothing has come back for 20 s");
            for (int i = 0; i < n; i++) {
                struct link *l = events[i].data.ptr;
                if (!pull(l)) continue;
                uint64_t at = now(CLOCK_MONOTONIC);
                late[answers++ % MOST] = at - l->began;
                if (busy == 1) {
                    socklen_t size = sizeof has - 1;
                    getsockopt(l->fd, IPPROTO_TCP, TCP_CONGESTION, has, &size);
                }
                if (closes) close(l->fd);
                if (at - begin >= nanos) {
                    busy--;
                } else {
                    if (closes) open_link(l, set);
                    ask(l);
                }
            }
        }
        uint64_t wall = now(CLOCK_MONOTONIC) - begin, used = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        size_t kept = answers < MOST ? answers : MOST;
        qsort(late, kept, sizeof *late, by_size);
        printf("{\"control\": \"%s\", \"answers\": %llu, \"wall\": %llu, \"cpu\": %llu, \"p99\": %llu}\n", has, (unsigned long long)answers, (unsigned long long)wall,
               (unsigned long long)used, (unsigned long long)late[kept * 99 / 100]);
        fflush(stdout);
    }
}
