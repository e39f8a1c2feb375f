/* A program that runs itself under valgrind: nothing is elided there, large blocks are valgrind's to watch, and the program ends as usual. */
#include "process.h"

/* The part that valgrind runs. `wrong`: it writes behind a block. */
static int watched(int wrong) {
    char *from = malloc(SIZE), *to = malloc(SIZE);
    MUST(from && to);
    receive(from, SIZE, 1);
    memcpy(to, from, SIZE);
    EXPECT_INPUT(to, SIZE, 1);
    volatile size_t behind = SIZE; /* (The compiler is not to see it.) */
    if (wrong) ((volatile char *)to)[behind] = 1;
    free(from);
    free(to);
    return 0;
}

static void run(const char *tool, const char *self, const char *how) {
    say("valgrind %s, %s:", tool, how);
    pid_t child = fork();
    if (child == 0) {
        /* (Its own words tell addresses and process numbers.) */
        int null = open("/dev/null", O_WRONLY);
        MUST(null >= 0 && dup2(null, 2) == 2);
        execlp("valgrind", "valgrind", "-q", "--error-exitcode=9", tool, self, how, (char *)NULL);
        say("no valgrind here");
        _exit(4);
    }
    wait_for("valgrind", child);
}

int main(int argc, char **argv) {
    if (argc > 1) return watched(!strcmp(argv[1], "wrong"));
    char *view = VIEW(1);
    run("--tool=none", argv[0], "right");
    run("--tool=memcheck", argv[0], "right");
    run("--tool=memcheck", argv[0], "wrong");
    EXPECT_INPUT(view, SIZE, 1);
    return finish();
}
