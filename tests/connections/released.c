/* The promises of a call hold when it returns: a listener that is closed refuses, its port can be bound, a connection that is closed has ended. Nobody
 * else holds a program's sockets: not the service, whether it runs or is stopped. */
#include "connection.h"
#include <stddef.h>
#include <sys/un.h>

enum { TIMES = 300, ROUNDS = 24 };

static struct sockaddr_in address(in_addr_t ip, int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip), .sin_port = htons((uint16_t)port)};
}

/* A socket bound and listening, or why not. */
static int listens_at(struct sockaddr_in *at, int reuses) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    MUST(fd >= 0);
    if (reuses) MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    if (bind(fd, (struct sockaddr *)at, sizeof *at) < 0 || listen(fd, 16) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    socklen_t length = sizeof *at;
    MUST(getsockname(fd, (struct sockaddr *)at, &length) == 0);
    return fd;
}

/* 0, or the error with which connecting there ends. */
static int connects_to(struct sockaddr_in at) {
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(fd >= 0);
    int error = connect(fd, (struct sockaddr *)&at, sizeof at) == 0 ? 0 : errno;
    close(fd);
    return error;
}

static void closed_listeners_refuse(void) {
    int refused = 0;
    for (int i = 0; i < TIMES; i++) {
        struct sockaddr_in at = address(INADDR_ANY, 0);
        int fd = listens_at(&at, 0);
        MUST(fd >= 0 && close(fd) == 0);
        refused += connects_to(at) == ECONNREFUSED;
    }
    say("a closed listener refuses: %d of %d", refused, TIMES);
}

static void ports_can_be_bound_again(void) {
    for (int reuses = 0; reuses < 2; reuses++) {
        int bound = 0;
        struct sockaddr_in at = address(INADDR_ANY, 0);
        for (int i = 0; i < TIMES; i++) {
            at.sin_addr.s_addr = htonl(i % 2 ? INADDR_LOOPBACK : INADDR_ANY);
            int fd = listens_at(&at, reuses);
            if (fd < 0) continue;
            bound++;
            MUST(close(fd) == 0);
        }
        say("bound at once where a listener was closed (SO_REUSEADDR %d): %d of %d", reuses, bound, TIMES);
    }
}

