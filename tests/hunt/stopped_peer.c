/* The peer is stopped while more is sent to it than rings and Linux' buffers hold: sending waits, nothing is lost, and the answer comes once it goes on. */
#include "../connections/connection.h"

static char bytes[6 << 20];
static const char *how;

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static void answers(int fd) {
    receive_all(fd, bytes, sizeof bytes);
    send_all(fd, is(bytes, sizeof bytes, 3, 0) ? "y" : "n", 1);
}
static void sends(int fd) {
    pid_t peer = other;
    fill(bytes, sizeof bytes, 3, 0);
    nonblocking(fd, !strcmp(how, "by poll"));
    MUST(kill(peer, SIGSTOP) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        close(fd);
        usleep(700000);
        kill(peer, SIGCONT);
        _exit(0);
    }
    long begun = now();
    send_all(fd, bytes, sizeof bytes);
    nonblocking(fd, 0);
    char answer;
    receive_all(fd, &answer, 1);
    say("%s: %s, %s", how, answer == 'y' ? "every byte" : "WRONG bytes", now() - begun < 600 ? "WRONG: too early" : "once it goes on");
    MUST(waitpid(child, NULL, 0) == child);
    close(fd);
}

int main(void) {
    alarm(100);
    how = "blocking", run_pair("blocking", answers, sends);
    how = "by poll", run_pair("by poll", answers, sends);
    return 0;
}
