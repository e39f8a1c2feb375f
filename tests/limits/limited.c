/* A program whose memory is limited: it takes large blocks, fills, copies and frees them, and receives what it is sent.
 *
 *   limited blocks ROUNDS         twelve blocks of up to 3 MB, each filled, copied and freed, again and again
 *   limited phases ROUNDS         as much in large blocks and in small ones, in turn
 *   limited uploads MESSAGES MB   messages from standard input, each in pieces that are joined, as servers collect them
 *   limited idle                  much that is copied and freed, and then nothing: until a line comes, then some more copies
 *   limited forks                 the same, and children that are made without libc's handlers and use blocks
 *   limited sends HOW CONNECTIONS MESSAGES
 *                                 messages of 1 MB by TCP to a child, which `reads` them, or `keeps` a page of each, or reads them and
 *                                 then `waits` with what follows until nothing more can be sent
 *
 * Says "fine" where every byte is what it should be. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void wrong(const char *what) {
    printf("WRONG: %s (%s)\n", what, strerror(errno));
    exit(1);
}

static char *block(size_t bytes) {
    char *b = malloc(bytes);
    if (!b) wrong("malloc");
    return b;
}

static void whole(int fd, char *to, size_t bytes) {
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(fd, to + got, bytes - got < 65536 ? bytes - got : 65536);
        if (n <= 0) wrong("read");
        got += n;
    }
}

static unsigned sum(const char *p, size_t bytes) {
    unsigned s = 0;
    for (size_t i = 0; i < bytes; i += 997) s = s * 31 + (unsigned char)p[i];
    return s;
}

/* So many bytes arrive in `to` by a socket, as input that may be elided. */
static int ends[2];
static void arrives(char *to, size_t bytes, char mark) {
    static char page[65536];
    memset(page, mark, sizeof page);
    for (size_t at = 0; at < bytes; at += sizeof page) {
        size_t part = bytes - at < sizeof page ? bytes - at : sizeof page;
        if (write(ends[0], page, part) != (ssize_t)part) wrong("write");
        whole(ends[1], to + at, part);
    }
}

/* `count` blocks of `bytes` that are copied from one another. */
static void copied(int count, size_t bytes, char mark) {
    char *first = block(bytes), *blocks[64];
    arrives(first, bytes, mark);
    for (int i = 0; i < count; i++) {
        blocks[i] = block(bytes);
        memcpy(blocks[i], i ? blocks[i - 1] : first, bytes);
    }
    for (int i = 0; i < count; i++) {
        if (blocks[i][0] != mark || blocks[i][bytes - 1] != mark) wrong("a copy's bytes");
        /* (A write to each page: all of it has memory.) */
        for (size_t at = 0; at < bytes; at += 4096) blocks[i][at] = mark + 1;
        if (blocks[i][8192] != (char)(mark + 1) || blocks[i][8193] != mark) wrong("a changed copy's bytes");
    }
    free(first);
    for (int i = 0; i < count; i++) free(blocks[i]);
}

static void uploads(int messages, size_t bytes) {
    enum { PIECE = 65536 };
    for (int m = 0; m < messages; m++) {
        size_t count = bytes / PIECE, n = 0;
        char **pieces = calloc(count, sizeof *pieces);
        for (; n < count; n++) {
            pieces[n] = block(PIECE);
            whole(0, pieces[n], PIECE);
        }
        char *message = block(bytes);
        for (n = 0; n < count; n++) {
            memcpy(message + n * PIECE, pieces[n], PIECE);
            free(pieces[n]);
        }
        free(pieces);
        unsigned s = sum(message, bytes);
        if (write(1, &s, sizeof s) != sizeof s) wrong("write");
        free(message);
    }
}

enum { MESSAGE = 1 << 20, CONNECTIONS = 32, KEPT = 1000, PAGE = 4096 };
static int connections[CONNECTIONS];

static char byte_of(int message, size_t at) { return (char)((size_t)message * 131 + at * 7 + (at >> 12)); }
static void check_bytes(const char *p, int message, size_t from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != byte_of(message, from + i)) wrong("a message's bytes");
}
static void all_of(int fd, const char *p, size_t bytes) {
    for (size_t sent = 0; sent < bytes;) {
        ssize_t n = send(fd, p + sent, bytes - sent, MSG_NOSIGNAL);
        if (n <= 0) wrong("send");
        sent += n;
    }
}
static void into(int fd, char *p, size_t bytes) {
    for (size_t got = 0; got < bytes;) {
        ssize_t n = recv(fd, p + got, bytes - got, 0);
        if (n <= 0) wrong("recv");
        got += n;
    }
}

/* The child. */
static void receives(const char *how, int count, int messages, int told) {
    char *buffer = block(MESSAGE), *kept[KEPT];
    for (int m = 0; m < messages; m++) {
        if (!strcmp(how, "keeps")) {
            char *p = mmap(0, MESSAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED) wrong("mmap");
            into(connections[m % count], p, MESSAGE);
            kept[m] = p + 57 * PAGE;
            if (munmap(p, 57 * PAGE) || munmap(p + 58 * PAGE, MESSAGE - 58 * PAGE)) wrong("munmap");
        } else {
            into(connections[m % count], buffer, MESSAGE);
            if (m % 16 == 0) check_bytes(buffer, m, 0, MESSAGE);
        }
        all_of(connections[m % count], "a", 1);
    }
    for (int m = 0; m < messages && !strcmp(how, "keeps"); m++) check_bytes(kept[m], m, 57 * PAGE, PAGE);
    if (!strcmp(how, "waits")) {
        uint64_t sent[CONNECTIONS];
        if (read(told, sent, sizeof sent) != sizeof sent) wrong("what was sent");
        for (int i = 0; i < count; i++)
            for (uint64_t at = 0; at < sent[i];) {
                ssize_t n = recv(connections[i], buffer, MESSAGE, 0);
                if (n <= 0) wrong("recv");
                for (ssize_t k = 0; k < n; k++)
                    if (buffer[k] != byte_of(i, (at + k) % MESSAGE)) wrong("a byte of much");
                at += n;
            }
    }
}

