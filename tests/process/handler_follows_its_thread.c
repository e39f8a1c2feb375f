/* The thread that answers faults waits for them on the core of the program's thread, if it has one and that stays there (a thread on another
 * core is woken ten times as slowly), else wherever the kernel likes. */
#include "process.h"
#include <dirent.h>

/* Lets this thread run there only. */
static void go_to(const cpu_set_t *cores) { MUST(sched_setaffinity(0, sizeof *cores, cores) == 0); }

/* Where the thread of this name may run; returns whether there is one. */
static int cores_of(const char *name, cpu_set_t *cores) {
    DIR *tasks = opendir("/proc/self/task");
    MUST(tasks);
    int found = 0;
    for (struct dirent *d; (d = readdir(tasks));) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        if (fgets(comm, sizeof comm, f)) comm[strcspn(comm, "\n")] = 0;
        fclose(f);
        if (!strcmp(comm, name)) found = sched_getaffinity(atoi(d->d_name), sizeof *cores, cores) == 0;
    }
    closedir(tasks);
    return found;
}

/* Copies, and touches what was copied, every eighth page: eight faults. (Blocks are never freed: a page that was touched once stays in memory.) */
static void have_faults(unsigned number) {
    char *from = malloc(SIZE), *to = malloc(SIZE);
    receive(from, SIZE, number);
    ELIDED_COPY(to, from, SIZE);
    int wrong = 0;
    for (size_t at = 0; at < SIZE; at += 8 * PAGE)
        wrong |= ((volatile unsigned char *)to)[at] != input_byte(number, at);
    MUST(!wrong);
}

/* Whether a seccomp filter is in force (of a container, perhaps): then the thread is never bound. */
static int filtered(void) {
    char line[128];
    int mode = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "Seccomp: %d", &mode);
    if (f) fclose(f);
    return mode != 0;
}

/* Under uncopy: whether the thread is bound to these cores. */
static void expect(const char *when, const cpu_set_t *cores) {
    cpu_set_t its;
    CPU_ZERO(&its);
    /* (Nor where it would never let a real-time thread run.) */
    if (!eager() || filtered() || sched_getscheduler(0) != SCHED_OTHER) return;
    if (!cores_of("uncopy", &its))
        say("WRONG: there is no such thread");
    else if (!CPU_EQUAL(&its, cores))
        say("WRONG: %s it may run on %d cores, the first %d", when, CPU_COUNT(&its), CPU_ISSET(0, &its));
}

static pthread_mutex_t ends = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *arg) {
    pthread_mutex_lock(&ends);
    return arg;
}

int main(void) {
    MUST(pthread_mutex_lock(&ends) == 0);
    cpu_set_t all, one, other;
    MUST(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    CPU_ZERO(&other);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            if (CPU_COUNT(&one) == 0) CPU_SET(i, &one);
            else if (CPU_COUNT(&other) == 0) CPU_SET(i, &other);
        }
    if (CPU_COUNT(&other) == 0) {
        say("one core only");
        return finish();
    }
    char *small = malloc(SIZE), *copy = malloc(SIZE);
    receive(small, SIZE, 1);
    ELIDED_COPY(copy, small, SIZE); /* (Its thread is made here, before this one is bound.) */
    expect("before any fault", &all);
    go_to(&one);
    for (unsigned i = 0; i < 3; i++) have_faults(i);
    expect("while faults come from one core", &one);
    go_to(&other);
    for (unsigned i = 3; i < 6; i++) have_faults(i);
    expect("after the thread has moved", &other);
    /* With a second thread. */
    pthread_t second;
    MUST(pthread_create(&second, NULL, waits, NULL) == 0);
    have_faults(6);
    expect("while there are two threads", &all);
    MUST(pthread_mutex_unlock(&ends) == 0);
    pthread_join(second, NULL);
    for (unsigned i = 7; i < 9; i++) have_faults(i);
    expect("while there is one again", &other);
    /* The thread's core changes with every fault. */
    go_to(&all);
    for (unsigned i = 0; i < 20; i++) {
        char *to = malloc(SIZE);
        go_to(i % 2 ? &one : &other);
        ELIDED_COPY(to, small, SIZE);
        MUST(((volatile unsigned char *)to)[5 * PAGE] == input_byte(1, 5 * PAGE));
    }
    go_to(&all);
    expect("while faults come from everywhere", &all);
    EXPECT_INPUT(copy, SIZE, 1);
    return finish();
}
