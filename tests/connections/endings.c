/* Ends of connections: halves, resets, unread bytes, EPIPE and SIGPIPE, a peer that is killed. */
#include "connection.h"

static volatile sig_atomic_t pipes_broken;
static void broken(int signal) { (void)signal, pipes_broken++; }
static char bytes[1 << 20];

/* The next byte, which comes. */
static char a_byte(int fd) {
    char byte;
    MUST(recv(fd, &byte, 1, 0) == 1);
    return byte;
}
/* The next byte, and the end of it. */
static void says_the_end(int fd, const char *name) {
    char byte;
    ssize_t got = recv(fd, &byte, 1, 0);
    say("%s: %zd %s", name, got, got < 0 ? strerror(errno) : "");
    close(fd);
}
static void closes(int fd) { close(fd); }
static void writes_to_nobody(int fd) {
    signal(SIGPIPE, broken);
    char byte;
    say("recv: %zd", recv(fd, &byte, 1, 0));
    /* The first may be taken; then it is known. */
    ssize_t sent = 0;
    for (int i = 0; i < 100 && sent >= 0; i++) sent = send(fd, "x", 1, MSG_NOSIGNAL), usleep(1000);
    say("send: %zd %s, SIGPIPE %d", sent, strerror(errno), pipes_broken);
    sent = write(fd, "x", 1);
    say("write: %zd %s, SIGPIPE %d", sent, strerror(errno), pipes_broken);
    close(fd);
}

static void leaves_unread(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    MUST(poll(&p, 1, 5000) == 1);
    close(fd);
}
static void is_reset(int fd) {
    MUST(send(fd, "unread", 6, 0) == 6);
    says_the_end(fd, "unread bytes");
}

static void resets(int fd) {
    struct linger at_once = {.l_onoff = 1};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    a_byte(fd);
    close(fd);
}
static void was_reset(int fd) {
    MUST(send(fd, "x", 1, 0) == 1);
    says_the_end(fd, "linger of 0");
}

static void sends_much_and_closes(int fd) {
    fill(bytes, sizeof bytes, 5, 0);
    send_all(fd, bytes, sizeof bytes);
    close(fd);
}
static void gets_all(int fd) {
    usleep(20000);
    size_t got = 0;
    ssize_t more;
    while ((more = recv(fd, bytes + got, sizeof bytes - got, 0)) > 0) got += (size_t)more;
    say("%zu bytes before the end: %s", got, is(bytes, got, 5, 0) ? "right" : "WRONG");
    close(fd);
}

static void halves(int fd) {
    MUST(shutdown(fd, SHUT_WR) == 0);
    ssize_t sent = send(fd, "x", 1, MSG_NOSIGNAL);
    say("send after the end: %zd %s", sent, strerror(errno));
    say("the other way: %c", a_byte(fd));
    close(fd);
}
static void other_half(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    MUST(poll(&p, 1, 5000) == 1);
    char byte;
    ssize_t got = recv(fd, &byte, 1, 0);
    if (!(p.revents & POLLRDHUP) || got != 0) say("WRONG: %x %zd", p.revents, got);
    usleep(20000);
    MUST(send(fd, "h", 1, 0) == 1);
    usleep(20000);
    close(fd);
}

static void waits_for_ever(int fd) {
    a_byte(fd);
    pause();
}
static void kills(int fd) {
    MUST(send(fd, "x", 1, 0) == 1);
    usleep(50000);
    kill(other, SIGKILL);
    says_the_end(fd, "killed");
}

int main(void) {
    run_pair("writes to nobody", closes, writes_to_nobody);
    run_pair("unread bytes", leaves_unread, is_reset);
    run_pair("linger of 0", resets, was_reset);
    run_pair("much before the end", sends_much_and_closes, gets_all);
    run_pair("halves", other_half, halves);
    run_pair("killed", waits_for_ever, kills);
    return 0;
}
