/* Connections that stay with Linux, each mode for another reason: `stays MODE [PORT]`. With a port
 * the other end is somebody else's; else both are this process's. Says "there" when all is done, and
 * ends with its input. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "failed: %s: %s (line %d)\n", #what, strerror(errno), __LINE__); \
            exit(3); \
        } \
    } while (0)

static int connected(const char *address, int port, int flags) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    MUST(fd >= 0 && inet_pton(AF_INET, address, &at.sin_addr) == 1);
    int failed = connect(fd, (struct sockaddr *)&at, sizeof at);
    MUST(!failed || errno == EINPROGRESS);
    return fd;
}
static void pair(int listens, int end[2]) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    MUST(getsockname(listens, (struct sockaddr *)&at, &length) == 0);
    end[0] = connected("127.0.0.1", ntohs(at.sin_port), 0);
    end[1] = accept(listens, NULL, NULL);
    MUST(end[1] >= 0);
}
/* The library's count. */
static unsigned long long counter(const char *name) {
    unsigned long long (*of)(const char *) =
        (unsigned long long (*)(const char *))dlsym(RTLD_DEFAULT, "uncopy_counter");
    return of ? of(name) : 0;
}
static void goes(int from, int to, int times) {
    for (char byte; times > 0; times--) MUST(write(from, "x", 1) == 1 && read(to, &byte, 1) == 1);
}
/* There and back until so many are counted, a minute at most. */
static void goes_until(int a, int b, const char *name, unsigned long long n) {
    for (int i = 0; i < 6000 && counter(name) < n; i++) {
        goes(a, b, 1);
        if (a != b) goes(b, a, 1);
        usleep(10000);
    }
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    int port = count > 2 ? atoi(words[2]) : 0, end[2] = {-1, -1}, is_short = !strcmp(mode, "short");
    int listens = socket(AF_INET, SOCK_STREAM, 0);
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog all = {1, &allow};
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    MUST(listens >= 0 && bind(listens, (struct sockaddr *)&here, sizeof here) == 0);
    MUST(listen(listens, 8) == 0);
    if (!strcmp(mode, "waiting") || !strcmp(mode, "forked") || !strcmp(mode, "rings")) {
        /* Now the service is there. */
        pair(listens, end);
        goes_until(end[0], end[1], "tcp_connections", 2);
    }
    if (!strcmp(mode, "remote")) {
        connected("10.99.99.2", 9, SOCK_NONBLOCK);
    } else if (port) {
        end[0] = connected("127.0.0.1", port, 0);
        goes(end[0], end[0], 10);
        if (!strcmp(mode, "peer-not-here"))
            goes_until(end[0], end[0], "tcp_stayed_peer", 1);
        if (!strcmp(mode, "forked")) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            MUST(waitpid(child, NULL, 0) == child);
        }
        if (!strcmp(mode, "waiting")) close(end[0]);
    } else if (strcmp(mode, "rings")) {
        if (!strcmp(mode, "io-uring")) {
            struct io_uring_params asked = {0};
            syscall(SYS_io_uring_setup, 8, &asked);
        }
        if (!strcmp(mode, "sandbox")) {
            MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
            MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0);
        }
        int last = -1, full = !strcmp(mode, "no-memory");
        if (full) {
            for (int fd; (fd = dup(listens)) >= 0;) last = fd;
            close(last), close(last - 1);
        }
        for (int i = 0; i < (strcmp(mode, "over-limit") ? 1 : 2); i++) {
            pair(listens, end);
            if (!strcmp(mode, "used")) MUST(fdopen(end[0], "r+") && fdopen(end[1], "r+"));
            for (int k = 0; k < 2 && !strcmp(mode, "filtered"); k++)
                MUST(setsockopt(end[k], SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof all) == 0);
            if (is_short) goes(end[0], end[1], 1);
            if (!strcmp(mode, "no-service")) goes_until(end[0], end[1], "tcp_stayed_service", 2);
            if (!strcmp(mode, "over-limit"))
                goes_until(end[0], end[1], i ? "tcp_stayed_limit" : "tcp_connections", i ? 1 : 2);
            if (is_short) close(end[0]), close(end[1]);
        }
    }
    puts("there");
    fflush(stdout);
    for (char byte; read(0, &byte, 1) > 0;) {}
    return 0;
}
