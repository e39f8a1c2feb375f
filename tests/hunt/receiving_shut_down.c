/* Receiving is shut down after so many exchanges, from none on, and then something is sent: nothing to be had is the end (0), and no EAGAIN. Before that no stream ends. */
#include "../connections/connection.h"

enum { TIMES = 200, EXCHANGES = 40 };

static void answers(int l, int exchanges) {
    int fd = accepted(l);
    char byte;
    for (int i = 0; i < exchanges; i++) receive_all(fd, &byte, 1), send_all(fd, &byte, 1);
    /* (What comes then stays unread: this end lives until the other one has looked.) */
    struct pollfd asked = {.fd = fd, .events = POLLRDHUP};
    MUST(poll(&asked, 1, 20000) == 1);
    _exit(0);
}

int main(void) {
    int wrong = 0;
    alarm(100);
    for (int round = 0; round < TIMES; round++) {
        struct sockaddr_in at;
        int l = listener(&at), exchanges = round % EXCHANGES;
        other = fork();
        MUST(other >= 0);
        if (other == 0) answers(l, exchanges);
        int fd = connected(&at);
        close(l);
        char bytes[100] = "x";
        for (int i = 0; i < exchanges; i++) send_all(fd, bytes, 1), receive_all(fd, bytes, 1);
        if (round % 3 == 0) usleep(2000);
        MUST(shutdown(fd, SHUT_RD) == 0 && send(fd, "0123456789", 10, MSG_NOSIGNAL) == 10);
        for (int i = 0; i < 3; i++) {
            ssize_t got = recv(fd, bytes, 10, MSG_DONTWAIT | (i ? 0 : MSG_TRUNC));
            wrong += got != 0;
            if (got != 0) say("WRONG: after %d exchanges call %d says %zd %s", exchanges, i, got, got < 0 ? strerror(errno) : "");
        }
        close(fd);
        other_ends();
    }
    say("%d of %d calls were wrong", wrong, 3 * TIMES);
    return 0;
}
