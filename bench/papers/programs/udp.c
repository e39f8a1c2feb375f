// The cost of a datagram to its sender: copied by the kernel, or by reference in the ways that Linux
// has.
//
//   udp ADDRESS SIZES             to a port of ADDRESS; at 127.0.0.1 what arrives is received, without counting
//
//   send       send
//   splice     vmsplice into a pipe, splice from it into the socket: what uncopy does with streams
//   zerocopy   send with MSG_ZEROCOPY, its completions reaped
//
// The payload is one of 64 buffers that were written long ago. Prints JSON: for each size and way the median of ns of the thread's processor
// time for a datagram, over turns of 256. Bytes that arrive at 127.0.0.1 are compared with those that were sent in the first turn
// of each.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif
enum { BUFFERS = 64, ROOM = 65536, TURN = 256, BATCH = 8, TURNS = 201 };

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void reap(int fd, int *left) {
    while (*left > 0) {
        char control[256];
        struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(fd, &m, MSG_ERRQUEUE) < 0) return;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            struct sock_extended_err *e = (void *)CMSG_DATA(c);
            if (e->ee_origin == SO_EE_ORIGIN_ZEROCOPY) *left -= e->ee_data - e->ee_info + 1;
        }
    }
}

int main(int count, char **words) {
    if (count != 3) errx(2, "ADDRESS SIZES");
    char *buffers = mmap(NULL, BUFFERS * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *got = malloc(ROOM);
    for (size_t i = 0; i < BUFFERS * ROOM; i++) buffers[i] = i * 31 + (i >> 12);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr(words[1])};
    socklen_t length = sizeof to;
    int sink = -1, room = 4 << 20, one = 1;
    if (!strcmp(words[1], "127.0.0.1")) {
        to.sin_port = 0;
        sink = socket(AF_INET, SOCK_DGRAM, 0);
        setsockopt(sink, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
        if (bind(sink, (void *)&to, length)) err(1, "bind");
        getsockname(sink, (void *)&to, &length);
    }
    const char *ways[] = {"send", "splice", "zerocopy"};
    int sockets[3], pipes[2], left = 0;
    for (int way = 0; way < 3; way++) {
        sockets[way] = socket(AF_INET, SOCK_DGRAM, 0);
        setsockopt(sockets[way], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        if (connect(sockets[way], (void *)&to, sizeof to)) err(1, "connect");
    }
    if (setsockopt(sockets[2], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one)) err(1, "SO_ZEROCOPY");
    if (pipe(pipes)) err(1, "pipe");
    printf("[");
    for (char *word = strtok(words[2], ","), *first = word; word; word = strtok(NULL, ",")) {
        size_t size = strtoul(word, NULL, 10);
        static uint64_t took[3][TURNS];
        for (int turn = 0; turn < TURNS; turn++)
            for (int way = 0; way < 3; way++) {
                uint64_t sum = 0;
                for (int i = 0; i < TURN; i += BATCH) {
                    uint64_t before = now();
                    for (int j = i; j < i + BATCH; j++) {
                        char *from = buffers + (size_t)(j % BUFFERS) * ROOM;
                        ssize_t n;
                        if (way == 1) {
                            struct iovec v = {from, size};
                            if (vmsplice(pipes[1], &v, 1, 0) != (ssize_t)size) err(1, "vmsplice");
                            n = splice(pipes[0], NULL, sockets[1], NULL, size, 0);
                        } else {
                            n = send(sockets[way], from, size, way == 2 ? MSG_ZEROCOPY : 0);
                            left += way == 2;
                        }
                        if (n != (ssize_t)size) err(1, "%s of %zu bytes: %zd", ways[way], size, n);
                    }
                    if (way == 2 && sink < 0) reap(sockets[2], &left);
                    sum += now() - before;
                    for (int j = i; sink >= 0 && j < i + BATCH; j++) {
                        ssize_t n = recv(sink, got, ROOM, 0);
                        if (n != (ssize_t)size) errx(1, "%s: a datagram of %zd bytes came, not of %zu", ways[way], n, size);
                        if (turn == 0 && memcmp(got, buffers + (size_t)(j % BUFFERS) * ROOM, size)) errx(1, "%s: a datagram is wrong", ways[way]);
                    }
                    if (way == 2 && sink >= 0) {
                        before = now();
                        reap(sockets[2], &left);
                        sum += now() - before;
                    }
                }
                took[way][turn] = sum / TURN;
            }
        printf("%s{\"size\": %zu", word == first ? "" : ", ", size);
        for (int way = 0; way < 3; way++) {
            qsort(took[way], TURNS, sizeof **took, by_size);
            printf(", \"%s\": %llu", ways[way], (unsigned long long)took[way][TURNS / 2]);
        }
        printf("}");
    }
    printf("]\n");
}
