/* A handler that writes nothing to its stack can return from one that has become read-only, or of which hardly more than the
 * kernel's frame is there; another thread changes the protection all the time (as in LTP's signal06). And what handlers do. */
#include "process.h"
#include <sys/auxv.h>

static char stack_memory[PAGE * 10] __attribute__((aligned(4096)));
static volatile int done, quiet, frames;
static double value = 123.456;

/* Counts without a stack. */
__attribute__((naked)) static void on_hup(int signal) {
    (void)signal;
    __asm__("lock incl %0; ret" : "+m"(quiet));
}
__attribute__((naked)) static void on_segv(int signal) {
    (void)signal;
    __asm__("lock incl %0; ret" : "+m"(frames));
}

static void *protects(void *unused) {
    while (!done) {
        MUST(mprotect(stack_memory, sizeof stack_memory, PROT_READ) == 0);
        MUST(mprotect(stack_memory, sizeof stack_memory, PROT_READ | PROT_WRITE) == 0);
    }
    return unused;
}

static int lowest_room(long size) {
    /* Only the frame fits: the least that the kernel takes. */
    stack_t stack = {.ss_sp = stack_memory + sizeof stack_memory - size, .ss_size = (size_t)size};
    if (sigaltstack(&stack, NULL) != 0) return 0;
    memset(stack_memory, 0x5a, sizeof stack_memory);
    quiet = 0;
    raise(SIGHUP);
    for (size_t i = 0; i < sizeof stack_memory - (size_t)size; i++)
        if (stack_memory[i] != 0x5a) return 0;
    return quiet == 1;
}

int main(void) {
    char *v = VIEW(1), *copy = fresh(SIZE);
    long least = (long)getauxval(51 /* AT_MINSIGSTKSZ */);
    struct sigaction act = {.sa_handler = on_segv};
    MUST(sigaction(SIGSEGV, &act, NULL) == 0);
    act.sa_handler = on_hup, act.sa_flags = SA_ONSTACK;
    MUST(sigaction(SIGHUP, &act, NULL) == 0);
    say("hardly any room: %d", lowest_room(least ? least : 2048));
    stack_t stack = {.ss_sp = stack_memory, .ss_size = sizeof stack_memory};
    MUST(sigaltstack(&stack, NULL) == 0);
    pthread_t thread;
    int pid = getpid();
    for (int round = 0; round < 3; round++) {
        done = 0;
        MUST(pthread_create(&thread, NULL, protects, NULL) == 0);
        register double kept __asm__("xmm7") = value;
        int loop = 0;
        for (; loop < 30000; loop++) {
            long result = SYS_tkill;
            __asm__ volatile("syscall" : "+a"(result), "+x"(kept) : "D"((long)pid), "S"((long)SIGHUP) : "rcx", "r11", "memory");
            if (kept != value) break;
        }
        say("loops: %d", loop);
        done = 1;
        pthread_join(thread, NULL);
    }
    say("handled: %d", quiet + frames > 80000);
    ELIDED_COPY(copy, v, SIZE);
    EXPECT_INPUT(copy, SIZE, 1);
    return finish();
}