static void sends(const char *how, int count, int messages) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int tells[2], status, listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    unsigned long (*counter)(const char *) = (unsigned long (*)(const char *))dlsym(RTLD_DEFAULT, "uncopy_counter");
    if (bind(listener, (struct sockaddr *)&at, length) || listen(listener, CONNECTIONS) || pipe(tells)) wrong("listen");
    if (getsockname(listener, (struct sockaddr *)&at, &length)) wrong("getsockname");
    pid_t child = fork();
    if (child < 0) wrong("fork");
    for (int i = 0; i < count; i++) {
        if (child) {
            connections[i] = accept(listener, 0, 0);
        } else {
            connections[i] = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(connections[i], (struct sockaddr *)&at, length)) wrong("connect");
        }
        if (setsockopt(connections[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) wrong("setsockopt");
    }
    close(listener);
    /* Until all are at rings. */
    for (int n = 0, ends = 0; !ends; n++) {
        char byte = 'g';
        if (child) ends = n >= 20 && (!counter || !getenv("UNCOPY_TCP") || counter("tcp_connections") >= (unsigned)count || n > 4000);
        for (int i = 0; i < count; i++) {
            if (child) byte = ends ? 'e' : 'g', all_of(connections[i], &byte, 1), into(connections[i], &byte, 1);
            else into(connections[i], &byte, 1), ends = byte == 'e', all_of(connections[i], &byte, 1);
        }
        if (child && n > 50) usleep(500);
    }
    if (!child) {
        receives(how, count, messages, tells[0]);
        exit(0);
    }
    char *buffer = block(MESSAGE);
    uint64_t sent[CONNECTIONS] = {0};
    for (int m = 0; m < messages; m++) {
        char answer;
        for (size_t k = 0; k < MESSAGE; k++) buffer[k] = byte_of(m, k);
        all_of(connections[m % count], buffer, MESSAGE);
        into(connections[m % count], &answer, 1);
    }
    if (!strcmp(how, "waits")) {
        for (int quiet = 0; quiet < 20;) {
            quiet++;
            for (int i = 0; i < count; i++) {
                for (size_t k = 0; k < MESSAGE; k++) buffer[k] = byte_of(i, k);
                for (int m = 0; m < 4; m++) {
                    size_t skip = sent[i] % MESSAGE;
                    ssize_t n = send(connections[i], buffer + skip, MESSAGE - skip, MSG_DONTWAIT | MSG_NOSIGNAL);
                    if (n <= 0) break;
                    sent[i] += n, quiet = 0;
                }
            }
            usleep(5000);
        }
        if (write(tells[1], sent, sizeof sent) != sizeof sent) wrong("write");
    }
    if (waitpid(child, &status, 0) != child || status) wrong("the child's end");
    puts("fine");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) wrong("socketpair");
    if (!strcmp(what, "uploads")) {
        uploads(atoi(argv[2]), (size_t)atoi(argv[3]) << 20);
        return 0;
    }
    setvbuf(stdout, 0, _IOLBF, 0);
    if (!strcmp(what, "sends")) {
        sends(argv[2], atoi(argv[3]), atoi(argv[4]));
        return 0;
    }
    if (!strcmp(what, "blocks")) {
        for (int round = 0; round < atoi(argv[2]); round++) {
            char *blocks[12];
            for (int i = 0; i < 12; i++) {
                size_t bytes = (size_t)(1 + (round + i) % 3) << 20;
                blocks[i] = block(bytes);
                if (i == 0) arrives(blocks[0], bytes, round);
                else memset(blocks[i], round, bytes);
            }
            memcpy(blocks[3], blocks[0], 1 << 20);
            if (blocks[3][1 << 19] != (char)round) wrong("a block's bytes");
            for (int i = 0; i < 12; i++) free(blocks[(i * 5) % 12]);
        }
        puts("fine");
        return 0;
    }
    if (!strcmp(what, "phases")) {
        enum { LARGE = 24, SMALL = 3072, PARTS = (LARGE << 20) / SMALL };
        char **parts = malloc(PARTS * sizeof *parts);
        for (int round = 0; round < atoi(argv[2]); round++) {
            copied(LARGE - 1, 1 << 20, 'a' + round);
            for (int i = 0; i < PARTS; i++) memset(parts[i] = block(SMALL), round, SMALL);
            for (int i = 0; i < PARTS; i++) {
                if (parts[i][SMALL / 2] != (char)round) wrong("a small block's bytes");
                free(parts[i]);
            }
        }
        puts("fine");
        return 0;
    }
    for (int i = 0; i < 40; i++) copied(12, 1 << 20, 'a' + i % 20);
    copied(40, 1 << 20, 'x');
    puts("waits");
    if (!strcmp(what, "forks"))
        for (int i = 0; i < 600; i++) {
            if (i % 40 == 0) copied(12, 1 << 20, 'f');
            pid_t child = i % 2 ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (child < 0) wrong("fork");
            if (child == 0) {
                for (int n = 1; n < 30; n++) {
                    char *b = block((size_t)n << 14);
                    memset(b, n, (size_t)n << 14);
                    free(b);
                }
                _exit(7);
            }
            int status;
            if (waitpid(child, &status, 0) != child || status != 7 << 8) wrong("a child's end");
        }
    char line[8];
    if (read(0, line, sizeof line) <= 0) wrong("a line");
    copied(12, 1 << 20, 'z');
    puts("fine");
    return 0;
}
