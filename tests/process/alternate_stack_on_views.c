/* An alternate signal stack in memory of which copies were elided before: the kernel writes to it also while its thread is in the
 * middle of the tracker's work. Given by the library's function and by number; before anything was elided, and after. */
#include "process.h"
#include <sys/time.h>

static volatile int got, right = 1;
static char *stack_memory;
static void on(int signal) {
    (void)signal;
    char here;
    right &= &here >= stack_memory && &here < stack_memory + SIZE;
    got++;
}

int main(void) {
    struct sigaction act = {.sa_handler = on, .sa_flags = SA_ONSTACK | SA_RESTART};
    MUST(sigaction(SIGALRM, &act, 0) == 0);
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    char *early = fresh(SIZE);
    stack_t before = {.ss_sp = early, .ss_size = SIZE}, old = {.ss_flags = 77};
    MUST(sigaltstack(&before, &old) == 0 && old.ss_flags == SS_DISABLE);
    char *x = fresh(SIZE), *y = fresh(SIZE);
    receive(x, SIZE, 1);
    ELIDED_COPY(y, x, SIZE);
    for (int i = 0; i < 3; i++) memcpy(early, x, SIZE);
    if (page_missing(early + SIZE / 2)) say("WRONG: an alternate stack was unmapped");
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    /* Anew for each round: freed and given out again, and while it is a stack copied to (below what is used of it). */
    for (int round = 0; round < 200; round++) {
        MUST(sigprocmask(SIG_BLOCK, &alarm_only, NULL) == 0);
        if (round % 4 == 0) {
            stack_t none = {.ss_flags = SS_DISABLE};
            MUST(sigaltstack(&none, NULL) == 0);
            if (stack_memory) munmap(stack_memory, SIZE);
            stack_memory = fresh(SIZE);
        }
        stack_t s = {.ss_sp = stack_memory, .ss_size = SIZE, .ss_flags = round % 3 ? 0 : (int)(1u << 31) /* SS_AUTODISARM */};
        memcpy(stack_memory, x, SIZE);
        MUST((round & 1 ? (int)syscall(SYS_sigaltstack, &s, NULL) : sigaltstack(&s, NULL)) == 0);
        if (round % 8 == 4) memcpy(stack_memory, x, SIZE);
        MUST(sigprocmask(SIG_UNBLOCK, &alarm_only, NULL) == 0);
        int so_far = got;
        while (got == so_far)
            for (int k = 0; k < 20; k++) memcpy(y, x, SIZE);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    say("on the stack: %d", right);
    EXPECT_INPUT(y, SIZE, 1);
    return finish();
}
