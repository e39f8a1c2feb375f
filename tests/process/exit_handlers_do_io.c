/* Exit handlers that receive, copy, touch and send: atexit, on_exit, destructors, quick_exit, in the process and in children; also a
 * fork in one of them, and the cleanup of a first thread that ends by pthread_exit. */
#include "process.h"

static char *v, *origin, *to;
static unsigned number = 100;

static void works(const char *what) {
    if (!v) return;
    receive(origin, SIZE, ++number);
    memcpy(to, origin, SIZE);
    send_on(what, to, SIZE);
    if (!is_input(v, SIZE, 1, 0) || !is_input(to, SIZE, number, 0)) _exit(1);
}
static void at_exit(void) { works("atexit"); }
static void at_quick_exit_(void) { works("at_quick_exit"); }
static void on_exit_(int status, void *arg) {
    say("on_exit: %d %s", status, (char *)arg);
    works("on_exit");
    pid_t child = fork();
    if (child == 0) _exit(is_input(v, SIZE, 1, 0) ? 0 : 1);
    wait_for("forked at exit", child);
}
__attribute__((destructor)) static void destructor_(void) { works("destructor"); }

static void cleanup(void *unused) {
    (void)unused;
    usleep(300000); /* the process must not end under a first thread that is still cleaning up */
    works("cleanup");
}

static void *last(void *unused) {
    usleep(100000);
    works("last thread");
    printf("buffered until exit\n"); /* flushed by whoever is the last thread */
    return unused;
}

int main(void) {
    MUST(atexit(at_exit) == 0 && at_quick_exit(at_quick_exit_) == 0 && on_exit(on_exit_, (void *)"argument") == 0);
    for (int how = 0; how < 6; how++) {
        pid_t child = fork();
        if (child == 0) {
            v = VIEW(1);
            origin = fresh(SIZE), to = fresh(SIZE);
            receive(origin, SIZE, 2);
            ELIDED_COPY(to, origin, SIZE);
            pthread_t thread;
            switch (how) {
            case 0: exit(3);
            case 1: quick_exit(4);
            case 2: _exit(5);
            case 3:
                pthread_cleanup_push(cleanup, NULL);
                pthread_exit(NULL);
                pthread_cleanup_pop(1);
                break;
            case 4:
                MUST(pthread_create(&thread, NULL, last, NULL) == 0);
                pthread_exit(NULL);
            default: abort();
            }
        }
        wait_for("child", child);
    }
    v = VIEW(1);
    origin = fresh(SIZE), to = fresh(SIZE);
    return finish();
}
