/* A runtime with handlers of its own (the JVM, which uses faults), in a program that installs some
 * too, beside a library that chains them: each handler is called when it would be, whether the
 * library stands before uncopy or behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void (*runtime_begins)(void), (*runtime_ends)(void);
static const struct sigaction *(*runtime_chained)(int);
static char *volatile guarded;
static volatile int of_runtime, of_program, of_first;
static char *volatile nowhere = (char *)64;

static void by_runtime(int signal, siginfo_t *info, void *context) {
    if (++of_runtime > 100) _exit(3);
    if (signal == SIGSEGV && (char *)info->si_addr == guarded) {
        mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
        return;
    }
    const struct sigaction *next = runtime_chained(signal);
    if (next->sa_flags & SA_SIGINFO) next->sa_sigaction(signal, info, context);
    else if (next->sa_handler != SIG_DFL && next->sa_handler != SIG_IGN) next->sa_handler(signal);
    else _exit(4);
}
static void by_program(int signal) {
    (void)signal;
    of_program++;
}
static void at_first(int signal) {
    (void)signal;
    of_first++;
}

/* Input, a copy of it, and output, so that what uncopy does to signals is done. */
static void work(void) {
    static char in[1 << 18], out[1 << 18];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) _exit(5);
    for (int i = 0; i < 40; i++) {
        memset(in, i, sizeof in);
        for (size_t sent = 0, got = 0; sent < sizeof in; sent += 1 << 16) {
            if (write(pair[0], in + sent, 1 << 16) != 1 << 16) _exit(5);
            while (got < sent + (1 << 16)) {
                ssize_t n = read(pair[1], out + got, sizeof out - got);
                if (n <= 0) _exit(5);
                got += (size_t)n;
            }
        }
        memcpy(in, out, sizeof in);
        if (in[sizeof in - 1] != i) printf("WRONG: byte %d\n", i);
    }
    /* A pointer into nowhere. */
    printf("%zd from nowhere\n", write(pair[0], nowhere, 10));
    close(pair[0]), close(pair[1]);
}

int main(void) {
    runtime_begins = (void (*)(void))dlsym(RTLD_DEFAULT, "runtime_begins");
    runtime_ends = (void (*)(void))dlsym(RTLD_DEFAULT, "runtime_ends");
    runtime_chained = (const struct sigaction *(*)(int))dlsym(RTLD_DEFAULT, "runtime_chained");
    if (!runtime_begins || !runtime_ends || !runtime_chained) return 2;
    if (signal(SIGUSR1, at_first) == SIG_ERR || signal(SIGUSR2, by_program) != SIG_DFL) return 2;
    work();
    struct sigaction own = {.sa_sigaction = by_runtime, .sa_flags = SA_SIGINFO}, before;
    runtime_begins();
    sigaction(SIGSEGV, &own, &before);
    printf("the runtime found %s\n", before.sa_handler == SIG_DFL ? "no handler" : "a handler");
    sigaction(SIGUSR1, &own, &before);
    printf("and %s\n", before.sa_handler == at_first ? "the program's" : "another one");
    runtime_ends();
    /* The program asks for the same signals. */
    struct sigaction new = {.sa_handler = by_program};
    sigaction(SIGSEGV, &new, &before);
    printf("the program finds %s\n", before.sa_handler == SIG_DFL ? "no handler" : "a handler");
    for (int i = 0; i < 3; i++) {
        guarded = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *(volatile char *)guarded = 1;
        raise(SIGUSR1), raise(SIGUSR2), raise(SIGSEGV);
        work();
    }
    printf("runtime %d, program %d, first %d\n", of_runtime, of_program, of_first);
    return 0;
}
