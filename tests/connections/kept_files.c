/* A server sends the same files again and again, to clients that keep what they received without looking at it. Meanwhile the files are
 * overwritten, truncated, replaced and mapped, the server forks, and either side ends: a call sends what the file held when it was made, or
 * later, and what was received stays what it was. (Where files are kept they are sent from memory, and settle there.) */
#include "connection.h"
#include <sys/mman.h>
#include <sys/stat.h>

enum { SIZE = 1 << 20, WORDS = SIZE / 4, TIMES = 5, HEATS = 60, UNREAD = 300000 };

static char directory[] = "/tmp/uncopy-kept-XXXXXX";
static char path[64], other_path[64];

static char *pages(size_t n, int how) {
    char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

/* Each word of a file says of which version it is. */
static uint32_t word(uint32_t version, size_t i) { return version * 1000003u + (uint32_t)i; }
static void paint(uint32_t *to, uint32_t version) {
    for (size_t i = 0; i < WORDS; i++) to[i] = word(version, i);
}
static int is_version(const char *at, size_t n, uint32_t version, const char *where) {
    for (size_t i = 0; i < n / 4; i++) {
        uint32_t found;
        memcpy(&found, at + 4 * i, 4);
        if (found != word(version, i)) {
            say("WRONG %s: word %zu is of version %u, not of %u", where, i, (found - (uint32_t)i) / 1000003u, version);
            return 0;
        }
    }
    return 1;
}
static void write_file(const char *name, uint32_t version, int flags) {
    static uint32_t all[WORDS];
    paint(all, version);
    int fd = open(name, O_WRONLY | flags, 0600);
    MUST(fd >= 0 && pwrite(fd, all, SIZE, 0) == SIZE && close(fd) == 0);
}
static void begins(void) {
    MUST(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(other_path, sizeof other_path, "%s/other", directory);
}
static void ends(void) {
    unlink(path), unlink(other_path);
    MUST(rmdir(directory) == 0);
}

/* The ways in which a file becomes that of the next version. The lengths are what is left of it. */
enum { OVERWRITTEN, TRUNCATED, REWRITTEN, REPLACED, MAPPED, EMPTIED, WAYS };
static size_t changes(int way, uint32_t version) {
    if (way == TRUNCATED) {
        MUST(truncate(path, SIZE / 2 + 4) == 0);
        return SIZE / 2 + 4;
    }
    if (way == OVERWRITTEN) write_file(path, version, 0);
    if (way == REWRITTEN) write_file(path, version, O_TRUNC);
    if (way == EMPTIED) {
        int fd = open(path, O_RDONLY | O_TRUNC);
        MUST(fd >= 0 && close(fd) == 0);
        return 0;
    }
    if (way == REPLACED) {
        write_file(other_path, version, O_CREAT);
        MUST(rename(other_path, path) == 0);
    }
    if (way == MAPPED) {
        int fd = open(path, O_RDWR);
        MUST(fd >= 0);
        uint32_t *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        MUST(at != MAP_FAILED && close(fd) == 0);
        paint(at, version);
        MUST(munmap(at, SIZE) == 0);
    }
    return SIZE;
}
/* By another process, or by this one. */
static size_t is_changed(int way, uint32_t version, int elsewhere) {
    if (!elsewhere) return changes(way, version);
    int answer[2];
    MUST(pipe(answer) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        size_t left = changes(way, version);
        _exit(write(answer[1], &left, sizeof left) == sizeof left ? 0 : 1);
    }
    size_t left;
    int status;
    MUST(read(answer[0], &left, sizeof left) == sizeof left && waitpid(child, &status, 0) == child && status == 0);
    close(answer[0]), close(answer[1]);
    return left;
}

/* What comes next: so many bytes of this version. */
struct order { uint32_t version, bytes; };

static void sends_file(int fd, int file, size_t bytes) {
    off_t at = 0;
    while ((size_t)at < bytes) {
        ssize_t sent = sendfile(fd, file, &at, bytes - (size_t)at);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            poll(&p, 1, 1000);
            continue;
        }
        MUST(sent > 0);
    }
}
static void sends_version(int fd, int file, uint32_t version, size_t bytes) {
    struct order order = {version, (uint32_t)bytes};
    char byte;
    send_all(fd, (char *)&order, sizeof order);
    sends_file(fd, file, bytes);
    receive_all(fd, &byte, 1);
}
static void ends_orders(int fd) {
    struct order none = {0, 0};
    send_all(fd, (char *)&none, sizeof none);
}
static int keeps_files(void) { return counter("kept_sends") > 0; }
/* The file is sent until it is kept, has settled, and is given where it lies. */
static void is_heated(int fd, int file, uint32_t version) {
    static int never;
    unsigned long before = counter("kept_sends");
    for (int i = 0; i < HEATS && (i < 6 || (!never && counter("kept_sends") < before + 6)); i++) {
        sends_version(fd, file, version, SIZE);
        if (i > 25) usleep(1000);
    }
    /* (Plainly, and where files are not kept, once is enough.) */
    never |= !keeps_files();
}
/* The same of a file of its own, for as long as that takes: the service, or a busy machine, may be slow. */
static void settles(int fd) {
    begins();
    write_file(other_path, 0, O_CREAT);
    int file = open(other_path, O_RDONLY);
    MUST(file >= 0);
    for (int i = 0; getenv("UNCOPY_FILE_MEMORY") && i < 2000 && counter("tcp_given_on_bytes") == 0; i++) {
        sends_version(fd, file, 0, SIZE);
        if (i > 25) usleep(2000);
    }
    if (getenv("UNCOPY_FILE_MEMORY") && counter("tcp_given_on_bytes") == 0)
        say("WRONG: nothing was sent where it lies: %lu parts from memory, %lu leases", counter("kept_sends"), counter("leases"));
    close(file);
    unlink(other_path);
    ends_orders(fd);
}
static void until_it_has_settled(int fd) {
    struct order order;
    for (receive_all(fd, (char *)&order, sizeof order); order.bytes > 0; receive_all(fd, (char *)&order, sizeof order)) {
        char *room = pages(SIZE, MAP_PRIVATE);
        receive_all(fd, room, order.bytes);
        send_all(fd, "n", 1);
        munmap(room, SIZE);
    }
}

static void sends_changed(int fd) {
    settles(fd);
    uint32_t version = 0;
    for (int round = 0; round < 2 * WAYS; round++) {
        int way = round % WAYS, elsewhere = round < WAYS;
        unlink(path);
        write_file(path, ++version, O_CREAT);
        int file = open(path, O_RDONLY);
        MUST(file >= 0);
        is_heated(fd, file, version);
        size_t left = is_changed(way, version + 1, elsewhere);
        if (way == REPLACED) {
            /* What is open is the file of before. */
            sends_version(fd, file, version, SIZE);
            close(file);
            file = open(path, O_RDONLY);
        }
        if (way != TRUNCATED && way != EMPTIED) version++;
        off_t at = 0;
        if (left < SIZE) {
            at = (off_t)left;
            MUST(sendfile(fd, file, &at, SIZE) == 0 && at == (off_t)left);
        }
        if (left > 0)
            for (int i = 0; i < 3; i++) sends_version(fd, file, version, left);
        close(file);
    }
    ends_orders(fd);
    ends();
}
static void keeps_all(int fd) {
    until_it_has_settled(fd);
    static char *rooms[2000];
    static struct order orders[2000];
    int n = 0;
    for (;; n++) {
        struct order order;
        receive_all(fd, (char *)&order, sizeof order);
        if (order.bytes == 0) break;
        MUST(n < 2000 && order.bytes <= SIZE);
        char *room = pages(SIZE, MAP_PRIVATE);
        receive_all(fd, room, order.bytes);
        send_all(fd, "n", 1);
        rooms[n] = room, orders[n] = order;
        if (n % 7 == 0) is_version(room, order.bytes, order.version, "at once");
        /* Some go while others stay. */
        if (n >= 20 && n % 3) {
            int old = n - 20;
            is_version(rooms[old], orders[old].bytes, orders[old].version, "later");
            munmap(rooms[old], SIZE);
            rooms[old] = NULL;
        }
    }
    char byte;
    while (recv(fd, &byte, 1, 0) > 0) {}
    for (int i = 0; i < n; i++)
        if (rooms[i]) is_version(rooms[i], orders[i].bytes, orders[i].version, "after the end"), munmap(rooms[i], SIZE);
}

/* A process overwrites the file all the while. Each byte says of which of some versions it is: a word that is copied while it is written
 * may be of two. */
static unsigned char byte_at(uint32_t version, size_t i) { return (unsigned char)(version + 7 * i); }
static void overwrite(int fd, uint32_t version) {
    static unsigned char all[SIZE];
    for (size_t i = 0; i < SIZE; i++) all[i] = byte_at(version, i);
    __sync_synchronize();
    MUST(pwrite(fd, all, SIZE, 0) == SIZE);
    __sync_synchronize();
}
struct seen { volatile uint32_t begun, done, stop; };
static struct seen *seen;
static void sends_meanwhile(int fd) {
    settles(fd);
    for (int round = 0; round < 12; round++) {
        uint32_t first = 1000 + 50 * (uint32_t)round;
        unlink(path);
        int to = open(path, O_WRONLY | O_CREAT, 0600);
        MUST(to >= 0);
        overwrite(to, first);
        close(to);
        int file = open(path, O_RDONLY);
        seen->begun = seen->done = first, seen->stop = 0;
        is_heated(fd, file, 0);
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            to = open(path, O_WRONLY);
            for (uint32_t version = first + 1; !seen->stop && version < first + 50; version++) {
                seen->begun = version;
                overwrite(to, version);
                seen->done = version;
            }
            _exit(0);
        }
        for (int i = 0; i < 20; i++) {
            __sync_synchronize();
            sends_version(fd, file, seen->done, SIZE);
        }
        seen->stop = 1;
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0);
        close(file);
    }
    ends_orders(fd);
    ends();
}
static void looks_meanwhile(int fd) {
    until_it_has_settled(fd);
    char *room = pages(SIZE, MAP_PRIVATE);
    for (int n = 0;; n++) {
        struct order order;
        receive_all(fd, (char *)&order, sizeof order);
        if (order.bytes == 0) break;
        receive_all(fd, room, order.bytes);
        __sync_synchronize();
        uint32_t begun = seen->begun;
        for (size_t i = 0; order.version > 0 && i < SIZE; i++) {
            unsigned char later = (unsigned char)((unsigned char)room[i] - byte_at(order.version, i));
            if (later > begun - order.version) {
                say("WRONG byte %zu: of version %u, where %u was written before it was sent and %u is begun", i, order.version + later, order.version, begun);
                break;
            }
        }
        send_all(fd, "n", 1);
    }
}

