/* pthread_atfork handlers, registered by the program, that touch, receive, copy and send; also from several threads at once, and in a
 * child of a child. */
#include "process.h"

static char *v, *origin, *to;
static volatile int wrong, calls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void works(unsigned number) {
    __sync_fetch_and_add(&calls, 1);
    receive(origin, SIZE, number);
    memcpy(to, origin, SIZE);
    wrong |= !is_input(to, SIZE, number, 0) || !is_input(v, PAGE, 1, 0);
}
static void prepare(void) {
    pthread_mutex_lock(&lock);
    works(10);
}
static void parent(void) {
    wrong |= !is_input(to, SIZE, 10, 0);
    works(11);
    pthread_mutex_unlock(&lock);
}
static void child(void) {
    wrong |= !is_input(to, SIZE, 10, 0) || !is_input(origin, SIZE, 10, 0);
    works(12);
    pthread_mutex_unlock(&lock);
}

static void *forks(void *unused) {
    for (int i = 0; i < 4; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (!wrong && fork() == 0) _exit(wrong || !is_input(v, SIZE, 1, 0) || !is_input(to, SIZE, 12, 0));
            int status = 0;
            wait(&status);
            _exit(wrong || status);
        }
        int status = -1;
        MUST(waitpid(pid, &status, 0) == pid);
        wrong |= status != 0;
    }
    return unused;
}

int main(void) {
    v = VIEW(1);
    origin = fresh(SIZE), to = fresh(SIZE);
    MUST(pthread_atfork(prepare, parent, child) == 0);
    forks(NULL);
    say("wrong: %d, calls %d", wrong, calls);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, forks, NULL) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    say("wrong: %d, calls %d", wrong, calls);
    EXPECT_INPUT(v, SIZE, 1);
    if (wrong) return 1;
    return finish();
}
