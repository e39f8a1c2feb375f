/* The program's own SIGSEGV and SIGBUS handlers, on an alternate stack: faults that are its own still reach it, with the right
 * address; its handlers touch and copy views, go on, or jump out; also out of a copy. */
#include "process.h"

static sigjmp_buf out;
static char *volatile base, *v, *target, *guarded;
static volatile sig_atomic_t action;

static void handler(int signal, siginfo_t *info, void *context) {
    (void)context;
    char here;
    if (action == 0) say("on the alternate stack: %s", &here > base && &here < base + SIZE ? "yes" : "no");
    /* (Which byte of the page a copy touches first is its own business.) */
    say("signal %d, code %d, page %ld", signal, info->si_code, (long)((char *)info->si_addr - guarded) >> 12);
    if (action == 0) {
        if (!is_input(v, SIZE, 1, 0)) _exit(1); /* touches views inside */
        mprotect(guarded, PAGE, PROT_READ | PROT_WRITE);
        return;
    }
    siglongjmp(out, 1);
}

static void tries(const char *what, int how) {
    action = 1;
    if (sigsetjmp(out, 1) == 0) {
        if (how == 0) *(volatile char *)guarded = 1;
        if (how == 1) ELIDED_COPY(guarded - PAGE * 8, target, PAGE * 16); /* runs into the guarded page */
        if (how == 2) memcpy(target, guarded - PAGE * 8, PAGE * 16);
        if (how == 3) *(volatile char *)guarded = *(volatile char *)(guarded + PAGE);
        say("%s: nothing happened", what);
    } else {
        say("%s: jumped out", what);
    }
}

int main(void) {
    v = VIEW(1);
    target = VIEW(2);
    base = fresh(SIZE);
    stack_t stack = {.ss_sp = base, .ss_size = SIZE};
    MUST(sigaltstack(&stack, NULL) == 0);
    struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    MUST(sigaction(SIGSEGV, &act, NULL) == 0 && sigaction(SIGBUS, &act, NULL) == 0);

    char *region = fresh(SIZE);
    guarded = region + SIZE / 2;
    MUST(mprotect(guarded, PAGE, PROT_NONE) == 0);
    action = 0;
    *(volatile char *)guarded = 'g';
    say("went on: %c", *guarded);
    MUST(mprotect(guarded, PAGE, PROT_NONE) == 0);
    tries("write", 0);
    tries("copy into", 1);
    tries("copy from", 2);
    MUST(munmap(guarded, PAGE) == 0);
    tries("write to nothing", 0);
    tries("copy into nothing", 1);
    tries("copy from nothing", 2);
    ELIDED_COPY(region, VIEW(4), SIZE / 4);
    EXPECT_INPUT(region, SIZE / 4, 4);

    /* SIGBUS: a file that is shorter than its mapping. */
    int fd = memfd_create("short", 0);
    MUST(ftruncate(fd, (long)(PAGE * 8)) == 0);
    char *file = mmap(NULL, PAGE * 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(file != MAP_FAILED);
    guarded = file + PAGE * 8;
    tries("write behind the file", 0);
    tries("copy from behind the file", 2);
    tries("copy into behind the file", 1);

    char *fine = VIEW(3);
    EXPECT_INPUT(fine, SIZE, 3);
    EXPECT_INPUT(v, SIZE, 1);

    /* Without a handler it ends the process as ever. */
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        static volatile char *volatile nowhere;
        *nowhere = 1;
        _exit(0);
    }
    wait_for("no handler", child);
    return finish();
}
