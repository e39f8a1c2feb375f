/* A thread executes another program while the others copy and touch views; its arguments, environment and path lie in views. */
#define MAP_CHANGES_MEANWHILE
#include "process.h"

extern char **environ;
static volatile int started;

static void *faults(void *arg) {
    unsigned number = (unsigned)(uintptr_t)arg;
    char *from = fresh(SIZE), *to = fresh(SIZE);
    for (;; number++) {
        receive(from, SIZE, number);
        memcpy(to, from, SIZE);
        __sync_fetch_and_add(&started, 1);
        MUST(is_input(to, SIZE / 8, number, 0));
    }
}

static char *in_view(const char *text) { /* received, copied, never touched by the program */
    static char block[SIZE];
    int fd = memfd_create("text", MFD_CLOEXEC);
    MUST(raw(SYS_pwrite64, fd, (long)text, (long)strlen(text), SIZE / 2, 0, 0) == (long)strlen(text));
    MUST(ftruncate(fd, SIZE) == 0 && pread(fd, block, SIZE, 0) == (ssize_t)SIZE);
    char *v = fresh(SIZE), *w = fresh(SIZE);
    MUST(pread(fd, w, SIZE, 0) == (ssize_t)SIZE);
    ELIDED_COPY(v, w, SIZE);
    MUST_BE_UNMAPPED(v + SIZE / 2);
    close(fd);
    return v + SIZE / 2;
}

static void *executes(void *argv0) {
    char *path = in_view("/proc/self/exe"), *argument = in_view("executed in a view");
    char *arguments[] = {argv0, argument, NULL};
    while (started < 6) sched_yield();
    execv(path, arguments);
    _exit(97);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        say("executed: %s, %d arguments", argv[1], argc);
        return is_input(VIEW(5), SIZE, 5, 0) ? 21 : 1;
    }
    for (int round = 0; round < 6; round++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            VIEW(1);
            for (uintptr_t i = 0; i < 3; i++) MUST(pthread_create(&thread, NULL, faults, (void *)(100 * i)) == 0);
            if (round % 2) executes(argv[0]);
            MUST(pthread_create(&thread, NULL, executes, argv[0]) == 0);
            for (;;) pause();
        }
        wait_for("ended", child);
    }
    VIEW(1);
    return finish();
}
