/* A server sends the same values again and again, to clients that keep what they received without looking at it. Meanwhile the server overwrites the
 * values, forks, and ends: what was received stays what it was. */
#include "connection.h"
#include <sys/mman.h>

enum { SIZE = 1 << 20, TIMES = 6, VERSIONS = 5 };

static char *pages(size_t n) {
    char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

/* The value of a version comes by a pipe, and is copied to where it is kept, as a cache's would. */
static void is_filled(char *value, int version) {
    static char *came, bytes[SIZE];
    static void *(*volatile copies)(void *, const void *, size_t) = memcpy;
    if (!came) came = pages(SIZE);
    fill(bytes, SIZE, (unsigned)version, 0);
    int ends[2];
    MUST(pipe(ends) == 0);
    for (size_t got = 0; got < SIZE;) {
        MUST(write(ends[1], bytes + got, 1 << 16) == 1 << 16);
        for (size_t until = got + (1 << 16); got < until;) {
            ssize_t n = read(ends[0], came + got, until - got);
            MUST(n > 0);
            got += (size_t)n;
        }
    }
    close(ends[0]);
    close(ends[1]);
    copies(value, came, SIZE);
}

static void sends(int fd) {
    char *value = pages(SIZE), byte;
    for (int version = 0; version < VERSIONS; version++) {
        is_filled(value, version);
        for (int i = 0; i < TIMES; i++) {
            send_all(fd, value, SIZE);
            receive_all(fd, &byte, 1);
            if (i == 3 && version % 2) {
                pid_t child = fork();
                MUST(child >= 0);
                if (child == 0) _exit(is(value, SIZE, (unsigned)version, 0) ? 0 : 1);
                int status;
                MUST(waitpid(child, &status, 0) == child);
                if (status != 0) say("WRONG in a child: %d", status);
            }
        }
        if (!is(value, SIZE, (unsigned)version, 0)) say("WRONG where it is sent from");
        /* What was sent is overwritten, first by a byte and then by the next version. */
        value[SIZE / 2] ^= 1;
    }
    /* (The receiver has our arena only once it has said so.) */
    for (int i = 0; i < 300 && getenv("UNCOPY_TCP_BLOCKS") && counter("tcp_given_on_bytes") == 0; i++) {
        is_filled(value, VERSIONS);
        for (int times = 0; times < 3; times++) {
            send_all(fd, "m", 1);
            send_all(fd, value, SIZE);
        }
    }
    if (getenv("UNCOPY_TCP_BLOCKS") && counter("tcp_given_on_bytes") == 0) say("WRONG: nothing was sent where it lies");
    send_all(fd, "e", 1);
}

static void keeps(int fd) {
    static char *room[VERSIONS][TIMES];
    for (int version = 0; version < VERSIONS; version++) {
        for (int i = 0; i < TIMES; i++) {
            char *to = room[version][i] = pages(SIZE);
            for (size_t got = 0; got < SIZE;) {
                ssize_t n = recv(fd, to + got, SIZE - got, 0);
                MUST(n > 0);
                got += (size_t)n;
            }
            /* One is looked at now, and the others once their bytes have been others' for long. */
            if (i == 1 && !is(to, SIZE, (unsigned)version, 0)) say("WRONG at once: version %d", version);
            send_all(fd, "n", 1);
        }
        for (int i = 0; version > 1 && i < TIMES; i++)
            if (!is(room[version - 2][i], SIZE, (unsigned)version - 2, 0)) say("WRONG later: version %d, %d", version - 2, i);
    }
    char byte, *more = pages(SIZE);
    for (receive_all(fd, &byte, 1); byte == 'm'; receive_all(fd, &byte, 1)) receive_all(fd, more, SIZE);
    while (recv(fd, &byte, 1, 0) > 0) {}
    /* The sender has ended. */
    for (int version = VERSIONS - 2; version < VERSIONS; version++)
        for (int i = 0; i < TIMES; i++)
            if (!is(room[version][i], SIZE, (unsigned)version, 0)) say("WRONG after the end: version %d, %d", version, i);
}

/* Several receivers have the same block at once; one of them ends while it has it. */
static void sends_to_three(int fd) {
    struct sockaddr_in at;
    int l = listener(&at), others[2];
    send_all(fd, (char *)&at, sizeof at);
    char *value = pages(SIZE), byte;
    for (int i = 0; i < 2; i++) {
        int one = accepted(l);
        receive_all(one, &byte, 1);
        others[byte - '0'] = one;
    }
    is_filled(value, 7);
    for (int i = 0; i < 3 * TIMES; i++) {
        int to = i % 3 == 0 ? fd : others[i % 3 - 1];
        if (i >= TIMES && i % 3 == 2) continue;
        send_all(to, value, SIZE);
        receive_all(to, &byte, 1);
    }
    is_filled(value, 8);
    send_all(fd, value, SIZE);
    receive_all(fd, &byte, 1);
    close(others[0]);
    close(others[1]);
}

static void three_keep(int fd) {
    struct sockaddr_in at;
    receive_all(fd, (char *)&at, sizeof at);
    pid_t children[2];
    for (int other = 0; other < 2; other++) {
        pid_t child = children[other] = fork();
        MUST(child >= 0);
        if (child > 0) continue;
        close(fd);
        int mine = connected(&at), got_all = 0;
        send_all(mine, other ? "1" : "0", 1);
        char *rooms[3 * TIMES];
        for (;;) {
            char *to = rooms[got_all] = pages(SIZE);
            size_t got = 0;
            ssize_t n = 1;
            while (got < SIZE && (n = recv(mine, to + got, SIZE - got, 0)) > 0) got += (size_t)n;
            if (got < SIZE) break;
            got_all++;
            send_all(mine, "n", 1);
            if (other == 1 && got_all == 2) _exit(0);
        }
        for (int i = 0; i < got_all; i++)
            if (!is(rooms[i], SIZE, 7, 0)) say("WRONG at %d of receiver %d", i, other);
        _exit(0);
    }
    char *rooms[TIMES + 1];
    for (int i = 0; i < TIMES + 1; i++) {
        rooms[i] = pages(SIZE);
        receive_all(fd, rooms[i], SIZE);
        send_all(fd, "n", 1);
    }
    for (int i = 0; i < TIMES + 1; i++)
        if (!is(rooms[i], SIZE, i < TIMES ? 7 : 8, 0)) say("WRONG at %d", i);
    for (int i = 0; i < 2; i++) MUST(waitpid(children[i], NULL, 0) == children[i]);
}

/* A receiver keeps the same bytes more often than can be noted: the others are copies. */
enum { MANY = 50, LENGTH = 300001 };

static void sends_many(int fd) {
    char *value = pages(SIZE), byte;
    for (int version = 0; version < 2; version++) {
        is_filled(value, version);
        for (int i = 0; i < MANY; i++) {
            send_all(fd, value, LENGTH);
            receive_all(fd, &byte, 1);
        }
    }
}

static void keeps_many(int fd) {
    static char *room[2][MANY];
    for (int version = 0; version < 2; version++) {
        for (int i = 0; i < MANY; i++) {
            room[version][i] = pages(SIZE);
            receive_all(fd, room[version][i], LENGTH);
            send_all(fd, "n", 1);
        }
        /* Some go, and their place is taken. */
        for (int i = 0; i < MANY; i += 3) if (version == 0) munmap(room[0][i], SIZE);
    }
    for (int i = 0; i < MANY; i++) {
        if (i % 3 && !is(room[0][i], LENGTH, 0, 0)) say("WRONG at %d", i);
        if (!is(room[1][i], LENGTH, 1, 0)) say("WRONG at %d of the second", i);
    }
}

int main(void) {
    run_pair("kept", sends, keeps);
    run_pair("three", sends_to_three, three_keep);
    run_pair("many", sends_many, keeps_many);
    return 0;
}
