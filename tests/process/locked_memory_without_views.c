/* mlockall in a child for which nothing is tracked, so that no thread of ours is there to answer for memory that is locked. */
#include "process.h"

static long number_in(const char *file, const char *pattern) {
    char line[200];
    long n = -1;
    FILE *f = fopen(file, "r");
    MUST(f);
    while (fgets(line, sizeof line, f)) sscanf(line, pattern, &n);
    fclose(f);
    return n;
}

int main(void) {
    char *from = fresh(SIZE), *to = fresh(SIZE);
    receive(from, SIZE, 1);
    ELIDED_COPY(to, from, SIZE);
    MUST_BE_UNMAPPED(to + SIZE / 2);
    MUST(munmap(from, SIZE) == 0 && munmap(to, SIZE) == 0); /* that was all */
    pid_t child = fork();
    if (child == 0) {
        say("threads: %ld", number_in("/proc/self/status", "Threads: %ld"));
        MUST(mlockall(MCL_CURRENT) == 0);
        say("less than 64 MB locked: %d", number_in("/proc/self/smaps_rollup", "Locked: %ld kB") < 65536);
        char *after = fresh(SIZE);
        receive(after, SIZE, 2);
        EXPECT_INPUT(after, SIZE, 2);
        _exit(0);
    }
    wait_for("locker", child);
    return finish();
}
