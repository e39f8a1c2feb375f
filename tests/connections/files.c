/* Files over a connection: sendfile and splice, little and much, between messages that are sent otherwise, blocking and not. */
#include "connection.h"
#include <sys/mman.h>

enum { MOST = 3 << 20 };
static char bytes[MOST];
static int file;

static void sends(int fd, int blocking) {
    size_t at = 0;
    for (int round = 0; round < 200; round++) {
        size_t n = (size_t)(round * 7919) % (round % 10 == 9 ? 400000 : 20000) + 1;
        char header[8];
        memcpy(header, &n, 8);
        send_all(fd, header, 8);
        /* Parts that are not in memory have to be waited for. */
        if (round % 20 == 7) posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        off_t from = (off_t)at, end = from + (off_t)n;
        while (from < end) {
            ssize_t sent = sendfile(fd, file, &from, (size_t)(end - from));
            if (sent < 0 && !blocking && errno == EAGAIN) {
                struct pollfd p = {.fd = fd, .events = POLLOUT};
                MUST(poll(&p, 1, 10000) == 1);
                continue;
            }
            MUST(sent > 0);
        }
        at = (at + n) % (MOST - 400001);
        char answer;
        if (round % 3 == 0) receive_all(fd, &answer, 1);
    }
    lseek(file, 100, SEEK_SET);
    MUST(blocking == 0 || sendfile(fd, file, NULL, 1000) == 1000);
    if (blocking) say("the file is at %ld", (long)lseek(file, 0, SEEK_CUR));
    close(fd);
}
static void sends_blocking(int fd) { sends(fd, 1); }
static void sends_nonblocking(int fd) { nonblocking(fd, 1), sends(fd, 0); }

static void receives(int fd) {
    static char in[500000];
    size_t at = 0;
    for (int round = 0; round < 200; round++) {
        size_t n;
        receive_all(fd, (char *)&n, 8);
        MUST(n < sizeof in);
        receive_all(fd, in, n);
        MUST(is(in, n, 1, at));
        at = (at + n) % (MOST - 400001);
        if (round % 3 == 0) send_all(fd, "a", 1);
    }
    size_t rest = 0;
    ssize_t got;
    while ((got = recv(fd, in, sizeof in, 0)) > 0) rest += (size_t)got;
    say("%zu more", rest);
    close(fd);
}

static void splices(int fd) {
    int pipes[2];
    MUST(pipe(pipes) == 0);
    for (size_t at = 0; at < 300000;) {
        loff_t from = (loff_t)at;
        ssize_t n = splice(file, &from, pipes[1], NULL, 30000, 0);
        MUST(n > 0);
        at += (size_t)n;
        while (n > 0) {
            ssize_t sent = splice(pipes[0], NULL, fd, NULL, (size_t)n, 0);
            MUST(sent > 0);
            n -= sent;
        }
        char answer;
        receive_all(fd, &answer, 1);
    }
    close(fd);
}
static void takes_parts(int fd) {
    static char in[30000];
    for (size_t at = 0; at < 300000; at += sizeof in) {
        receive_all(fd, in, sizeof in);
        MUST(is(in, sizeof in, 1, at));
        send_all(fd, "a", 1);
    }
    close(fd);
}

int main(void) {
    char name[] = "/tmp/connection-file-XXXXXX";
    file = mkstemp(name);
    MUST(file >= 0 && unlink(name) == 0);
    fill(bytes, MOST, 1, 0);
    MUST(write(file, bytes, MOST) == MOST && fsync(file) == 0);
    run_pair("sendfile", receives, sends_blocking);
    run_pair("sendfile without waiting", receives, sends_nonblocking);
    run_pair("splice", takes_parts, splices);
    /* A file that cannot say what of it is in memory, on some kernels. */
    close(file);
    file = memfd_create("connection-file", 0);
    MUST(file >= 0 && write(file, bytes, MOST) == MOST);
    run_pair("sendfile from memory", receives, sends_blocking);
    return 0;
}
