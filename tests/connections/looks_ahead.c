/* MSG_PEEK over a stream of which a part goes by Linux and a part by the ring: all that is there is seen, with MSG_WAITALL also what still comes; and it is received afterwards. */
#include "connection.h"

enum { FIRST = 60, FILE_SIZE = 200000, HEAD = 1000 };
static char buffer[1 << 20];

/* A few bytes, then a file (which goes by Linux where it is longer than 64 KB). */
static void sends_a_file(int fd) {
    char name[] = "/tmp/uncopy-looks-XXXXXX", byte;
    int file = mkstemp(name);
    MUST(file >= 0 && unlink(name) == 0);
    fill(buffer, FILE_SIZE, 1, FIRST);
    MUST(write(file, buffer, FILE_SIZE) == FILE_SIZE);
    receive_all(fd, &byte, 1);
    fill(buffer, FIRST, 1, 0);
    send_all(fd, buffer, FIRST);
    for (off_t at = 0; at < FILE_SIZE;) MUST(sendfile(fd, file, &at, (size_t)(FILE_SIZE - at)) > 0);
    /* The other way round: by Linux, then by the ring. */
    receive_all(fd, &byte, 1);
    fill(buffer, FIRST, 2, 0);
    send_all(fd, buffer, FIRST);
    usleep(50000);
    fill(buffer, HEAD, 2, FIRST);
    send_all(fd, buffer, HEAD - FIRST);
    receive_all(fd, &byte, 1);
}
/* Looks until it sees a whole head, as a program does that needs one. */
static int sees(int fd, size_t bytes, int flags) {
    for (int i = 0; i < 200; i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, -1);
        if (recv(fd, buffer, bytes, MSG_PEEK | flags) == (ssize_t)bytes) return 1;
        usleep(5000);
    }
    return 0;
}
static void looks(int fd, int flags) {
    send_all(fd, "g", 1);
    usleep(50000);
    if (!sees(fd, HEAD, flags)) say("WRONG: what lies ahead is not seen");
    MUST(is(buffer, HEAD, 1, 0));
    receive_all(fd, buffer, FIRST + FILE_SIZE);
    MUST(is(buffer, FIRST + FILE_SIZE, 1, 0));
    send_all(fd, "g", 1);
    if (!sees(fd, HEAD, flags)) say("WRONG: what comes behind is not seen");
    MUST(is(buffer, HEAD, 2, 0));
    receive_all(fd, buffer, HEAD);
    MUST(is(buffer, HEAD, 2, 0));
    send_all(fd, "g", 1);
}
static void looks_now(int fd) { looks(fd, 0); }
static void looks_and_waits(int fd) { looks(fd, MSG_WAITALL); }

int main(void) {
    run_pair("looks", sends_a_file, looks_now);
    run_pair("looks and waits", sends_a_file, looks_and_waits);
    return 0;
}
