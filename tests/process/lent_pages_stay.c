/* Buffers are sent again and again while the peer reads late: what lies in its queue must stay what it was when it was sent,
 * though every buffer is updated, freed and used again at once. Over TCP and UNIX sockets and a pipe, with the peer in this process
 * and in a forked one, and with forks in between.
 *
 *   lent_pages_stay [MEGABYTES]      so much is sent in all (default 192; the long form is 10240) */
#include "process.h"
#include <poll.h>

#define KEYS 6
#define LARGEST (1ul << 20)
static char *value[KEYS];
static size_t size[KEYS];
static unsigned number[KEYS], next = 1;
static uint64_t seed = 12345;
static unsigned draw(unsigned n) { return (unsigned)((seed = seed * 6364136223846793005ull + 1442695040888963407ull) >> 33) % n; }

struct channel {
    int in, out;
    const char *name;
    int split; /* frame and value in calls of their own: whole pages */
    pid_t reader;
};

/* The record's frame: number and size, the value, an end mark. */
/* (The effect of BBR on it: connections_that_are_not_paced.) */
static void tcp(struct channel *c) { tcp_pair(&c->out, &c->in, "reno"); }

static void renew(int k) {
    number[k] = next++;
    receive(value[k], size[k], number[k]);
}

static void allocate(int k) {
    size[k] = draw(2) ? LARGEST : 65536 + draw(900) * 1000;
    value[k] = malloc(size[k]);
    renew(k);
}

/* Reads and checks a record, or a part of one, as far as there is something; raw, so that the reading side is not uncopy's. */
static unsigned char *at_reader;
static size_t reader_has;
static int read_some(struct channel *c) {
    unsigned head[4];
    if (reader_has < sizeof head) {
        long n = RAW(SYS_read, c->in, at_reader + reader_has, sizeof head - reader_has);
        if (n <= 0) return 0;
        reader_has += (size_t)n;
        return 1;
    }
    memcpy(head, at_reader, sizeof head);
    size_t whole = sizeof head + head[1] + 2;
    long n = RAW(SYS_read, c->in, at_reader + reader_has, whole - reader_has);
    if (n <= 0) return 0;
    reader_has += (size_t)n;
    if (reader_has == whole) {
        if (!is_input(at_reader + sizeof head, head[1], head[0], 0) || memcmp(at_reader + whole - 2, "\r\n", 2)) {
            say("WRONG: record %u over %s", head[0], c->name);
            exit(1);
        }
        reader_has = 0;
    }
    return 1;
}

static void drain(struct channel *c, int all) {
    struct pollfd p = {.fd = c->in, .events = POLLIN};
    for (;;) {
        p.revents = 0;
        int ready = poll(&p, 1, all && reader_has ? 1000 : 0);
        if (ready <= 0 || !read_some(c)) return;
        if (!all && draw(3) == 0) return;
    }
}

/* Sends one value in a frame; while there is no room, the peer in this process reads. */
static size_t send_value(struct channel *c, int k, int here) {
    unsigned head[4] = {number[k], (unsigned)size[k], 0, 0};
    struct iovec part[3] = {{head, sizeof head}, {value[k], size[k]}, {"\r\n", 2}};
    size_t total = sizeof head + size[k] + 2, sent = 0;
    int first = 0;
    while (sent < total) {
        ssize_t n = writev(c->out, part + first, c->split ? 1 : 3 - first);
        if (n < 0) {
            MUST(errno == EAGAIN);
            if (here) drain(c, 0);
            struct pollfd p = {.fd = c->out, .events = POLLOUT};
            poll(&p, 1, here ? 0 : 1000);
            continue;
        }
        sent += (size_t)n;
        while (first < 3 && (size_t)n >= part[first].iov_len) n -= (ssize_t)part[first++].iov_len;
        if (first < 3) {
            part[first].iov_base = (char *)part[first].iov_base + n;
            part[first].iov_len -= (size_t)n;
        }
    }
    return total;
}

