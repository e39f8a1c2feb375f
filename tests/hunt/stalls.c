/* Requests and answers of one byte, one connection after the other, with Nagle's algorithm: a connection that moves to its ring leaves no segment waiting for a delayed acknowledgement (40 ms). On a
 * busy machine some rounds are late for other reasons: so a few may be. */
#include "../connections/connection.h"

enum { CONNECTIONS = 60, ROUNDS = 24, LATE_MS = 30, MOST = CONNECTIONS / 10 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static void answers(int l) {
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accepted(l);
        char byte;
        for (int k = 0; k < ROUNDS; k++) receive_all(fd, &byte, 1), send_all(fd, &byte, 1);
        MUST(recv(fd, &byte, 1, 0) == 0);
        close(fd);
    }
    _exit(0);
}

int main(void) {
    struct sockaddr_in at;
    int l = listener(&at), late = 0, rounds[ROUNDS] = {0};
    alarm(100);
    other = fork();
    MUST(other >= 0);
    if (other == 0) answers(l);
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        char byte = 'x';
        MUST(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
        for (int k = 0; k < ROUNDS; k++) {
            double begun = now();
            send_all(fd, &byte, 1), receive_all(fd, &byte, 1);
            int is_late = now() - begun > LATE_MS;
            late += is_late, rounds[k] += is_late;
        }
        close(fd);
    }
    other_ends();
    for (int k = 0; k < ROUNDS && late > MOST; k++)
        if (rounds[k]) say("WRONG: round %d took more than %d ms with %d of %d connections", k, LATE_MS, rounds[k], CONNECTIONS);
    say("done");
    return 0;
}
