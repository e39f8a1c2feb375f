// The cost of a message to all programs that it goes through: a source, some relays, a sink, each a process, connected over loopback. The
// sink answers each message by a byte. It looks at all bytes of each message (all), or of one in 256 only (none); what it looks at it
// compares.
//
//     gcc -O2 -o relay bench/experiments/relay.c
//     for with in no yes; do target/release/uncopy run --tcp --tcp-references=$with -- ./relay 1048576 none 1 2000; done
//
// relay BYTES all|none HOPS MILLISECONDS: prints messages, and user and system time of all processes for a message. Each process is executed
// anew, so that each is a program of its own under uncopy. Bytes of a message: a multiple of 8.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHANGES = 64, LOOKS = 256, WARMS = 320 };

static void must(int good, const char *what) {
    if (!good) perror(what), exit(1);
}

static int at_once(int fd) {
    int one = 1;
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    return fd;
}

static int listener(int *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(fd, (void *)&at, len) == 0 && listen(fd, 1) == 0 && getsockname(fd, (void *)&at, &len) == 0, "listen");
    *port = ntohs(at.sin_port);
    return fd;
}

static int connected(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(fd, (void *)&at, sizeof at) == 0, "connect");
    return at_once(fd);
}

static void give(int fd, const char *from, size_t n) {
    for (ssize_t sent; n > 0; from += sent, n -= (size_t)sent) must((sent = send(fd, from, n, 0)) > 0, "send");
}

static int get(int fd, char *to, size_t n) {
    for (ssize_t got; n > 0; to += got, n -= (size_t)got)
        if ((got = recv(fd, to, n, 0)) <= 0) return 0;
    return 1;
}

static uint64_t word(uint64_t message, size_t i) { return message / CHANGES * 0x9e3779b97f4a7c15u + i; }

static void sink(int fd, char *at, size_t n, int all) {
    for (uint64_t message = 0; get(fd, at, n); message++) {
        for (size_t i = 0; (all || message % LOOKS == 0) && i < n / 8; i++) {
            if (((uint64_t *)at)[i] == word(message, i)) continue;
            fprintf(stderr, "WRONG byte near %zu of message %lu\n", i * 8, message);
            exit(3);
        }
        give(fd, "k", 1);
    }
}

static void relay(int from, int to, char *at, size_t n) {
    char answer;
    while (get(from, at, n)) {
        give(to, at, n);
        must(get(to, &answer, 1), "an answer");
        give(from, &answer, 1);
    }
}

static uint64_t source(int fd, char *at, size_t n, double seconds) {
    struct timespec begun, now;
    uint64_t message = 0;
    char answer;
    for (clock_gettime(CLOCK_MONOTONIC, &begun);; message++) {
        if (message % CHANGES == 0) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            if (message >= WARMS && (double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) / 1e9 > seconds) return message;
            for (size_t i = 0; i < n / 8; i++) ((uint64_t *)at)[i] = word(message, i);
        }
        give(fd, at, n);
        must(get(fd, &answer, 1), "an answer");
    }
}

static pid_t begin(char **words) {
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) execv("/proc/self/exe", words), perror("exec"), _exit(1);
    return child;
}

int main(int count, char **words) {
    if (count != 5) return fprintf(stderr, "relay BYTES all|none HOPS MILLISECONDS\n"), 2;
    size_t n = strtoul(words[1], NULL, 10);
    char *at = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    if (getenv("RELAY_ROLE")) {
        // (A role, the listener's number, the port of the next.)
        int l, next;
        char role;
        must(sscanf(getenv("RELAY_ROLE"), "%c %d %d", &role, &l, &next) == 3, "RELAY_ROLE");
        if (role == 'o') return printf("%lu\n", source(connected(next), at, n, atof(words[4]) / 1000)), 0;
        int onward = role == 'r' ? connected(next) : -1;
        int from = at_once(accept(l, NULL, NULL));
        if (role == 'r') relay(from, onward, at, n);
        else sink(from, at, n, strcmp(words[2], "all") == 0);
        return 0;
    }
    int hops = atoi(words[3]), port = 0, out[2], status;
    for (int i = 0; i <= hops; i++) {
        char role[64];
        int mine, l = listener(&mine);
        snprintf(role, sizeof role, "%c %d %d", i ? 'r' : 's', l, port);
        setenv("RELAY_ROLE", role, 1);
        begin(words);
        close(l), port = mine;
    }
    char role[64], line[64] = "";
    snprintf(role, sizeof role, "o 0 %d", port);
    setenv("RELAY_ROLE", role, 1);
    must(pipe(out) == 0, "pipe");
    int own = dup(1);
    dup2(out[1], 1), close(out[1]);
    begin(words);
    dup2(own, 1);
    must(read(out[0], line, sizeof line - 1) > 0, "the source");
    while (wait(&status) > 0) must(status == 0, "a process");
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    double us = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    printf("%s bytes, %s, %d hops: %lu messages, %.2f us each\n", words[1], words[2], hops, strtoul(line, NULL, 10), us / (double)strtoul(line, NULL, 10));
    return 0;
}
