/* A child that executes another program, which elides copies of its own; the parent's views stand. */
#include "process.h"

int main(int argc, char **argv) {
    if (argc > 1) {
        char *v = VIEW(2);
        send_on("executed", v, SIZE);
        EXPECT_INPUT(v, SIZE, 2);
        return 7;
    }
    char *v = VIEW(1);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            if (round == 1) v[SIZE / 2] ^= 1; /* the child touches before it goes */
            execl("/proc/self/exe", argv[0], "child", (char *)NULL);
            _exit(99);
        }
        wait_for("child", child);
    }
    send_on("parent", v, SIZE);
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
