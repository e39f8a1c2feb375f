/* Settings that another process has made of a socket that both have: whether calls wait, how long.
 * And receiving that has been shut down. */
#include "connection.h"

static char bytes[1 << 20];

static void echo(int fd) {
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) send_all(fd, bytes, (size_t)got);
}
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static void by_a_child(int fd, void (*sets)(int)) {
    int status;
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        sets(fd);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
}
static void waits_not(int fd) { nonblocking(fd, 1); }
static void waits(int fd) { nonblocking(fd, 0); }
static void is_impatient(int fd) {
    struct timeval t = {0, 200000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) == 0);
}
static void answer(const char *name, long begun, ssize_t result) {
    int error = errno;
    long took = now() - begun;
    say("%s: %zd %s, %s", name, result, result < 0 ? strerror(error) : "", took < 100 ? "at once" : took < 5000 ? "after a while" : "late");
}

static void whether_calls_wait(int fd) {
    char byte = 'a';
    by_a_child(fd, waits_not);
    answer("recv", now(), recv(fd, &byte, 1, 0));
    answer("recv of all", now(), recv(fd, bytes, 10, MSG_WAITALL));
    say("as the kernel has it: %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    by_a_child(fd, waits);
    send_all(fd, "abc", 3);
    say("all of three: %zd", recv(fd, bytes, 3, MSG_WAITALL));
    by_a_child(fd, waits_not);
    by_a_child(fd, waits);
    send_all(fd, "d", 1);
    say("and again: %zd", recv(fd, &byte, 1, 0));
    close(fd);
}
static void sleeps(int fd) {
    char byte;
    while (recv(fd, &byte, 1, 0) == 1 && byte != 's') {}
    sleep(2);
}
static void how_long(int fd) {
    char byte;
    by_a_child(fd, is_impatient);
    long begun = now();
    answer("recv", begun, recv(fd, &byte, 1, 0));
    send_all(fd, "s", 1);
    ssize_t sent;
    do {
        begun = now();
        sent = send(fd, bytes, sizeof bytes, 0);
    } while (sent > 0);
    answer("send", begun, sent);
    close(fd);
}

/* Receiving is shut down here: nothing to be had is the end, at once and always. */
static void ends_receiving(int fd) {
    shutdown(fd, SHUT_RD);
    for (int i = 0; i < 5; i++) {
        MUST(send(fd, "0123456789", 10, MSG_NOSIGNAL) == 10);
        say("recv: %zd", recv(fd, bytes, 10, MSG_DONTWAIT | (i ? 0 : MSG_TRUNC)));
    }
    say("recv that would wait: %zd", recv(fd, bytes, 10, 0));
    close(fd);
}
/* A child shuts it down, just after this process has found nothing. */
static void by_a_child_that_ends_it(int fd, int how) {
    int go[2], done[2], status;
    char byte;
    MUST(pipe(go) == 0 && pipe(done) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(read(go[0], &byte, 1) == 1 && shutdown(fd, how) == 0 && write(done[1], &byte, 1) == 1);
        _exit(0);
    }
    for (int i = 0; i < 2; i++) say("before: %zd", recv(fd, bytes, 10, MSG_DONTWAIT));
    MUST(write(go[1], "g", 1) == 1 && read(done[0], &byte, 1) == 1);
    for (int i = 0; i < 5; i++) say("since then: %zd", recv(fd, bytes, 10, MSG_DONTWAIT));
    MUST(waitpid(child, &status, 0) == child && status == 0);
    close(go[0]), close(go[1]), close(done[0]), close(done[1]);
    close(fd);
}
static void a_child_ends_receiving(int fd) { by_a_child_that_ends_it(fd, SHUT_RD); }
static void a_child_ends_both_ways(int fd) { by_a_child_that_ends_it(fd, SHUT_RDWR); }
static void sink(int fd) {
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {}
}

int main(void) {
    alarm(100);
    run_pair("whether calls wait", echo, whether_calls_wait);
    run_pair("how long", sleeps, how_long);
    for (int i = 0; i < 5; i++) run_pair("receiving that is shut down", sink, ends_receiving);
    for (int i = 0; i < 5; i++) {
        run_pair("receiving that a child shuts down", sink, a_child_ends_receiving);
        run_pair("both ways that a child shuts down", sink, a_child_ends_both_ways);
    }
    return 0;
}
