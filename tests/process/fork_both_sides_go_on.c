/* Parent and child go on without exec: both touch, write, send, receive anew and copy on, at the same time. */
#include "process.h"

static void goes_on(const char *who, char *v, char *origin, unsigned number) {
    send_on(who, v, SIZE);
    v[SIZE / 2] = 'x'; /* a touch in the midst of views */
    send_on(who, v, SIZE);
    char *copy = fresh(SIZE);
    memcpy(copy, v, SIZE);
    show(who, copy, SIZE);
    EXPECT_INPUT(v, SIZE / 2, 1);
    EXPECT_INPUT(origin, SIZE, 1);
    receive(origin, SIZE, number);
    ELIDED_COPY(copy, VIEW(number + 1), SIZE);
    EXPECT_INPUT(copy, SIZE, number + 1);
    EXPECT_INPUT(origin, SIZE, number);
    memcpy(v, origin, SIZE);
    EXPECT_INPUT(v, SIZE, number);
}

int main(void) {
    char *origin = fresh(SIZE), *v = fresh(SIZE);
    receive(origin, SIZE, 1);
    ELIDED_COPY(v, origin, SIZE);
    MUST_BE_UNMAPPED(v + SIZE / 2);
    int turn[2]; /* lines in a fixed order, work at the same time */
    MUST(pipe(turn) == 0);
    pid_t child = fork();
    if (child == 0) {
        char go;
        MUST(read(turn[0], &go, 1) == 1);
        goes_on("child", v, origin, 10);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            EXPECT_INPUT(v, SIZE, 10);
            EXPECT_INPUT(origin, SIZE, 10);
            _exit(5);
        }
        wait_for("grandchild", grandchild);
        _exit(4);
    }
    goes_on("parent", v, origin, 20);
    EXPECT_INPUT(v, SIZE, 20);
    MUST(write(turn[1], "g", 1) == 1);
    wait_for("child", child);

    /* No order at all: many children at the same time. */
    char *shared = VIEW(30);
    pid_t children[8];
    for (int i = 0; i < 8; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            shared[i * PAGE * 3] ^= 0; /* children touch different pages first */
            char *mine = fresh(SIZE);
            memcpy(mine, shared, SIZE);
            _exit(is_input(mine, SIZE, 30, 0) && is_input(shared, SIZE, 30, 0) ? 0 : 1);
        }
        char *mine = fresh(SIZE);
        memcpy(mine, shared, SIZE);
        if (i % 2) MUST(is_input(mine, SIZE, 30, 0));
    }
    for (int i = 0; i < 8; i++) wait_for("one of many", children[i]);
    EXPECT_INPUT(shared, SIZE, 30);
    return finish();
}
