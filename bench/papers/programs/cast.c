// A source and its listeners for Icecast, in one program.
//
//   cast PORT LISTENERS CONTROL
//
// A line "BYTES" begins a turn: so many bytes are sent to the server in pieces of 64 KB, never more than
// 512 KB ahead of the slowest listener, until every listener has them; a line of JSON answers: bytes that all listeners
// received, wall time and this process's processor time in ns. Every byte is compared: the stream repeats 65,521 random bytes,
// in which a listener finds its place by the first that it gets.
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
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD = 65521, PIECE = 65536, AHEAD = 512 << 10, MOST = 256 };
static unsigned char stream[PERIOD + PIECE * 8];
static char room[PIECE * 4];

struct listener {
    int fd, ends;         // of "\r\n\r\n"
    int64_t at;           // place in the period of what comes next; below 0: not known yet
    uint64_t got;         // in this turn
    size_t begun;
    unsigned char head[64];
};
static struct listener listeners[MOST];
static struct pollfd polled[MOST + 1];

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int opened(int port, const char *name) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name))) err(1, "congestion control %s", name);
    if (connect(fd, (void *)&to, sizeof to)) err(1, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void take(struct listener *l) {
    ssize_t n = recv(l->fd, room, sizeof room, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) errx(1, "a listener was dropped");
    char *from = room;
    while (n && l->ends < 4) {
        l->ends = *from == "\r\n\r\n"[l->ends] ? l->ends + 1 : *from == '\r';
        from++, n--;
    }
    while (n && l->at < 0) {
        l->head[l->begun++] = *from++;
        n--, l->got++;
        if (l->begun < sizeof l->head) continue;
        unsigned char *found = memmem(stream, PERIOD + sizeof l->head, l->head, sizeof l->head);
        if (!found) errx(1, "a listener got what was never sent");
        l->at = (found - stream + sizeof l->head) % PERIOD;
    }
    if (!n) return;
    if (memcmp(from, stream + l->at, n)) errx(1, "a listener got a wrong byte");
    l->at = (l->at + n) % PERIOD;
    l->got += n;
}

int main(int count, char **words) {
    if (count != 4) errx(2, "PORT LISTENERS CONTROL");
    int port = atoi(words[1]), n = atoi(words[2]);
    if (n > MOST) errx(2, "at most %d listeners", MOST);
    srandom(1);
    for (size_t i = 0; i < PERIOD; i++) stream[i] = random() >> 8;
    for (size_t i = PERIOD; i < sizeof stream; i++) stream[i] = stream[i - PERIOD];
    int source = opened(port, words[3]);
    const char *hello = "SOURCE /live HTTP/1.0\r\nAuthorization: Basic c291cmNlOnNlY3JldA==\r\nContent-Type: audio/mpeg\r\n\r\n";
    if (send(source, hello, strlen(hello), 0) != (ssize_t)strlen(hello) || recv(source, room, 1000, 0) <= 0 || !memmem(room, 100, "200", 3))
        errx(1, "the server takes no source");
    uint64_t place = 0;
    if (send(source, stream, PIECE * 2, 0) != PIECE * 2) err(1, "send");
    place += PIECE * 2;
    usleep(1500000);
    for (int i = 0; i < n; i++) {
        listeners[i] = (struct listener){.fd = opened(port, words[3]), .at = -1};
        const char *get = "GET /live HTTP/1.0\r\n\r\n";
        if (send(listeners[i].fd, get, strlen(get), 0) <= 0) err(1, "send");
        polled[i] = (struct pollfd){.fd = listeners[i].fd, .events = POLLIN};
    }
    fcntl(source, F_SETFL, O_NONBLOCK);
    polled[n].fd = source;
    unsigned long long bytes;
    while (scanf("%llu", &bytes) == 1) {
        // Messages under way still come first.
        for (polled[n].events = 0; poll(polled, n + 1, 1000) > 0;)
            for (int i = 0; i < n; i++)
                if (polled[i].revents) take(&listeners[i]);
        for (int i = 0; i < n; i++) listeners[i].got = 0;
        uint64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID), sent = 0, least = 0;
        while (least < bytes) {
            int sends = sent < bytes && sent < least + AHEAD;
            polled[n].events = sends ? POLLOUT : 0;
            if (poll(polled, n + 1, 20000) <= 0) errx(1, "nothing has come for 20 s: %llu of %llu", (unsigned long long)least, bytes);
            if (sends && polled[n].revents) {
                size_t most = bytes - sent < PIECE ? bytes - sent : PIECE;
                ssize_t more = send(source, stream + place % PERIOD, most, MSG_NOSIGNAL);
                if (more < 0 && errno != EAGAIN) err(1, "send");
                if (more > 0) sent += more, place += more;
            }
            least = -1ull;
            for (int i = 0; i < n; i++) {
                if (polled[i].revents) take(&listeners[i]);
                if (listeners[i].got < least) least = listeners[i].got;
            }
        }
        printf("{\"bytes\": %llu, \"wall\": %llu, \"cpu\": %llu}\n", bytes * n, (unsigned long long)(now(CLOCK_MONOTONIC) - wall),
               (unsigned long long)(now(CLOCK_PROCESS_CPUTIME_ID) - cpu));
        fflush(stdout);
    }
}
