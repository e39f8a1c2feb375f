/* Streams by every call of input and output, blocking: sizes from a byte to more than a ring holds; looking without taking, waiting for all. */
#include "connection.h"

enum { MOST = 1 << 20 };
static char out[MOST], in[MOST];
static const size_t sizes[] = {1, 2, 7, 64, 1000, 4096, 5000, 65536, 100000, 262144, 262145, 300000, MOST};
enum { SIZES = sizeof sizes / sizeof *sizes, CALLS = 5 };

static void sends(int fd, int call, const char *at, size_t n) {
    size_t third = n / 3;
    struct iovec parts[3] = {{(void *)at, third}, {(void *)(at + third), third}, {(void *)(at + 2 * third), n - 2 * third}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    ssize_t sent = -1;
    switch (call) {
    case 0: sent = write(fd, at, n); break;
    case 1: sent = send(fd, at, n, 0); break;
    case 2: sent = sendto(fd, at, n, 0, NULL, 0); break;
    case 3: sent = writev(fd, parts, 3); break;
    case 4: sent = sendmsg(fd, &message, 0); break;
    }
    if (sent != (ssize_t)n) say("WRONG: call %d sent %zd of %zu (%s)", call, sent, n, strerror(errno));
}
static ssize_t receives(int fd, int call, char *at, size_t n) {
    size_t third = n / 3;
    struct iovec parts[3] = {{at, third}, {at + third, third}, {at + 2 * third, n - 2 * third}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    ssize_t got = -1;
    switch (call) {
    case 0: return read(fd, at, n);
    case 1: return recv(fd, at, n, 0);
    case 2:
        got = recvfrom(fd, at, n, 0, (struct sockaddr *)&from, &len);
        if (got >= 0 && len != 0) say("WRONG: an address of %u bytes", len);
        return got;
    case 3: return readv(fd, parts, 3);
    case 4:
        got = recvmsg(fd, &message, 0);
        if (got >= 0 && message.msg_flags != 0) say("WRONG: flags %x", (unsigned)message.msg_flags);
        return got;
    }
    return got;
}

static void server(int fd) {
    for (int round = 0; round < SIZES * CALLS; round++) {
        size_t n = sizes[round / CALLS], got = 0;
        while (got < n) {
            ssize_t more = receives(fd, round % CALLS, in + got, n - got);
            MUST(more > 0);
            got += (size_t)more;
        }
        MUST(is(in, n, (unsigned)round, 0));
        sends(fd, (round + 1) % CALLS, in, n);
    }
    /* The end of the stream, and after it the other way still goes. */
    MUST(recv(fd, in, 10, 0) == 0);
    MUST(send(fd, "late", 4, 0) == 4);
    close(fd);
}
static void *writer(void *fd) {
    fill(out, MOST, 99, 0);
    send_all((int)(long)fd, out, MOST);
    return NULL;
}
static void client(int fd) {
    for (int round = 0; round < SIZES * CALLS; round++) {
        size_t n = sizes[round / CALLS];
        fill(out, n, (unsigned)round, 0);
        sends(fd, round % CALLS, out, n);
        if (n > 10) {
            char peeked[10];
            MUST(recv(fd, peeked, 10, MSG_PEEK | MSG_WAITALL) > 0);
            MUST(is(peeked, 1, (unsigned)round, 0));
        }
        memset(in, 0, n);
        MUST(recv(fd, in, n, MSG_WAITALL) == (ssize_t)n);
        MUST(is(in, n, (unsigned)round, 0));
    }
    if (under_tcp() && counter("tcp_sent_bytes") < 100000) say("NOT BY RINGS: %lu", counter("tcp_sent_bytes"));
    MUST(shutdown(fd, SHUT_WR) == 0);
    MUST(recv(fd, in, 10, MSG_WAITALL) == 4 && memcmp(in, "late", 4) == 0);
    MUST(recv(fd, in, 10, 0) == 0);
    close(fd);
}

/* Both directions at once, each by a thread of its own. */
static void both_ways(int fd) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, writer, (void *)(long)fd) == 0);
    size_t got = 0;
    while (got < MOST) {
        ssize_t more = recv(fd, in + got, MOST - got, 0);
        MUST(more > 0);
        got += (size_t)more;
    }
    MUST(is(in, MOST, 99, 0));
    pthread_join(thread, NULL);
}

int main(void) {
    run_pair("request and answer", server, client);
    run_pair("both ways at once", both_ways, both_ways);
    return 0;
}
