/* _exit, exit, quick_exit, return from main, abort, SIGKILL and a fatal fault, while other threads copy and touch views all the time. */
#define MAP_CHANGES_MEANWHILE
#include "process.h"

static volatile int started;

static void *faults(void *arg) {
    unsigned number = (unsigned)(uintptr_t)arg;
    char *from = fresh(SIZE), *to = fresh(SIZE);
    for (; from != to; number++) {
        receive(from, SIZE, number);
        memcpy(to, from, SIZE);
        __sync_fetch_and_add(&started, 1);
        for (size_t at = 0; at < SIZE; at += PAGE)
            if (((volatile char *)to)[at] != (char)input_byte(number, at)) {
                say("WRONG: page %zu of input %u", at / PAGE, number);
                raw(SYS_exit_group, 77, 0, 0, 0, 0, 0);
            }
    }
    return NULL;
}

static int ends(int how) {
    pthread_t thread;
    char *v = VIEW(1);
    for (uintptr_t i = 0; i < 3; i++) MUST(pthread_create(&thread, NULL, faults, (void *)(100 * i)) == 0);
    while (started < 6) sched_yield();
    usleep((useconds_t)how * 700);
    switch (how % 8) {
    case 0: _exit(10);
    case 1: exit(11);
    case 2: quick_exit(12);
    case 3: return 13;
    case 4: abort();
    case 5: raise(SIGKILL); break;
    case 6: mprotect(v, SIZE, PROT_NONE), v[SIZE / 2] = 1; break;
    default: kill(getpid(), SIGTERM), pause();
    }
    return 99;
}

int main(int argc, char **argv) {
    if (argc > 1) return ends(atoi(argv[1]));
    for (int how = 0; how < 24; how++) {
        pid_t child = fork();
        if (child == 0) {
            char number[8];
            snprintf(number, sizeof number, "%d", how);
            if (how < 16) {
                execl("/proc/self/exe", argv[0], number, (char *)NULL);
                _exit(98);
            }
            exit(ends(how)); /* without exec */
        }
        wait_for("ended", child);
    }
    VIEW(1);
    return finish();
}