/* Several receivers have the same bytes; one is killed while it keeps them, one closes without reading, one gives its end to Linux with
 * bytes unread. The sender forks meanwhile. */
static void sends_to_many(int fd) {
    settles(fd);
    struct sockaddr_in at;
    int l = listener(&at), others[3];
    send_all(fd, (char *)&at, sizeof at);
    for (int i = 0; i < 3; i++) {
        char byte;
        int one = accepted(l);
        receive_all(one, &byte, 1);
        others[byte - '0'] = one;
        warm_up(one, 0);
    }
    write_file(path, 7, O_CREAT);
    int file = open(path, O_RDONLY);
    is_heated(fd, file, 7);
    for (int i = 0; i < 3; i++) is_heated(others[i], file, 7);
    for (int i = 0; i < 3 * TIMES; i++) sends_version(i % 3 == 2 ? fd : others[i % 3], file, 7, SIZE);
    /* Unread when their receivers end, or go to Linux. */
    struct order order = {7, UNREAD};
    for (int i = 0; i < 3; i++) {
        send_all(others[i], (char *)&order, sizeof order);
        sends_file(others[i], file, UNREAD);
        send_all(others[i], "x", 1);
    }
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        static char all[SIZE];
        int again = open(path, O_RDONLY);
        MUST(pread(again, all, SIZE, 0) == SIZE);
        is_version(all, SIZE, 7, "in a child of the sender");
        _exit(0);
    }
    int status;
    char byte;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    receive_all(fd, &byte, 1);
    /* (What is unread by Linux may be of later: so that file stays.) */
    is_changed(REPLACED, 8, 0);
    close(file);
    file = open(path, O_RDONLY);
    MUST(file >= 0);
    for (int i = 0; i < 20; i++) sends_version(fd, file, 8, SIZE);
    send_all(others[2], "e", 1);
    ends_orders(fd);
    ends();
    /* (And ends, with all of it viewed.) */
}
static int receives_version(int fd, char **rooms, int *n) {
    struct order order;
    receive_all(fd, (char *)&order, sizeof order);
    if (order.bytes == 0) return 0;
    char *room = pages(SIZE, MAP_PRIVATE);
    receive_all(fd, room, order.bytes);
    send_all(fd, "n", 1);
    if (rooms[*n % 10]) munmap(rooms[*n % 10], SIZE);
    rooms[*n % 10] = room;
    return ++*n;
}
static void many_keep(int fd) {
    until_it_has_settled(fd);
    struct sockaddr_in at;
    receive_all(fd, (char *)&at, sizeof at);
    pid_t children[3];
    int told[2], seen_by[2], unread[2];
    MUST(pipe(told) == 0 && pipe(unread) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, seen_by) == 0);
    for (int who = 0; who < 3; who++) {
        pid_t child = children[who] = fork();
        MUST(child >= 0);
        if (child > 0) continue;
        alarm(60);
        close(fd), close(unread[1]);
        int mine = connected(&at), n = 0;
        char *rooms[10] = {0}, digit = (char)('0' + who), byte;
        send_all(mine, &digit, 1);
        warm_up(mine, 1);
        struct order order;
        for (;;) {
            MUST(recv(mine, &order, sizeof order, MSG_PEEK | MSG_WAITALL) == sizeof order);
            if (order.bytes == UNREAD) break;
            receives_version(mine, rooms, &n);
        }
        char *ahead = pages(SIZE, MAP_PRIVATE);
        size_t looked = sizeof order + UNREAD / 4;
        MUST(recv(mine, ahead, looked, MSG_PEEK | MSG_WAITALL) == (ssize_t)looked);
        is_version(ahead + sizeof order, UNREAD / 4, 7, "looking ahead");
        for (int i = 0; i < 10; i++)
            if (rooms[i] && i % 2) is_version(rooms[i], SIZE, 7, "of three");
        MUST(write(told[1], &digit, 1) == 1);
        if (who == 0) pause();
        if (who == 1) {
            close(mine);
            _exit(0);
        }
        /* Another process reads on, by Linux. */
        pid_t reads = fork();
        MUST(reads >= 0);
        if (reads == 0) {
            close(mine);
            int given = handed_over(seen_by[1]);
            receive_all(given, ahead, sizeof order + UNREAD + 1);
            is_version(ahead + sizeof order, UNREAD, 7, "by Linux");
            receive_all(given, &byte, 1);
            if (byte != 'e') say("WRONG: '%c' comes last", byte);
            _exit(0);
        }
        struct handing room;
        struct msghdr *message = handing(&room);
        struct cmsghdr *rights = CMSG_FIRSTHDR(message);
        rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof mine);
        memcpy(CMSG_DATA(rights), &mine, sizeof mine);
        /* (EBUSY: the sender has not taken back yet what is unread.) */
        ssize_t handed = -1;
        for (int i = 0; i < 1000 && (handed = sendmsg(seen_by[0], message, 0)) < 0 && errno == EBUSY; i++) usleep(10000);
        MUST(handed == 1);
        close(mine);
        int status;
        MUST(waitpid(reads, &status, 0) == reads && status == 0);
        for (int i = 0; i < 10; i++)
            if (rooms[i]) is_version(rooms[i], SIZE, 7, "of three, at the end");
        _exit(0);
    }
    char *rooms[10] = {0}, byte;
    int n = 0, went = 0;
    for (;;) {
        /* (When all three have what they keep one of them is killed.) */
        struct pollfd both[2] = {{.fd = fd, .events = POLLIN}, {.fd = told[0], .events = POLLIN}};
        MUST(poll(both, 2, 30000) > 0);
        if (both[1].revents) {
            MUST(read(told[0], &byte, 1) == 1);
            if (++went == 3) {
                MUST(kill(children[0], SIGKILL) == 0);
                send_all(fd, "g", 1);
            }
            continue;
        }
        if (!receives_version(fd, rooms, &n)) break;
    }
    for (int i = 0; i < 10; i++)
        if (rooms[i]) is_version(rooms[i], SIZE, 8, "of the last");
    for (int i = 0; i < 3; i++) {
        int status;
        MUST(waitpid(children[i], &status, 0) == children[i]);
        if (i > 0 && status != 0) say("WRONG: receiver %d ended with %d", i, status);
    }
}