/* Everything that can happen to a buffer that was just sent. */
static void change(int k) {
    switch (draw(8)) {
    case 0: case 1: case 2: break; /* sent again as it is */
    case 3: renew(k); break;       /* received into */
    case 4: memset(value[k], 0xee, size[k]), renew(k); break;
    case 5: free(value[k]), allocate(k); break;
    case 6: {                      /* copied over */
        int other = (int)draw(KEYS);
        if (other != k && size[other] >= size[k]) {
            void *(*volatile copy)(void *, const void *, size_t) = memcpy;
            copy(value[k], value[other], size[k]);
            number[k] = number[other];
        }
        break;
    }
    default: memset(value[k] + draw((unsigned)size[k]), 0xaa, 1), renew(k); break;
    }
}

static void run(struct channel *c, int here, size_t bytes) {
    uint64_t lent = counter("lent_bytes");
    seed = 99;
    if (!here) {
        c->reader = fork();
        MUST(c->reader >= 0);
        if (c->reader == 0) {
            close(c->out);
            for (;;) {
                /* late: what was sent has been changed long before */
                struct timespec t = {0, 2000000};
                if (draw(20) == 0) nanosleep(&t, NULL);
                if (!read_some(c)) break;
            }
            _exit(reader_has ? 1 : 0);
        }
        close(c->in);
    }
    /* After the fork: pages that a child shares are never moved. */
    for (int k = 0; k < KEYS; k++) allocate(k);
    MUST(fcntl(c->out, F_SETFL, O_NONBLOCK) == 0);
    pid_t me = getpid();
    for (size_t sent = 0; sent < bytes;) {
        int k = (int)draw(KEYS), times = 1 + (int)draw(5);
        for (int i = 0; i < times; i++) sent += send_value(c, k, here);
        change(k);
        if (draw(40) == 0) {
            pid_t pid = fork();
            MUST(pid >= 0);
            if (pid == 0) {
                /* The child's own writes must not reach what its parent has sent. */
                for (int j = 0; j < KEYS; j++) memset(value[j], 0xdd, size[j]), free(value[j]);
                char *again = malloc(4 * LARGEST);
                memset(again, 0xcc, 4 * LARGEST);
                _exit(again[LARGEST] == (char)0xcc ? 0 : 1);
            }
            int status;
            if (draw(2)) change((int)draw(KEYS));
            MUST(waitpid(pid, &status, 0) == pid && status == 0);
        }
        MUST(getpid() == me);
    }
    if (here) drain(c, 1);
    close(c->out);
    if (here) {
        while (read_some(c)) continue;
        MUST(reader_has == 0);
        close(c->in);
    } else {
        int status = -1;
        MUST(waitpid(c->reader, &status, 0) == c->reader);
        MUST(status == 0);
    }
    for (int k = 0; k < KEYS; k++) free(value[k]);
    if (eager() && counter("lent_bytes") == lent) say("%s: NOTHING ELIDED by reference", c->name);
    say("right: %s, %s", c->name, here ? "the peer in this process" : "the peer in another");
}

int main(int argc, char **argv) {
    size_t megabytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 192;
    at_reader = malloc(LARGEST + 4096);
    ELIDED_COPY(fresh(SIZE), VIEW(7), SIZE);
    for (int here = 0; here < 2; here++) {
        struct channel t = {.name = "TCP"}, u = {.name = "a UNIX socket"}, p = {.name = "a pipe", .split = 1};
        tcp(&t);
        run(&t, here, megabytes * (1 << 20) / 6);
        int pair[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        u.in = pair[0], u.out = pair[1];
        run(&u, here, megabytes * (1 << 20) / 6);
        MUST(pipe(pair) == 0);
        p.in = pair[0], p.out = pair[1];
        run(&p, here, megabytes * (1 << 20) / 6);
    }
    if (eager() && counter("dropped_pages") == 0) say("NOTHING ELIDED: no page was dropped");
    return finish();
}
