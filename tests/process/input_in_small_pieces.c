/* Input that comes in pieces of a page: where there was room for a whole copy, its first copy is elided; where there was not, nothing says that large copies will be made of
 * it until there is one, and the next is elided. */
#include "process.h"

/* SIZE bytes of input `number`, a page at a time, each received with room for `room`. */
static char *in_pieces(unsigned number, size_t room) {
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char *to = fresh(SIZE + room), piece[PAGE];
    for (size_t at = 0; at < SIZE; at += PAGE) {
        for (size_t i = 0; i < PAGE; i++) piece[i] = input_byte(number, at + i);
        MUST(send(pair[0], piece, PAGE, 0) == PAGE);
        MUST(recv(pair[1], to + at, room, 0) == PAGE);
    }
    close(pair[0]);
    close(pair[1]);
    return to;
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        char *to = fresh(SIZE);
        ELIDED_COPY(to, in_pieces(1, SIZE), SIZE);
        EXPECT_INPUT(to, SIZE, 1);
        _exit(0);
    }
    wait_for("much room", child);
    char *to = fresh(SIZE);
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    copy(to, in_pieces(2, PAGE), SIZE);
    EXPECT_INPUT(to, SIZE, 2);
    ELIDED_COPY(to, in_pieces(3, PAGE), SIZE);
    MUST_BE_UNMAPPED(to + SIZE / 2);
    EXPECT_INPUT(to, SIZE, 3);
    return finish();
}
