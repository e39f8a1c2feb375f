/* A server sends values of 1 MB again and again, which it has made or copied itself, to clients that receive 16 KB at a time, always to the same
 * place: they can view nothing. The bytes are right whatever becomes of the values and of the clients in the middle of one. Under uncopy the
 * server copies none of them once it has sent them a few times. */
#include "connection.h"
#include <sys/mman.h>

enum { SIZE = 1 << 20, PIECE = 16 << 10, MOST = 3000, ENOUGH = 30, FITS = 700000, FIRST = 300000 };

static char *pages(size_t n) {
    char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

/* A value of a version. A made one begins in the middle of a page; another one comes by a pipe and is copied, as a cache's is. */
static int is_made;
static char *place(void) { return is_made ? pages(SIZE + 48) + 48 : pages(SIZE); }
static void becomes(char *value, unsigned version) {
    if (is_made) return fill(value, SIZE, version, 0);
    static char *came, bytes[SIZE];
    static void *(*volatile copies)(void *, const void *, size_t) = memcpy;
    if (!came) came = pages(SIZE);
    fill(bytes, SIZE, version, 0);
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

/* A message: what it is, its version, and its bytes. The client answers once it has all of them. */
static void sends_part(int fd, const char *value, unsigned version, size_t n) {
    char header[2] = {'m', (char)version};
    send_all(fd, header, sizeof header);
    send_all(fd, value, n);
}
static void is_answered(int fd) {
    char byte;
    receive_all(fd, &byte, 1);
    if (byte != 'n') say("WRONG answer %d", byte);
}
static void sends_one(int fd, const char *value, unsigned version) {
    sends_part(fd, value, version, SIZE);
    is_answered(fd);
}

/* One end may give the other what lies in an arena: the kernel and the options let it. */
static int is_on(const char *name) { return !getenv(name) || (strcmp(getenv(name), "no") != 0 && strcmp(getenv(name), "0") != 0); }
static int may_be_given(void) {
    char scope = '0';
    int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY);
    if (fd >= 0) {
        if (read(fd, &scope, 1) != 1) scope = '0';
        close(fd);
    }
    return under_tcp() && scope == '0' && is_on("UNCOPY_ELIDE") && is_on("UNCOPY_TCP_REFERENCES") && counter("tcp_blocks_filtered") == 0 &&
           counter("tcp_blocks_no_new_privs") == 0;
}

/* After some sends the value goes where it lies. A value may have more parts than go so at once, and one that finds no room for long goes by Linux:
 * so it is sent until many messages were hardly copied. */
static void is_sent_where_it_lies(int fd, const char *value, unsigned version) {
    unsigned long copied = counter("tcp_block_bytes");
    int hardly = 0, may = may_be_given();
    for (int i = 0; i < MOST && hardly < (may ? ENOUGH : 1); i++) {
        unsigned long given = counter("tcp_given_on_bytes");
        sends_one(fd, value, version);
        hardly += counter("tcp_given_on_bytes") - given >= SIZE / 2 || !may;
        /* (The service has an arena to hand on.) */
        if (may && hardly == 0) usleep(1000);
    }
    if (may && hardly < ENOUGH) say("WRONG: %d of %d messages were sent where they lie", hardly, MOST);
    if (!getenv("UNCOPY_TCP_BLOCKS") && counter("tcp_block_bytes") != copied) say("WRONG: bytes were copied into blocks");
}

/* What is received at once, and by which call. */
enum { BY_RECV, BY_READV, BY_RECVMSG, LOOKED_AT, COUNTED_FIRST, BY_EDGE, CALLS };

static void is_right(const char *at, size_t n, unsigned version, size_t from) {
    if (!is(at, n, version, from)) say("WRONG at %zu of version %u", from, version);
}

static ssize_t receives_some(int fd, char *to, size_t n, int call) {
    struct iovec parts[3] = {{to, n / 3}, {to + n / 3, n / 5}, {to + n / 3 + n / 5, n - n / 3 - n / 5}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    static char looked[PIECE];
    int there;
    ssize_t got, seen;
    switch (call) {
    case BY_READV: return readv(fd, parts, 3);
    case BY_RECVMSG: return recvmsg(fd, &message, 0);
    case LOOKED_AT:
        seen = recv(fd, looked, n, MSG_PEEK);
        MUST(seen > 0);
        got = recv(fd, to, n, 0);
        if (got < seen || memcmp(looked, to, (size_t)seen) != 0) say("WRONG: %zd bytes were there, and others are received", seen);
        return got;
    case COUNTED_FIRST:
        MUST(poll(&p, 1, -1) == 1 && ioctl(fd, FIONREAD, &there) == 0);
        if (there <= 0) say("WRONG: %d bytes are unread", there);
        got = recv(fd, to, n, MSG_DONTWAIT);
        if (got < there && got < (ssize_t)n) say("WRONG: %zd of %d bytes are received", got, there);
        return got;
    default: return recv(fd, to, n, 0);
    }
}

static void receives_part(int fd, unsigned version, size_t from, size_t to, int call) {
    static char piece[PIECE];
    while (from < to) {
        ssize_t got = receives_some(fd, piece, to - from < PIECE ? to - from : PIECE, call);
        MUST(got > 0);
        is_right(piece, (size_t)got, version, from);
        from += (size_t)got;
    }
}

/* By a set that tells of edges: all that is there is received, in pieces that are asked for in full, until a call would wait. */
static void receives_by_edge(int fd, unsigned version, size_t from, size_t to) {
    static char piece[PIECE];
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    MUST(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    nonblocking(fd, 1);
    while (from < to) {
        int told = epoll_wait(set, &event, 1, 10000);
        if (told != 1) say("WRONG: no edge tells of byte %zu", from);
        MUST(told == 1);
        while (from < to) {
            size_t n = to - from < PIECE ? to - from : PIECE;
            ssize_t got = recv(fd, piece, n, 0);
            if (got < 0 && errno == EAGAIN) break;
            MUST(got > 0);
            is_right(piece, (size_t)got, version, from);
            from += (size_t)got;
            if ((size_t)got < n) break;
        }
    }
    nonblocking(fd, 0);
    close(set);
}

/* False: no more messages come. */
static int begins_one(int fd, unsigned *version) {
    char header[2];
    ssize_t got = recv(fd, header, 1, 0);
    if (got <= 0 || *header == 'e') return 0;
    receive_all(fd, header + 1, 1);
    *version = (unsigned char)header[1];
    return 1;
}
static void receives_one(int fd, unsigned version, int call) {
    if (call == BY_EDGE) receives_by_edge(fd, version, 0, SIZE);
    else receives_part(fd, version, 0, SIZE, call);
    send_all(fd, "n", 1);
}
static void receives_each(int fd) {
    unsigned version;
    for (int i = 0; begins_one(fd, &version); i++) receives_one(fd, version, i % CALLS);
}

static void sends(int fd) {
    char *value = place(), *other_value = place();
    for (unsigned version = 1; version < 4; version++) {
        becomes(value, version);
        is_sent_where_it_lies(fd, value, version);
        /* A byte of it becomes another one, and is what it was. */
        value[SIZE / 2] ^= 1, value[SIZE / 2] ^= 1;
        for (int i = 0; i < 3; i++) sends_one(fd, value, version);
    }
    /* It becomes another one before each send. */
    for (unsigned version = 10; version < 30; version++) {
        becomes(value, version);
        for (unsigned times = 0; times < version % 4; times++) sends_one(fd, value, version);
    }
    becomes(other_value, 40);
    for (int i = 0; i < 12; i++) {
        sends_one(fd, other_value, 40);
        sends_one(fd, value, 29);
    }
    send_all(fd, "e", 1);
}

/* The client reads nothing while the value that it was sent becomes another one; in the end the server is no more, either. By a pipe the client is
 * told how many bytes were sent, once the value is another one. */
static int told[2];
static void sends_and_rewrites(int fd, char *value, unsigned version) {
    char header[2] = {'m', (char)version};
    send_all(fd, header, sizeof header);
    ssize_t sent = send(fd, value, FITS, MSG_DONTWAIT | MSG_NOSIGNAL);
    MUST(sent > 0);
    becomes(value, version + 1);
    MUST(write(told[1], &sent, sizeof sent) == sizeof sent);
}
static void sends_to_one_that_waits(int fd) {
    char *value = place();
    becomes(value, 1);
    for (unsigned version = 1; version < 6; version++) {
        if (version == 1) is_sent_where_it_lies(fd, value, version);
        for (int i = 0; i < 4; i++) sends_one(fd, value, version);
        send_all(fd, "e", 1);
        sends_and_rewrites(fd, value, version);
        is_answered(fd);
    }
    for (int i = 0; i < 4; i++) sends_one(fd, value, 6);
    send_all(fd, "e", 1);
    sends_and_rewrites(fd, value, 6);
}
static void waits(int fd) {
    for (unsigned version = 1; version < 7; version++) {
        unsigned sent_version = 0;
        ssize_t sent;
        receives_each(fd);
        MUST(read(told[0], &sent, sizeof sent) == sizeof sent);
        siginfo_t end;
        if (version == 6) MUST(waitid(P_PID, (id_t)other, &end, WEXITED | WNOWAIT) == 0);
        if (!begins_one(fd, &sent_version) || sent_version != version) say("WRONG: version %u in place of %u", sent_version, version);
        receives_part(fd, version, 0, (size_t)sent, (int)version % BY_EDGE);
        if (version < 6) send_all(fd, "n", 1);
    }
    char after;
    if (recv(fd, &after, 1, 0) != 0) say("WRONG: something comes behind the end");
}

/* Clients that become two, another program, or nothing, in the middle of a value. */
enum { FORKS, EXECUTES, DIES, STOPS_READING, FATES };

static void sends_to_others(int fd) {
    struct sockaddr_in at;
    int l = listener(&at);
    send_all(fd, (char *)&at, sizeof at);
    char *value = place();
    unsigned version = 50;
    becomes(value, version);
    for (int i = 0; i < FATES; i++) {
        int one = accepted(l);
        warm_up(one, 0);
        char fate;
        receive_all(one, &fate, 1);
        is_sent_where_it_lies(one, value, version);
        char header[2] = {'l', (char)version}, byte;
        send_all(one, header, sizeof header);
        /* (The client may be no more.) */
        for (size_t sent = 0; sent < SIZE;) {
            ssize_t n = send(one, value + sent, SIZE - sent, MSG_NOSIGNAL);
            if (n <= 0) break;
            sent += (size_t)n;
        }
        ssize_t got = recv(one, &byte, 1, 0);
        if ((fate == FORKS || fate == EXECUTES) != (got == 1)) say("WRONG: %zd bytes of an answer, fate %d", got, fate);
        close(one);
        /* What the others are sent is right, and what they are sent next. */
        sends_one(fd, value, version);
        becomes(value, ++version);
        sends_one(fd, value, version);
        is_sent_where_it_lies(fd, value, version);
    }
    send_all(fd, "e", 1);
}

static void lives_on(int fate, int fd, unsigned version) {
    receives_part(fd, version, 0, FIRST, BY_RECV);
    if (fate == DIES) kill(getpid(), SIGKILL);
    if (fate == STOPS_READING) {
        close(fd);
        return;
    }
    if (fate == EXECUTES) {
        char number[20], which[20];
        snprintf(number, sizeof number, "%d", fd);
        snprintf(which, sizeof which, "%u", version);
        execl("/proc/self/exe", "rest", number, which, NULL);
        MUST(!"it is executed");
    }
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        receives_part(fd, version, FIRST, 2 * FIRST, BY_RECV);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    receives_part(fd, version, 2 * FIRST, SIZE, BY_RECV);
    send_all(fd, "n", 1);
}

static void others_receive(int fd) {
    struct sockaddr_in at;
    receive_all(fd, (char *)&at, sizeof at);
    pid_t children[FATES];
    for (int fate = 0; fate < FATES; fate++) {
        pid_t child = children[fate] = fork();
        MUST(child >= 0);
        if (child > 0) continue;
        close(fd);
        int one = connected(&at);
        char name = (char)fate;
        warm_up(one, 1);
        send_all(one, &name, 1);
        for (char header[2];;) {
            receive_all(one, header, 2);
            unsigned version = (unsigned char)header[1];
            if (*header == 'l') {
                lives_on(fate, one, version);
                _exit(0);
            }
            receives_one(one, version, BY_RECV);
        }
    }
    receives_each(fd);
    for (int fate = 0; fate < FATES; fate++) {
        int status;
        MUST(waitpid(children[fate], &status, 0) == children[fate]);
        if (fate == DIES ? !WIFSIGNALED(status) : status != 0) say("WRONG: fate %d ended with %d", fate, status);
    }
}

int main(int count, char **words) {
    if (count == 3) {
        int fd = atoi(words[1]);
        receives_part(fd, (unsigned)atoi(words[2]), FIRST, SIZE, BY_RECV);
        send_all(fd, "n", 1);
        return 0;
    }
    MUST(pipe(told) == 0);
    for (is_made = 0; is_made < 2; is_made++) {
        run_pair(is_made ? "made" : "copied", sends, receives_each);
        run_pair(is_made ? "made, and it waits" : "copied, and it waits", sends_to_one_that_waits, waits);
        run_pair(is_made ? "made, and others" : "copied, and others", sends_to_others, others_receive);
    }
    return 0;
}
