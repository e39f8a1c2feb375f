/* vfork: the child runs on the parent's memory, touches views there, receives into a view, and executes. */
#include "process.h"

int main(int argc, char **argv) {
    if (argc > 1) return is_input(VIEW(3), SIZE, 3, 0) ? 6 : 1;
    char *v = VIEW(1), *origin = fresh(SIZE);
    receive(origin, SIZE, 2);
    static char *volatile made;
    pid_t child = vfork();
    if (child == 0) {
        v[PAGE * 20] ^= 1;
        v[PAGE * 20] ^= 1;
        receive(origin + PAGE * 4, SIZE / 2, 4);
        made = fresh(SIZE);
        ELIDED_COPY(made, origin, SIZE); /* by the child, in the parent's memory */
        MUST_BE_UNMAPPED(made + SIZE / 2);
        execv("/proc/self/exe", (char *[]){argv[0], (char *)"child", NULL});
        _exit(99);
    }
    wait_for("executed", child);
    MUST_BE_UNMAPPED(made + SIZE / 2);
    EXPECT_INPUT(made, PAGE * 4, 2);
    EXPECT_INPUT(made + PAGE * 4, SIZE / 2, 4);
    EXPECT_INPUT_FROM(made + PAGE * 4 + SIZE / 2, SIZE / 2 - PAGE * 4, 2, PAGE * 4 + SIZE / 2);
    EXPECT_INPUT(v, SIZE, 1);
    child = vfork();
    if (child == 0) _exit(v[SIZE / 2] == (char)input_byte(1, SIZE / 2) ? 3 : 4);
    wait_for("only exits", child);
    child = vfork();
    if (child == 0) {
        execl("/nowhere/at/all", "nothing", (char *)NULL);
        _exit(errno == ENOENT ? 5 : 6);
    }
    wait_for("cannot execute", child);
    send_on("parent", v, SIZE);
    return finish();
}
