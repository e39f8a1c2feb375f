/* mlock, mlock2, munlock and mlockall, now and for the future, of memory with and without views. */
#include "process.h"

static long locked_kilobytes(void) {
    char line[200];
    long n = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    MUST(f);
    while (fgets(line, sizeof line, f)) sscanf(line, "Locked: %ld kB", &n);
    fclose(f);
    return n;
}

int main(void) {
    char *v = VIEW(1);
    MUST(mlock(v, SIZE) == 0); /* views are put in place and locked */
    say("locked: %d", !page_missing(v + SIZE / 2));
    EXPECT_INPUT(v, SIZE, 1);
    char *locked = fresh(SIZE);
    MUST(mlock(locked, SIZE) == 0);
    receive(locked, SIZE, 2); /* input into locked memory, copied out: its pages stay */
    char *to = fresh(SIZE);
    memcpy(to, locked, SIZE);
    say("still there: %d", !page_missing(locked + SIZE / 2));
    EXPECT_INPUT(to, SIZE, 2);
    ELIDED_COPY(to, VIEW(3), SIZE);
    memcpy(locked, to, SIZE); /* into locked memory */
    say("still there: %d", !page_missing(locked + SIZE / 2));
    EXPECT_INPUT(locked, SIZE, 3);
    MUST(munlock(v, SIZE) == 0 && munlock(locked, SIZE) == 0);
    receive(locked, SIZE, 4);
    ELIDED_COPY(to, locked, SIZE);
    EXPECT_INPUT(to, SIZE, 4);
    char *lazily = VIEW(5);
    MUST(syscall(SYS_mlock2, lazily, SIZE, 1 /* MLOCK_ONFAULT */) == 0);
    receive(to, SIZE, 6);
    ELIDED_COPY(fresh(SIZE), to, SIZE);
    EXPECT_INPUT(lazily, SIZE, 5);
    MUST(munlock(lazily, SIZE) == 0);

    static const struct {
        const char *name;
        int flags;
    } ways[] = {{"current", MCL_CURRENT}, {"future", MCL_FUTURE}, {"both", MCL_CURRENT | MCL_FUTURE},
                {"lazily", MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT}};
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        if (child == 0) {
            char *before = VIEW(7);
            MUST(mlockall(ways[way].flags) == 0);
            receive(to, SIZE, 8);
            char *after = fresh(SIZE);
            memcpy(after, to, SIZE);
            say("mlockall %s: views there: %d, origin there: %d, copy there: %d", ways[way].name,
                !page_missing(before + SIZE / 2), !page_missing(to + SIZE / 2), !page_missing(after + SIZE / 2));
            EXPECT_INPUT(before, SIZE, 7);
            EXPECT_INPUT(after, SIZE, 8);
            say("less than 64 MB locked: %d", locked_kilobytes() < 65536); /* not the pool too */
            MUST(munlockall() == 0);
            EXPECT_INPUT(after, SIZE, 8);
            _exit(0);
        }
        wait_for("locker", child);
    }
    EXPECT_INPUT(to, SIZE, 6);
    return finish();
}
