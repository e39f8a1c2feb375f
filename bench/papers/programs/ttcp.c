// ttcp, in turns: sends from a ring of buffers over one TCP connection, as the benchmark of "Zero-Copy
// TCP in Solaris" does, and reads it at the other end.
//
//   ttcp r LENGTH CONTROL                      prints its port; reads LENGTH bytes at a time
//   ttcp t LENGTH CONTROL PORT BUFFERS WAY     sends LENGTH bytes at a time out of BUFFERS buffers
//
// The sender takes a line "BYTES TOUCH COMPARE" for each turn and answers with a line of JSON: wall time
// and processor time (all threads of the process) of itself and of the receiver, in ns, from the first
// send until the receiver has said that it has all bytes. TOUCH: the sender writes every word before
// each send, the receiver reads every word. COMPARE: the receiver compares each word with what it must be.
// Both sockets have the congestion control CONTROL and buffers of the kernel's choice; the answer says what
// the sender's socket has.
//
// WAY: "send"; "protect": besides, as much other memory as a message is made read-only and writable again
// for each send, which is what protecting the buffer would take.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct turn {
    uint64_t bytes, touch, compare, seed;
};

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void exactly(int fd, void *to, size_t n) {
    for (size_t got = 0; got < n;) {
        ssize_t more = read(fd, (char *)to + got, n - got);
        if (more <= 0) errx(1, "the other end is gone");
        got += more;
    }
}

static void all(int fd, const void *from, size_t n) {
    for (size_t sent = 0; sent < n;) {
        ssize_t more = send(fd, (const char *)from + sent, n - sent, MSG_NOSIGNAL);
        if (more <= 0) err(1, "send");
        sent += more;
    }
}

// The word at this place of a ring of buffers.
static uint64_t word(uint64_t at, uint64_t seed) { return (at + 1) * 0x9e3779b97f4a7c15ull ^ seed; }

static void control(int fd, const char *name) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name))) err(1, "congestion control %s", name);
}

static void receiver(size_t length, const char *name) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    control(listener, name);
    if (bind(listener, (void *)&at, size) || listen(listener, 1)) err(1, "listen");
    getsockname(listener, (void *)&at, &size);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    uint64_t *buffer, ring;
    if (posix_memalign((void **)&buffer, 4096, length)) errx(1, "no memory");
    exactly(fd, &ring, sizeof ring);
    for (;;) {
        struct turn turn;
        if (read(fd, &turn, sizeof turn) != sizeof turn) return;
        uint64_t before = now(CLOCK_PROCESS_CPUTIME_ID), sum = 0;
        for (uint64_t got = 0; got < turn.bytes;) {
            // Whole buffers, as ttcp's -B does, so that words stay words.
            size_t want = turn.bytes - got < length ? turn.bytes - got : length;
            if (turn.touch || turn.compare) {
                exactly(fd, buffer, want);
                for (size_t i = 0; i < want / 8; i++) {
                    if (turn.compare) {
                        uint64_t must = word((got + i * 8) % ring, turn.seed);
                        if (buffer[i] != must)
                            errx(1, "byte %llu is wrong: %llx, not %llx", (unsigned long long)(got + i * 8), (unsigned long long)buffer[i],
                                 (unsigned long long)must);
                    }
                    sum += buffer[i];
                }
                got += want;
            } else {
                ssize_t more = read(fd, buffer, want);
                if (more <= 0) errx(1, "the sender is gone");
                got += more;
            }
        }
        uint64_t said[2] = {now(CLOCK_PROCESS_CPUTIME_ID) - before, sum};
        all(fd, said, sizeof said);
    }
}

static void fill(char *buffer, size_t from, size_t length, uint64_t seed) {
    for (size_t i = 0; i < length; i += 8) *(uint64_t *)(buffer + from + i) = word(from + i, seed);
}

static void sender(size_t length, const char *name, int port, size_t buffers, int protect) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    control(fd, name);
    if (connect(fd, (void *)&to, sizeof to)) err(1, "connect");
    uint64_t ring = length * buffers, seed = 0;
    char *buffer, *other = NULL;
    if (posix_memalign((void **)&buffer, 4096, ring)) errx(1, "no memory");
    if (protect) {
        other = mmap(NULL, ring, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (other == MAP_FAILED) err(1, "mmap");
    }
    fill(buffer, 0, ring, seed);
    all(fd, &ring, sizeof ring);
    struct turn turn;
    unsigned long long bytes, touch, compare;
    while (scanf("%llu %llu %llu", &bytes, &touch, &compare) == 3) {
        if (touch) seed++;
        turn = (struct turn){bytes - bytes % ring, touch, compare, seed};
        all(fd, &turn, sizeof turn);
        uint64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID), said[2];
        for (uint64_t sent = 0; sent < turn.bytes; sent += length) {
            size_t from = sent % ring;
            if (touch) fill(buffer, from, length, seed);
            if (protect && mprotect(other + from, length, PROT_READ)) err(1, "mprotect");
            all(fd, buffer + from, length);
            // (It is written between, so that the page tables have to say so again.)
            if (protect && mprotect(other + from, length, PROT_READ | PROT_WRITE)) err(1, "mprotect");
        }
        exactly(fd, said, sizeof said);
        char has[16] = "";
        socklen_t room = sizeof has - 1;
        getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, has, &room);
        printf("{\"control\": \"%s\", \"bytes\": %llu, \"wall\": %llu, \"sender\": %llu, \"receiver\": %llu}\n", has, (unsigned long long)turn.bytes,
               (unsigned long long)(now(CLOCK_MONOTONIC) - wall), (unsigned long long)(now(CLOCK_PROCESS_CPUTIME_ID) - cpu),
               (unsigned long long)said[0]);
        fflush(stdout);
    }
}

int main(int count, char **words) {
    if (count == 4 && *words[1] == 'r') {
        receiver(strtoul(words[2], NULL, 10), words[3]);
    } else if (count == 7 && *words[1] == 't') {
        sender(strtoul(words[2], NULL, 10), words[3], atoi(words[4]), strtoul(words[5], NULL, 10), !strcmp(words[6], "protect"));
    } else {
        errx(2, "r LENGTH CONTROL | t LENGTH CONTROL PORT BUFFERS send|protect");
    }
}
