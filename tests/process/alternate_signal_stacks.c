/* sigaltstack: handlers of several threads on alternate stacks that lie in memory which held views, nested, and small ones. */
#define MAP_CHANGES_MEANWHILE
#include "process.h"

static volatile int handled, wrong;

static void works(int signal) {
    char here;
    stack_t now;
    MUST(sigaltstack(NULL, &now) == 0);
    if (&here < (char *)now.ss_sp || &here >= (char *)now.ss_sp + now.ss_size || !(now.ss_flags & SS_ONSTACK)) wrong = 1;
    __sync_fetch_and_add(&handled, 1);
    if (signal == SIGUSR1) {
        char *from = fresh(SIZE), *v = fresh(SIZE);
        receive(from, SIZE, 7);
        memcpy(v, from, SIZE);
        wrong |= !is_input(v, SIZE, 7, 0);
        munmap(v, SIZE), munmap(from, SIZE);
        raise(SIGUSR2); /* nested, on the same stack */
    }
}

static void *has_a_stack(void *unused) {
    /* The stack's memory was an origin or holds views when it becomes a stack. */
    char *memory = VIEW(1), *origin = fresh(SIZE), *copy = fresh(SIZE);
    receive(origin, SIZE, 2);
    ELIDED_COPY(copy, origin, SIZE);
    for (int round = 0; round < 20; round++) {
        stack_t stack = {.ss_sp = round % 2 ? memory : origin, .ss_size = SIZE};
        MUST(sigaltstack(&stack, NULL) == 0);
        pthread_kill(pthread_self(), SIGUSR1);
        if (round % 5 == 4) { /* and again */
            char *fresh_input = VIEW(3);
            memcpy(origin, fresh_input, SIZE / 4);
            munmap(fresh_input, SIZE);
        }
    }
    wrong |= !is_input(copy, SIZE, 2, 0);
    stack_t none = {.ss_flags = SS_DISABLE};
    MUST(sigaltstack(&none, NULL) == 0);
    return unused;
}

int main(void) {
    struct sigaction act = {.sa_handler = works, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &act, NULL) == 0 && sigaction(SIGUSR2, &act, NULL) == 0);
    VIEW(1); /* (while the first elided copy starts everything, other threads' copies are plain) */
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, has_a_stack, NULL) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    has_a_stack(NULL);
    say("wrong: %d, handled: %d", wrong, handled);
    if (wrong) return 1;
    return finish();
}