/* Each has its own number, and its end is the last one's. */
static void a_listener_lives_as_long_as_anybody_has_it(void) {
    struct sockaddr_in at = address(INADDR_ANY, 0);
    int fd = listens_at(&at, 0), another = dup(fd), ends[2];
    MUST(fd >= 0 && another >= 0 && pipe(ends) == 0);
    close(fd);
    say("duplicated: %d", connects_to(at));
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    close(ends[0]);
    close(another);
    say("a child has it: %d", connects_to(at));
    close(ends[1]);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    say("the child has ended: %s", strerror(connects_to(at)));
    int port[2];
    MUST(pipe(port) == 0);
    child = fork();
    MUST(child >= 0);
    if (child == 0) {
        at.sin_port = 0;
        fd = listens_at(&at, 0);
        MUST(fd >= 0 && write(port[1], &at, sizeof at) == sizeof at);
        for (;;) pause();
    }
    MUST(read(port[0], &at, sizeof at) == sizeof at);
    say("another one's: %d", connects_to(at));
    MUST(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    say("that was killed: %s", strerror(connects_to(at)));
    close(port[0]), close(port[1]);
}

/* Connections that nobody has accepted end with the listener. */
static void who_was_not_accepted_is_reset(void) {
    int reset = 0;
    for (int i = 0; i < TIMES / 10; i++) {
        struct sockaddr_in at = address(INADDR_ANY, 0), to;
        int fd = listens_at(&at, 0), waits = socket(AF_INET, SOCK_STREAM, 0);
        MUST(fd >= 0 && waits >= 0);
        to = address(INADDR_LOOPBACK, ntohs(at.sin_port));
        MUST(connect(waits, (struct sockaddr *)&to, sizeof to) == 0 && close(fd) == 0);
        struct pollfd now = {.fd = waits, .events = POLLIN};
        char byte;
        reset += poll(&now, 1, 0) == 1 && recv(waits, &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET;
        close(waits);
    }
    say("not accepted, reset when the listener is closed: %d of %d", reset, TIMES / 10);
}

/* Of several that share a port, the one that is closed gets nothing any more. */
static void one_of_several_is_closed(void) {
    int one = 1, fds[2], got = 0;
    struct sockaddr_in at = address(INADDR_ANY, 0);
    for (int i = 0; i < 2; i++) {
        socklen_t length = sizeof at;
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        MUST(fds[i] >= 0 && setsockopt(fds[i], SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) == 0);
        MUST(bind(fds[i], (struct sockaddr *)&at, sizeof at) == 0 && listen(fds[i], 100) == 0);
        MUST(getsockname(fds[i], (struct sockaddr *)&at, &length) == 0);
    }
    close(fds[0]);
    nonblocking(fds[1], 1);
    for (int i = 0; i < 40; i++) {
        MUST(connects_to(at) == 0);
        int fd = accept(fds[1], NULL, NULL);
        if (fd >= 0) got++, close(fd);
    }
    say("SO_REUSEPORT, one of two closed: the other accepts %d of 40", got);
    close(fds[1]);
}

/* A server for what follows: echoes until it is killed. */
static pid_t serves(struct sockaddr_in *at) {
    int fd = listener(at);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        alarm(60);
        for (char byte;;) {
            int s = accepted(fd);
            while (recv(s, &byte, 1, 0) > 0) send(s, &byte, 1, MSG_NOSIGNAL);
            close(s);
        }
    }
    close(fd);
    return child;
}
static void ends(pid_t child) { MUST(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child); }

static void asks(int fd, int times) {
    for (char byte; times > 0; times--) {
        send_all(fd, "z", 1);
        receive_all(fd, &byte, 1);
    }
}

/* Of each length: those that are registered and matched, and those that are closed while they are asked about. */
static void a_port_is_free_when_its_connection_was_reset(void) {
    struct sockaddr_in at, own = address(INADDR_LOOPBACK, 0);
    pid_t server = serves(&at);
    int connected = 0, one = 1, all = 10 * ROUNDS;
    struct linger at_once = {.l_onoff = 1};
    for (int i = 0; i < all; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        socklen_t length = sizeof own;
        MUST(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
        MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
        MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
        MUST(bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
        MUST(getsockname(fd, (struct sockaddr *)&own, &length) == 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) {
            connected++;
            asks(fd, 1 + i % ROUNDS);
        } else
            say("connection %d: %s", i, strerror(errno));
        close(fd);
    }
    say("connected from the port of one that was just reset: %d of %d", connected, all);
    ends(server);
}

/* The other end hears at once of the end of one that was just registered. */
static void the_end_is_told_when_close_returns(void) {
    struct sockaddr_in at;
    int fd = listener(&at), all = 4 * ROUNDS, status;
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        int told = 0;
        alarm(60);
        for (int i = 0; i < all; i++) {
            char byte;
            int s = accepted(fd);
            for (int k = 0; k < 1 + i % ROUNDS; k++) {
                receive_all(s, &byte, 1);
                send_all(s, &byte, 1);
            }
            struct pollfd end = {.fd = s, .events = POLLIN};
            told += poll(&end, 1, 500) == 1 && recv(s, &byte, 1, 0) == 0;
            close(s);
        }
        _exit(told);
    }
    close(fd);
    for (int i = 0; i < all; i++) {
        int s = connected(&at);
        asks(s, 1 + i % ROUNDS);
        close(s);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
    say("the end of a connection was told: %d of %d", WEXITSTATUS(status), all);
}

/* The service that this program talks to, or nobody. */
static pid_t service(void) {
    const char *name = getenv("UNCOPY_TCP_SERVICE");
    if (!under_tcp() || !name) return 0;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    MUST(length < sizeof to.sun_path);
    memcpy(to.sun_path + 1, name, length);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    struct ucred who = {0};
    socklen_t size = sizeof who;
    MUST(connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0);
    MUST(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0);
    close(fd);
    return who.pid;
}

/* A connection by ring: there is a service from then on, which knows this program. */
static void by_ring(const struct sockaddr_in *at) {
    int fd = connected(at);
    unsigned long before = counter("tcp_connections");
    for (int i = 0; under_tcp() && counter("tcp_connections") == before && i < 20000; i++) {
        asks(fd, 1);
        if (i > 200) usleep(500);
    }
    if (under_tcp() && counter("tcp_connections") == before) not_upgraded();
    close(fd);
}

static void listeners(void) {
    closed_listeners_refuse();
    ports_can_be_bound_again();
    a_listener_lives_as_long_as_anybody_has_it();
    who_was_not_accepted_is_reset();
    one_of_several_is_closed();
}
static void connections(void) {
    a_port_is_free_when_its_connection_was_reset();
    the_end_is_told_when_close_returns();
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    alarm(100);
    struct sockaddr_in at;
    pid_t server = serves(&at);
    by_ring(&at);
    listeners();
    connections();
    pid_t stopped = service();
    if (stopped > 0) MUST(kill(stopped, SIGSTOP) == 0);
    say("the service is stopped");
    listeners();
    connections();
    if (stopped > 0) MUST(kill(stopped, SIGCONT) == 0);
    ends(server);
    return 0;
}
