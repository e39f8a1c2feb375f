/* A peer is killed. The next calls hear of it as plainly: the first message after that is lost, the second says EPIPE (Linux' peer answers the first with a reset); where bytes of ours were
 * unread, ECONNRESET first. */
#include "connection.h"

static void answers(int fd) {
    send_all(fd, "answer", 6);
    pause();
}
static void says_nothing(int fd) {
    send_all(fd, "x", 1);
    pause();
}
static void killed(void) {
    usleep(100000);
    kill(other, SIGKILL);
    siginfo_t ended;
    MUST(waitid(P_PID, (id_t)other, &ended, WEXITED | WNOWAIT) == 0);
    usleep(20000);
}
static void sends(int fd, const char *when) {
    for (int i = 0; i < 3; i++) {
        ssize_t sent = send(fd, "a line\n", 7, MSG_NOSIGNAL);
        say("%s %d: %s", when, i, sent < 0 ? strerror(errno) : "sent");
        usleep(20000);
    }
}
static void reads_all_and_goes_on(int fd) {
    char got[6];
    receive_all(fd, got, 6);
    killed();
    ssize_t end = recv(fd, got, 6, 0);
    say("recv: %s", end < 0 ? strerror(errno) : end ? "bytes" : "the end");
    sends(fd, "after the end");
}
static void goes_on(int fd) {
    char got[6];
    receive_all(fd, got, 6);
    killed();
    sends(fd, "unasked");
}
static void left_bytes_unread(int fd) {
    char byte;
    receive_all(fd, &byte, 1);
    send_all(fd, "unread", 6);
    killed();
    sends(fd, "unread");
    ssize_t end = recv(fd, &byte, 1, 0);
    say("recv: %s", end < 0 ? strerror(errno) : end ? "bytes" : "the end");
}

int main(void) {
    run_pair("reads all", answers, reads_all_and_goes_on);
    run_pair("goes on", answers, goes_on);
    run_pair("bytes unread", says_nothing, left_bytes_unread);
    return 0;
}
