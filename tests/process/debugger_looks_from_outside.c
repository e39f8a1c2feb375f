/* A debugger: another process stops this one, looks at an unmapped page by ptrace and /proc/PID/mem, and lets it go on.
 * Resident pages read as ever; the stopped process is not harmed. */
#include "process.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>

int main(void) {
    char *v = VIEW(1);
    char *resident = fresh(PAGE);
    fill(resident, PAGE, 2, 0);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    int result[2];
    MUST(pipe(result) == 0);
    pid_t parent = getpid(), debugger = fork();
    if (debugger == 0) {
        int status, seen[3] = {0, 0, 0};
        MUST(ptrace(PTRACE_ATTACH, parent, NULL, NULL) == 0 && waitpid(parent, &status, __WALL) == parent);
        errno = 0;
        long word = ptrace(PTRACE_PEEKDATA, parent, v + SIZE / 2, NULL), expected;
        char bytes[8];
        fill(bytes, 8, 1, SIZE / 2);
        memcpy(&expected, bytes, 8);
        seen[0] = errno == 0 && word == expected ? 1 : errno == EIO ? 0 : 2;
        char path[40];
        snprintf(path, sizeof path, "/proc/%d/mem", parent);
        int mem = open(path, O_RDWR);
        MUST(mem >= 0);
        char some[64];
        ssize_t n = pread(mem, some, sizeof some, (long)(v + SIZE / 2));
        seen[1] = n == 64 && is_input(some, 64, 1, SIZE / 2) ? 1 : n < 0 && errno == EIO ? 0 : 2;
        n = pread(mem, some, sizeof some, (long)resident);
        seen[2] = n == 64 && is_input(some, 64, 2, 0);
        MUST(pwrite(mem, "poked", 5, (long)resident + 100) == 5);
        MUST(ptrace(PTRACE_DETACH, parent, NULL, NULL) == 0);
        MUST(write(result[1], seen, sizeof seen) == sizeof seen);
        _exit(0);
    }
    int seen[3];
    ssize_t n;
    while ((n = read(result[0], seen, sizeof seen)) < 0) MUST(errno == EINTR);
    MUST(n == sizeof seen);
    wait_for("debugger", debugger);
    say("memory that is there: %d, written: %.5s", seen[2], resident + 100);
    if (seen[0] == 2 || seen[1] == 2) say("WRONG: neither the bytes nor EIO: %d %d", seen[0], seen[1]);
    documented("Reading the memory of the process through `/proc/PID/mem` or ptrace (debuggers) fails with EIO", seen[0] && seen[1]);
    EXPECT_INPUT(v, SIZE, 1);
    /* The program's own: served. */
    char *w = VIEW(3), *got = fresh(SIZE);
    int self = open("/proc/self/mem", O_RDWR);
    MUST(pread(self, got, SIZE, (long)w) == (ssize_t)SIZE);
    EXPECT_INPUT(got, SIZE, 3);
    MUST(pwrite(self, resident, PAGE / 2, (long)w + 50) == (ssize_t)PAGE / 2);
    EXPECT_INPUT(w, 50, 3);
    EXPECT_INPUT(w + 50, 100, 2);
    return finish();
}
