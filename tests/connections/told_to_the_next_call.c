/* Errors that Linux tells once. A call that has sent or received a part says so, and the next call is told of the error: it, SO_ERROR and poll say what they say plainly, and no signal
 * comes where send says ECONNRESET. And the answers that a program sends just before it closes, with bytes unread, arrive before the reset. */
#include "connection.h"

static char buffer[8 << 20];

static const char *outcome(long result) { return result < 0 ? strerror(errno) : result > 0 ? "bytes" : "the end"; }
static void resets(int fd) {
    struct linger now = {1, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    close(fd);
}

/* A part, then a reset, while the other side waits for all. */
static void sends_a_part(int fd) {
    usleep(50000);
    send_all(fd, buffer, 10);
    usleep(100000);
    resets(fd);
}
static void waits_for_all(int fd) {
    ssize_t got = recv(fd, buffer, 100, MSG_WAITALL);
    say("all of 100: %zd", got);
    for (int i = 0; i < 2; i++) {
        got = recv(fd, buffer, 100, 0);
        say("then: %s", outcome(got));
    }
}
static void receives_messages(int fd) {
    struct iovec parts[2] = {{buffer, 10}, {buffer + 10, 10}};
    struct mmsghdr messages[2];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 2; i++) messages[i].msg_hdr.msg_iov = parts + i, messages[i].msg_hdr.msg_iovlen = 1;
    say("two messages: %d", recvmmsg(fd, messages, 2, 0, NULL));
    for (int i = 0; i < 2; i++) {
        ssize_t got = recv(fd, buffer, 100, 0);
        say("then: %s", outcome(got));
    }
}
/* The same before the connection can have a ring. */
static void receives_messages_at_first(void) {
    struct sockaddr_in at;
    int l = listener(&at);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        int fd = accepted(l);
        sends_a_part(fd);
        _exit(0);
    }
    int fd = connected(&at);
    receives_messages(fd);
    close(fd), close(l);
    other_ends();
}
/* More than a ring holds: some of it goes by Linux. */
static void sends_much(int fd) {
    send_all(fd, buffer, 600000);
    usleep(200000);
    resets(fd);
}
static void reads_late(int fd) {
    usleep(50000);
    ssize_t got = recv(fd, buffer, 1 << 20, MSG_WAITALL);
    say("all of a megabyte: %zd", got);
    got = recv(fd, buffer, 100, 0);
    say("then: %s", outcome(got));
}

/* A sender whose reader takes a little and resets. */
static void takes_a_little(int fd) {
    for (int i = 0; i < 3; i++) {
        MUST(recv(fd, buffer, 1000, 0) == 1000);
        usleep(30000);
    }
    resets(fd);
}
static void streams(int fd, int asks) {
    signal(SIGPIPE, SIG_IGN);
    ssize_t sent = send(fd, buffer, sizeof buffer, 0);
    say("8 MB: %s", sent < 0 ? strerror(errno) : sent < (ssize_t)sizeof buffer ? "a part" : "all");
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
    MUST(poll(&p, 1, 1000) == 1);
    say("poll says %x", p.revents);
    if (asks) {
        for (int i = 0; i < 2; i++) {
            int error = -1;
            socklen_t length = sizeof error;
            MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
            say("SO_ERROR: %s", strerror(error));
        }
        MUST(poll(&p, 1, 1000) == 1);
        say("poll says %x", p.revents);
    }
    sent = send(fd, buffer, 10, 0);
    say("then: %s", outcome(sent));
    sent = recv(fd, buffer, 10, 0);
    say("and recv: %s", outcome(sent));
    signal(SIGPIPE, SIG_DFL);
}
static void streams_on(int fd) { streams(fd, 0); }
static void streams_and_asks(int fd) { streams(fd, 1); }

/* The reader of one that streams is killed, or closes with bytes unread. */
static void closes_with_bytes_unread(int fd) {
    usleep(100000);
    close(fd);
    usleep(300000);
}
static void reads_on(int fd) {
    for (;;) {
        usleep(1000);
        if (recv(fd, buffer, 1000, 0) <= 0) return;
    }
}
static void streams_until_an_error(int fd) {
    ssize_t sent;
    while ((sent = send(fd, buffer, 1 << 20, 0)) > 0) {}
    say("send: %s", outcome(sent));
    sent = recv(fd, buffer, 10, 0);
    say("recv: %s", outcome(sent));
}
static void streams_to_one_that_is_killed(int fd) {
    if (fork() == 0) {
        close(fd);
        usleep(200000);
        kill(other, SIGKILL);
        _exit(0);
    }
    streams_until_an_error(fd);
}

/* A server that answers before it has read the request whole, and closes; with requests before, from none to many: the answer arrives, by whichever way the connection goes just then. */
static void answers_early(unsigned warm) {
    enum { TIMES = 60 };
    static const char ANSWER[] = "413 too large\n";
    struct sockaddr_in at;
    int l = listener(&at), lost = 0;
    pid_t server = fork();
    MUST(server >= 0);
    if (server == 0) {
        for (int i = 0; i < TIMES; i++) {
            int fd = accepted(l);
            char byte;
            for (unsigned j = 0; j < warm; j++) receive_all(fd, &byte, 1), send_all(fd, "y", 1);
            receive_all(fd, buffer, 100);
            MUST(write(fd, ANSWER, sizeof ANSWER) == sizeof ANSWER);
            close(fd);
        }
        _exit(0);
    }
    for (int i = 0; i < TIMES; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        char byte, answer[100];
        /* (Nagle's algorithm is on.) */
        MUST(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
        for (unsigned j = 0; j < warm; j++) send_all(fd, "x", 1), receive_all(fd, &byte, 1);
        send_all(fd, buffer, 2000);
        usleep(3000);
        size_t all = 0;
        for (ssize_t got; (got = recv(fd, answer + all, sizeof answer - all, 0)) > 0;) all += (size_t)got;
        lost += all != sizeof ANSWER || memcmp(answer, ANSWER, sizeof ANSWER) != 0;
        close(fd);
    }
    int status;
    MUST(waitpid(server, &status, 0) == server && status == 0);
    close(l);
    if (lost) say("WRONG: %d of %d answers were lost after %u requests", lost, TIMES, warm);
}

int main(void) {
    run_pair("a part was received", sends_a_part, waits_for_all);
    run_pair("a message was received", sends_a_part, receives_messages);
    if (is_wanted("a message was received at first")) {
        receives_messages_at_first();
        say("a message was received at first: done");
    }
    run_pair("much was received", sends_much, reads_late);
    run_pair("a part was sent", takes_a_little, streams_on);
    run_pair("a part was sent, and SO_ERROR is asked for", takes_a_little, streams_and_asks);
    run_pair("the reader closes", closes_with_bytes_unread, streams_until_an_error);
    run_pair("the reader is killed", reads_on, streams_to_one_that_is_killed);
    if (is_wanted("early answers"))
        for (unsigned warm = 0; warm < 10; warm++) answers_early(warm);
    say("early answers: done");
    return 0;
}
