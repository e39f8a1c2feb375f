/* A server that forks right after it has accepted, while what it was sent before lies in memory of a program that has ended since. */
#include "connection.h"

enum { LARGE = 600000, TIMES = 40, ROUNDS = 5 };
static char out[LARGE];

/* Each a program of its own, which ends before the next one connects. */
static void sends(const struct sockaddr_in *at, unsigned round) {
    int fd = connected(at);
    char byte;
    warm_up(fd, 1);
    for (unsigned i = 0; i < TIMES; i++) {
        fill(out, LARGE, round + i, 0);
        send_all(fd, out, LARGE);
        receive_all(fd, &byte, 1);
    }
    MUST(recv(fd, &byte, 1, 0) == 0);
    _exit(0);
}
static void ends(pid_t child) {
    int status;
    MUST(child >= 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    static char in[LARGE];
    alarm(60);
    struct sockaddr_in at;
    int l = listener(&at);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        close(l);
        for (unsigned round = 0; round < ROUNDS; round++) {
            char byte;
            pid_t child = fork();
            if (child == 0) sends(&at, round);
            ends(child);
            usleep(100000);
            int fd = connected(&at);
            receive_all(fd, &byte, 1);
            close(fd);
        }
        _exit(0);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        int fd = accepted(l);
        warm_up(fd, 0);
        for (unsigned i = 0; i < TIMES; i++) {
            receive_all(fd, in, LARGE);
            if (i % 8 == 0) MUST(is(in, LARGE, round + i, 0));
            send_all(fd, "a", 1);
        }
        close(fd);
        /* (That program ends while this one waits for the next connection.) */
        fd = accepted(l);
        pid_t child = fork();
        if (child == 0) _exit(!is(in, LARGE, round + TIMES - 1, 0));
        ends(child);
        MUST(is(in, LARGE, round + TIMES - 1, 0));
        send_all(fd, "b", 1);
        close(fd);
    }
    other_ends();
    say("done");
    return 0;
}
