/* Helpers that the programs of this directory share: two ends of a connection, each a process of its own, bytes that are known, and a look at
 * whether they went through rings. Each program runs plainly and under `uncopy run --tcp`, and says the same. */
#ifndef CONNECTION_H
#define CONNECTION_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...) {
    char line[512];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    line[n++] = '\n';
    if (write(1, line, (size_t)n) != n) _exit(9);
}
#define MUST(what) \
    do { \
        if (!(what)) { \
            say("failed: %s: %s (line %d)", #what, strerror(errno), __LINE__); \
            _exit(3); \
        } \
    } while (0)

/* Byte k of stream `seed`. */
static inline unsigned char byte_of(unsigned seed, size_t k) { return (unsigned char)((k * 131 + (k >> 8) * 7 + seed * 29) % 253); }
static inline void fill(char *to, size_t n, unsigned seed, size_t from) {
    for (size_t i = 0; i < n; i++) to[i] = (char)byte_of(seed, from + i);
}
static inline int is(const char *at, size_t n, unsigned seed, size_t from) {
    for (size_t i = 0; i < n; i++)
        if (at[i] != (char)byte_of(seed, from + i)) {
            say("WRONG byte %zu of stream %u", from + i, seed);
            return 0;
        }
    return 1;
}

static inline unsigned long counter(const char *name) {
    static unsigned long (*f)(const char *);
    if (!f) *(void **)&f = dlsym(RTLD_DEFAULT, "uncopy_counter");
    return f ? f(name) : 0;
}
static inline int under_tcp(void) { return getenv("UNCOPY_TCP") != NULL; }

/* A connection is Linux' still: the reasons that were counted say why. */
static inline void not_upgraded(void) {
    static const char *const REASONS[] = {"peer", "unconnected", "limit", "memory", "service", "remote", "use", "user", "io_uring", "sandbox", "forked", "filtered", "short", "waiting"};
    char why[300], name[40];
    int n = snprintf(why, sizeof why, "%lu begun", counter("tcp_begun"));
    for (size_t i = 0; i < sizeof REASONS / sizeof *REASONS; i++) {
        snprintf(name, sizeof name, "tcp_stayed_%s", REASONS[i]);
        unsigned long count = counter(name);
        if (count > 0) n += snprintf(why + n, sizeof why - (size_t)n, ", %s %lu", REASONS[i], count);
    }
    say("NOT UPGRADED: %s", why);
}

static inline int listener(struct sockaddr_in *at) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(fd >= 0);
    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET, at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && listen(fd, 100) == 0);
    socklen_t len = sizeof *at;
    MUST(getsockname(fd, (struct sockaddr *)at, &len) == 0);
    return fd;
}
static inline int connected(const struct sockaddr_in *at) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
    int one = 1;
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    return fd;
}
static inline int accepted(int listener) {
    int fd = accept(listener, NULL, NULL);
    MUST(fd >= 0);
    return fd;
}
static inline void nonblocking(int fd, int on) {
    int flags = fcntl(fd, F_GETFL);
    MUST(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}
static inline void send_all(int fd, const char *at, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            poll(&p, 1, 1000);
            continue;
        }
        MUST(sent > 0);
        at += sent, n -= (size_t)sent;
    }
}
static inline void receive_all(int fd, char *at, size_t n) {
    while (n > 0) {
        ssize_t got = recv(fd, at, n, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            poll(&p, 1, 1000);
            continue;
        }
        if (got == 0) say("WRONG: the stream has ended");
        MUST(got > 0);
        at += got, n -= (size_t)got;
    }
}

/* One byte from one end of this process's to the other. */
static inline void talk_within(int from, int to) {
    char byte = 't';
    send_all(from, &byte, 1);
    receive_all(to, &byte, 1);
}
/* `n` connections of this process with itself, which have talked until all are at rings. */
static inline void connect_within(int n, int *far_end, int *near_end) {
    struct sockaddr_in at;
    int l = listener(&at);
    for (int i = 0; i < n; i++) far_end[i] = connected(&at), near_end[i] = accepted(l);
    for (int k = 0; k < 20000; k++) {
        for (int i = 0; i < n; i++) talk_within(far_end[i], near_end[i]), talk_within(near_end[i], far_end[i]);
        if (k > 200 && (!under_tcp() || counter("tcp_connections") >= 2 * (unsigned)n)) break;
        if (under_tcp()) usleep(500);
    }
    if (under_tcp() && counter("tcp_connections") < 2 * (unsigned)n) not_upgraded();
    close(l);
}

/* A descriptor, with a byte, over a UNIX socket (SCM_RIGHTS). */
struct handing {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part;
    struct msghdr message;
};
static inline struct msghdr *handing(struct handing *room) {
    memset(room, 0, sizeof *room);
    room->byte = 'x';
    room->part = (struct iovec){&room->byte, 1};
    room->message = (struct msghdr){.msg_iov = &room->part, .msg_iovlen = 1, .msg_control = room->control, .msg_controllen = sizeof room->control};
    return &room->message;
}
static inline void hand_over(int by, int fd) {
    struct handing room;
    struct msghdr *message = handing(&room);
    struct cmsghdr *rights = CMSG_FIRSTHDR(message);
    rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    MUST(sendmsg(by, message, 0) == 1);
}
static inline int handed_over(int by) {
    struct handing room;
    struct msghdr *message = handing(&room);
    MUST(recvmsg(by, message, 0) == 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(message)), sizeof fd);
    return fd;
}

/* Both ends talk until bytes go through rings (plainly: a few times). `first`: who begins. */
static inline void warm_up(int fd, int first) {
    char byte = 'w', end = 0;
    for (int i = 0; !end; i++) {
        int enough = !under_tcp() ? i >= 20 : counter("tcp_connections") > 0 && i >= 200;
        if (under_tcp() && i > 20000) {
            not_upgraded();
            enough = 1;
        }
        if (first) {
            byte = enough ? 'e' : 'w';
            send_all(fd, &byte, 1);
            receive_all(fd, &byte, 1);
            end = byte == 'e';
        } else {
            receive_all(fd, &byte, 1);
            if (byte == 'e' && !enough) byte = 'w';
            send_all(fd, &byte, 1);
            end = byte == 'e';
        }
        if (under_tcp() && i > 200) usleep(500);
    }
}

/* Where ONLY stands in the environment it names the one part to run. */
static inline int is_wanted(const char *name) { return !getenv("ONLY") || strcmp(getenv("ONLY"), name) == 0; }

/* The other end, in a process of its own: its exit status must be 0. */
static pid_t other;
static inline void other_ends(void) {
    int status = 0;
    MUST(waitpid(other, &status, 0) == other);
    if (WIFSIGNALED(status)) say("the other end was killed by %s", strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status)) say("the other end ended with %d", WEXITSTATUS(status));
}

/* Runs `server` in a child, and `client` here, over one connection that is warmed up; each is given its end. */
static inline void run_pair(const char *name, void (*server)(int), void (*client)(int)) {
    if (!is_wanted(name)) return;
    struct sockaddr_in at;
    int l = listener(&at);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        int fd = accepted(l);
        close(l);
        warm_up(fd, 0);
        server(fd);
        _exit(0);
    }
    close(l);
    int fd = connected(&at);
    warm_up(fd, 1);
    client(fd);
    other_ends();
    say("%s: done", name);
}
#endif
