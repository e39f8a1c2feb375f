/* A client of memcached: stores one value, and gets it again and again on some connections, one after the other.
 *
 *   gets PORT BYTES CONNECTIONS COUNT        says how many seconds the GETs took */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}
static void sends(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent <= 0) fail("send");
        p += sent, n -= sent;
    }
}
static size_t receives(int fd, char *p, size_t least, size_t most) {
    size_t got = 0;
    while (got < least) {
        ssize_t n = recv(fd, p + got, most - got, 0);
        if (n <= 0) fail("recv");
        got += n;
    }
    return got;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    size_t bytes = strtoul(argv[2], 0, 10);
    int connections = atoi(argv[3]), count = atoi(argv[4]), one = 1, fds[64];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < connections; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fds[i], (struct sockaddr *)&at, sizeof at)) fail("connect");
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    char *value = malloc(bytes + 2), *answer = malloc(bytes + 200), head[100];
    for (size_t i = 0; i < bytes; i++) value[i] = (char)(i * 31 + (i >> 8));
    memcpy(value + bytes, "\r\n", 2);
    int n = snprintf(head, sizeof head, "set k 0 0 %zu\r\n", bytes);
    sends(fds[0], head, n), sends(fds[0], value, bytes + 2);
    receives(fds[0], answer, 8, 200);
    if (memcmp(answer, "STORED\r\n", 8)) return fprintf(stderr, "memcached: %.20s\n", answer), 1;
    n = snprintf(head, sizeof head, "VALUE k 0 %zu\r\n", bytes);
    size_t whole = n + bytes + 2 + 5;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < count; i++) {
        int fd = fds[i % connections];
        sends(fd, "get k\r\n", 7);
        receives(fd, answer, whole, whole);
        if (i % 256 == 0 && memcmp(answer + n, value, bytes)) return fprintf(stderr, "wrong bytes\n"), 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("took %.6f s\n", (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9);
    return 0;
}
