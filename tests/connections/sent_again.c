/* A server sends the same values again and again, which it has copied or made itself, to clients that keep what they received without looking at it. Meanwhile the server overwrites the
 * values, forks, and ends: what was received stays what it was. */
#include "connection.h"
#include <sys/mman.h>

enum { SIZE = 1 << 20, TIMES = 6, VERSIONS = 5 };

static char *pages(size_t n) {
    char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

/* The program made the value itself: nobody saw it copied. It begins in the middle of a page. */
static int is_made;
enum { MADE_AT = 48 };

static char *place(void) { return is_made ? pages(SIZE + MADE_AT) + MADE_AT : pages(SIZE); }

/* The value of a version comes by a pipe, and is copied to where it is kept, as a cache's would. */
static void is_filled(char *value, int version) {
    if (is_made) return fill(value, SIZE, (unsigned)version, 0);
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
    char *value = place(), byte;
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
        for (int times = 0; times < 4; times++) {
            send_all(fd, "m", 1);
            send_all(fd, value, SIZE);
        }
    }
    if (getenv("UNCOPY_TCP_BLOCKS") && counter("tcp_given_on_bytes") == 0) say("WRONG: nothing was sent where it lies");
    if (is_made && getenv("UNCOPY_TCP_BLOCKS") && counter("adopted_bytes") == 0) say("WRONG: nothing was adopted");
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
    char *value = place(), byte;
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
    char *value = place(), byte;
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

/* A thread writes to pages of the value while it is sent. What a page holds at the receiver, who looks later, is no older than what was written
 * before the send, and no newer than what was written before its end. */
enum { MARKED = SIZE / 4096, ROUNDS = 150, HELD = 12 };

static char *marked;
static uint64_t stamps[MARKED], stamp;
static int ended;

static uint64_t *mark(char *at, size_t page, size_t k) { return (uint64_t *)(at + page * 4096 + k * 2040); }

static void *writes(void *unused) {
    for (size_t i = 0; !__atomic_load_n(&ended, __ATOMIC_ACQUIRE); i++) {
        size_t page = i * 7 % MARKED;
        uint64_t now = __atomic_add_fetch(&stamp, 1, __ATOMIC_SEQ_CST);
        for (size_t k = 0; k < 3; k++) __atomic_store_n(mark(marked, page, k), now, __ATOMIC_SEQ_CST);
        __atomic_store_n(&stamps[page], now, __ATOMIC_SEQ_CST);
        /* (For some time nobody writes.) */
        if (i % 40 == 39) usleep(4000);
    }
    return unused;
}

static void sends_changing(int fd) {
    char byte;
    marked = pages(SIZE + 4096) + 2048;
    pthread_t writer;
    MUST(pthread_create(&writer, NULL, writes, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        static uint64_t before[MARKED];
        for (size_t page = 0; page < MARKED; page++) before[page] = __atomic_load_n(&stamps[page], __ATOMIC_SEQ_CST);
        send_all(fd, (char *)before, sizeof before);
        send_all(fd, marked, SIZE);
        uint64_t after = __atomic_load_n(&stamp, __ATOMIC_SEQ_CST);
        send_all(fd, (char *)&after, sizeof after);
        receive_all(fd, &byte, 1);
    }
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    MUST(pthread_join(writer, NULL) == 0);
}

static void keeps_changing(int fd) {
    static struct { uint64_t before[MARKED], after; char *value; } held[HELD];
    for (int i = 0; i < ROUNDS + HELD; i++) {
        int at = i % HELD, wrong = 0;
        for (size_t page = 0; page < MARKED && i >= HELD; page++)
            for (size_t k = 0; k < 3; k++) {
                uint64_t found = *mark(held[at].value, page, k);
                if ((found < held[at].before[page] || found > held[at].after) && !wrong++)
                    say("WRONG mark %zu of page %zu in message %d", k, page, i - HELD);
            }
        if (i >= ROUNDS) continue;
        if (!held[at].value) held[at].value = pages(SIZE);
        receive_all(fd, (char *)held[at].before, sizeof held[at].before);
        receive_all(fd, held[at].value, SIZE);
        receive_all(fd, (char *)&held[at].after, sizeof held[at].after);
        send_all(fd, "n", 1);
    }
}

/* The value lies in every kind of memory, and then becomes another one in every way. */
enum { SENDS = 5, LATER = 3, ZEROS = 255 };

static char in_data[SIZE + 8192] = {1};
static int sender;

static void sends_one(const char *value, unsigned char seed) {
    send_all(sender, (char *)&seed, 1);
    send_all(sender, value, SIZE);
}

static void sends_some(const char *value, unsigned char seed) {
    for (int i = 0; i < SENDS; i++) sends_one(value, seed);
}

static char *mapped(int flags, int file) {
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, file, 0);
    MUST(at != MAP_FAILED);
    return at;
}

static int file_of(unsigned seed) {
    static char bytes[SIZE];
    fill(bytes, SIZE, seed, 0);
    int file = memfd_create("value", 0);
    MUST(file >= 0 && pwrite(file, bytes, SIZE, 0) == SIZE);
    return file;
}

static void from_private_memory(void) {
    char *value = pages(SIZE);
    fill(value, SIZE, 10, 0);
    sends_some(value, 10);
    /* Another mapping takes its place. */
    MUST(mmap(value, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == value);
    fill(value, SIZE, 11, 0);
    sends_some(value, 11);
    /* It moves. */
    char *there = pages(2 * SIZE);
    MUST(mremap(value, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
    sends_some(there, 11);
    there[SIZE - 1] ^= 1, there[SIZE - 1] ^= 1;
    sends_some(there, 11);
    /* It can only be read. */
    MUST(mprotect(there, SIZE, PROT_READ) == 0);
    sends_some(there, 11);
    MUST(mprotect(there, SIZE, PROT_READ | PROT_WRITE) == 0);
    fill(there, SIZE, 12, 0);
    sends_some(there, 12);
    MUST(madvise(there, SIZE, MADV_DONTNEED) == 0);
    sends_some(there, ZEROS);
    /* The kernel writes to it. */
    int file = file_of(13);
    MUST(pread(file, there, SIZE, 0) == SIZE);
    sends_some(there, 13);
    close(file);
    MUST(munmap(there, 2 * SIZE) == 0);
}

static void from_shared_memory(void) {
    char *value = mapped(MAP_SHARED | MAP_ANONYMOUS, -1);
    fill(value, SIZE, 20, 0);
    sends_some(value, 20);
    /* Another process writes to it. */
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        fill(value, SIZE, 21, 0);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    sends_some(value, 21);
    MUST(munmap(value, SIZE) == 0);
}

static void from_files(void) {
    int file = file_of(30), other = file_of(31);
    char *private = mapped(MAP_PRIVATE, file), *shared = mapped(MAP_SHARED, other);
    sends_some(private, 30);
    fill(private, SIZE, 32, 0);
    sends_some(private, 32);
    sends_some(shared, 31);
    /* The file is written to, not the memory. */
    static char bytes[SIZE];
    fill(bytes, SIZE, 33, 0);
    MUST(pwrite(other, bytes, SIZE, 0) == SIZE);
    sends_some(shared, 33);
    MUST(munmap(private, SIZE) == 0 && munmap(shared, SIZE) == 0);
    close(file);
    close(other);
}

static void from_data_and_stack(void) {
    char on_stack[SIZE + 8192];
    char *values[] = {in_data + 100, on_stack + 100};
    for (int i = 0; i < 4; i++) {
        fill(values[i % 2], SIZE, 40 + (unsigned)i, 0);
        sends_some(values[i % 2], (unsigned char)(40 + i));
    }
}

static void sends_from_everywhere(int fd) {
    sender = fd;
    char *first = pages(SIZE);
    for (int i = 0; i < 200 && (i < 4 || (getenv("UNCOPY_TCP_BLOCKS") && counter("tcp_given_on_bytes") == 0)); i++) {
        if (i % 4 == 0) fill(first, SIZE, 1, 0);
        sends_one(first, 1);
    }
    if (getenv("UNCOPY_TCP_BLOCKS") && counter("tcp_given_on_bytes") == 0) say("WRONG: nothing was sent where it lies");
    from_private_memory();
    from_shared_memory();
    from_files();
    from_data_and_stack();
}

static void keeps_from_everywhere(int fd) {
    char *rooms[LATER] = {NULL};
    unsigned char seeds[LATER];
    ssize_t more = 1;
    for (int i = 0, last = -1; last < 0 || i < last + LATER; i++) {
        int at = i % LATER;
        if (rooms[at]) {
            int zeros = seeds[at] == ZEROS;
            for (size_t k = 0; zeros && k < SIZE; k++)
                if (rooms[at][k] && zeros--) say("WRONG: byte %zu of zeros", k);
            if (seeds[at] != ZEROS && !is(rooms[at], SIZE, seeds[at], 0)) say("WRONG: message %d of stream %d", i - LATER, seeds[at]);
            MUST(munmap(rooms[at], SIZE) == 0);
            rooms[at] = NULL;
        }
        if (more > 0 && (more = recv(fd, &seeds[at], 1, 0)) > 0) receive_all(fd, rooms[at] = pages(SIZE), SIZE);
        else if (last < 0) last = i;
    }
}

int main(void) {
    run_pair("kept", sends, keeps);
    run_pair("three", sends_to_three, three_keep);
    run_pair("many", sends_many, keeps_many);
    is_made = 1;
    run_pair("made", sends, keeps);
    run_pair("made and three", sends_to_three, three_keep);
    run_pair("made and many", sends_many, keeps_many);
    run_pair("changing", sends_changing, keeps_changing);
    run_pair("everywhere", sends_from_everywhere, keeps_from_everywhere);
    return 0;
}