/* By parts, from the file's own position, without waiting, and more than there is. */
enum { LARGE = 5 * SIZE + 12345 };
static void sends_parts(int fd) {
    settles(fd);
    static char all[LARGE];
    fill(all, LARGE, 3, 0);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    MUST(file >= 0 && write(file, all, LARGE) == LARGE && close(file) == 0);
    file = open(path, O_RDONLY);
    for (int round = 0; round < 40; round++) {
        int without = round % 2;
        nonblocking(fd, without);
        size_t from = (size_t)(round % 4) * 1000003, sent = from;
        send_all(fd, (char *)&from, sizeof from);
        if (round % 3 == 0) {
            MUST(lseek(file, (off_t)from, SEEK_SET) == (off_t)from);
            while (sent < LARGE) {
                ssize_t n = sendfile(fd, file, NULL, 1 << 30);
                if (n < 0 && errno == EAGAIN) {
                    struct pollfd p = {.fd = fd, .events = POLLOUT};
                    poll(&p, 1, 1000);
                    continue;
                }
                MUST(n > 0);
                sent += (size_t)n;
                MUST(lseek(file, 0, SEEK_CUR) == (off_t)sent);
            }
            MUST(sendfile(fd, file, NULL, 1 << 30) == 0);
        } else {
            off_t at = (off_t)from;
            while (at < LARGE) {
                off_t before = at;
                ssize_t n = sendfile(fd, file, &at, LARGE - (size_t)at);
                if (n < 0 && errno == EAGAIN) {
                    struct pollfd p = {.fd = fd, .events = POLLOUT};
                    poll(&p, 1, 1000);
                    continue;
                }
                MUST(n > 0 && at == before + n);
                if (!without) MUST(at == LARGE);
            }
        }
        nonblocking(fd, 0);
        char byte;
        receive_all(fd, &byte, 1);
    }
    close(file);
    ends();
}
static void receives_parts(int fd) {
    until_it_has_settled(fd);
    char *room = pages(LARGE, MAP_PRIVATE);
    for (int round = 0; round < 40; round++) {
        size_t from;
        receive_all(fd, (char *)&from, sizeof from);
        MUST(from < LARGE);
        receive_all(fd, room, LARGE - from);
        if (round % 3 != 1) is(room, LARGE - from, 3, from);
        send_all(fd, "n", 1);
    }
}

int main(void) {
    seen = (struct seen *)pages(4096, MAP_SHARED);
    run_pair("changed", sends_changed, keeps_all);
    run_pair("meanwhile", sends_meanwhile, looks_meanwhile);
    run_pair("many", sends_to_many, many_keep);
    run_pair("parts", sends_parts, receives_parts);
    return 0;
}
