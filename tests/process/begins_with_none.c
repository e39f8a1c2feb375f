/* As users have it: no copy is elided, and nothing of ours starts, before the program has copied some MB; then eliding is tried out. (A
 * child's copies count anew.) With sites that are never left alone it begins with the first copy. */
#include "process.h"
#include <dirent.h>

enum { COPIES = 4, FEW = (4 << 20) / SIZE / COPIES };

static char *from, *to[COPIES];

static void relay(unsigned number) {
    receive(from, SIZE, number);
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    for (int i = 0; i < COPIES; i++) copy(to[i], from, SIZE);
}

static int threads(void) {
    int n = 0;
    DIR *all = opendir("/proc/self/task");
    MUST(all);
    for (struct dirent *e; (e = readdir(all));) n += e->d_name[0] != '.';
    closedir(all);
    return n;
}

static void begin(const char *who) {
    for (unsigned i = 0; i < FEW; i++) relay(i);
    EXPECT_INPUT(to[COPIES - 1], SIZE, FEW - 1);
    if (counters() && !eager() && (elided_copies() || threads() != 1)) say("WRONG: eliding has begun, in %s", who);
    if (eager() && !elided_copies()) say("WRONG: nothing was elided, in %s", who);
    say("%s: begun", who);
}

int main(int argc, char **argv) {
    (void)argc;
    const char *controller = getenv("UNCOPY_CONTROLLER");
    if (!controller || strcmp(controller, "accounts")) {
        MUST(setenv("UNCOPY_CONTROLLER", "accounts", 1) == 0);
        execv("/proc/self/exe", argv);
        MUST(0);
    }
    from = fresh(SIZE);
    for (int i = 0; i < COPIES; i++) to[i] = fresh(SIZE);
    begin("the program");
    pid_t child = fork();
    if (child == 0) {
        begin("a child");
        _exit(0);
    }
    wait_for("the child", child);
    unsigned last = 0;
    if (counters())
        while (!elided_copies() && ++last < 20000) relay(last);
    if (counters() && !elided_copies()) say("WRONG: eliding is never tried");
    relay(7);
    for (int i = 0; i < COPIES; i++) EXPECT_INPUT(to[i], SIZE, 7);
    return 0;
}
