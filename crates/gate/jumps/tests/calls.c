/* libc's own calls with the gate below them (examples/gate.rs is preloaded). `calls NAME` is one test; tests/calls.rs runs them. */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <immintrin.h>
#include <link.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>
#include <dlfcn.h>

#define WEAK __attribute__((weak))
WEAK uint64_t gate_places(void);
WEAK _Bool gate_look(void);
WEAK void gate_pending(uint64_t);
WEAK uint64_t gate_judged(uint64_t), gate_judged_all(void);
WEAK void gate_answer(uint64_t, uint64_t), gate_wait(uint64_t);
WEAK uint32_t gate_waiting(void);
WEAK void gate_fault(_Bool);
enum { NONE = -1, SIGCANCEL = 32 };

#define MUST(x) ((x) ? (void)0 : (printf("line %d: %s (errno %d)\n", __LINE__, #x, errno), fflush(stdout), _exit(1)))

static int file(void) {
    int fd = memfd_create("file", 0);
    MUST(fd >= 0);
    return fd;
}

static void ends_with(pid_t child, int status) {
    int how;
    MUST(waitpid(child, &how, 0) == child);
    MUST(WIFEXITED(how) && WEXITSTATUS(how) == status);
}

static void syncs_are_judged_always(void) {
    int fd = file(), ends[2];
    uint64_t before = gate_judged_all();
    char byte;
    MUST(pipe(ends) == 0 && write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1);
    MUST(syscall(SYS_getpid) == getpid());
    FILE *null = fopen("/dev/null", "w");
    fprintf(null, "x"), fclose(null);
    MUST(gate_judged_all() == before);
    MUST(fsync(fd) == 0 && gate_judged(SYS_fsync) == 1);
    MUST(fdatasync(fd) == 0 && gate_judged(SYS_fdatasync) == 1);
    MUST(syscall(SYS_fsync, fd) == 0 && gate_judged(SYS_fsync) == 2);
    MUST(syscall(SYS_fdatasync, fd) == 0 && gate_judged(SYS_fdatasync) == 2);
    MUST(fsync(-1) == -1 && errno == EBADF);
    MUST(gate_judged_all() == before + 5);
    pid_t child = fork();
    if (child == 0) _exit(7);
    ends_with(child, 7);
    MUST(gate_judged(SYS_clone) == 1);
}

extern char **environ;

static void everything_is_judged_while_something_is_pending(void) {
    gate_pending(1);
    FILE *null = fopen("/dev/null", "w");
    fprintf(null, "x"), fclose(null);
    MUST(gate_judged(SYS_openat) && gate_judged(SYS_write) && gate_judged(SYS_close));
    struct addrinfo *found;
    if (getaddrinfo("localhost", "80", NULL, &found) == 0) freeaddrinfo(found);
    uint64_t sockets = gate_judged(SYS_socket);
    MUST(sockets);
    syslog(LOG_DEBUG, "x");
    MUST(gate_judged(SYS_socket) > sockets);
    char *arguments[] = {"true", NULL};
    pid_t child;
    MUST(posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0);
    ends_with(child, 0);
    MUST(gate_judged(SYS_clone3) + gate_judged(SYS_clone) + gate_judged(SYS_vfork) && gate_judged(SYS_wait4));
    MUST(gate_judged(SYS_execve)); /* (by the child, which has our memory) */
    MUST(system("exit 5") == 5 << 8);
    FILE *from = popen("echo x", "r");
    MUST(fgetc(from) == 'x' && pclose(from) == 0);
    struct timespec little = {0, 1000};
    MUST(nanosleep(&little, NULL) == 0 && gate_judged(SYS_clock_nanosleep));
    MUST(syscall(SYS_getppid) == getppid() && gate_judged(SYS_getppid) == 2);
    void *memory = malloc(64 << 20);
    MUST(memory && gate_judged(SYS_mmap));
    free(memory);
    MUST(gate_judged(SYS_munmap));
    gate_pending(0);
}

static void what_the_judge_says_is_the_result(void) {
    int ends[2];
    char bytes[8];
    gate_answer(SYS_fsync, 0);
    MUST(fsync(-1) == 0 && syscall(SYS_fsync, -1) == 0);
    gate_answer(SYS_fsync, -ENOSPC);
    MUST(fsync(-1) == -1 && errno == ENOSPC);
    MUST(syscall(SYS_fsync, -1) == -1 && errno == ENOSPC);
    gate_pending(1);
    MUST(pipe2(ends, O_NONBLOCK) == 0);
    gate_answer(SYS_write, 5);
    MUST(write(ends[1], "abc", 3) == 5);
    gate_answer(SYS_read, 4);
    MUST(read(ends[0], bytes, 1) == 4);
    gate_answer(NONE, 0);
    MUST(read(ends[0], bytes, 1) == -1 && errno == EAGAIN);
    MUST(write(ends[1], "abc", 3) == 3 && read(ends[0], bytes, 8) == 3 && !memcmp(bytes, "abc", 3));
    gate_pending(0);
}

static int returns_7(void *unused) {
    (void)unused;
    return 7;
}

static void *adds(void *to) {
    for (int i = 0; i < 100; i++) {
        sched_yield();
        free(malloc(1 << 20));
    }
    __atomic_fetch_add((int *)to, 1, __ATOMIC_SEQ_CST);
    return to;
}

static void leaves(void) { _exit(9); }

static void processes_and_threads(void) {
    for (int pending = 0; pending < 2; pending++) {
        gate_pending(pending);
        pid_t child = fork();
        if (child == 0) exit(3);
        ends_with(child, 3);
        child = vfork();
        if (child == 0) _exit(4);
        ends_with(child, 4);
        child = vfork();
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", "exit 6", NULL);
            _exit(1);
        }
        ends_with(child, 6);
        static char stack[64 << 10] __attribute__((aligned(64)));
        child = clone(returns_7, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
        ends_with(child, 7);
        child = clone(returns_7, stack + sizeof stack, SIGCHLD, NULL);
        ends_with(child, 7);
        int sum = 0;
        pthread_t threads[8];
        for (int i = 0; i < 8; i++) MUST(pthread_create(&threads[i], NULL, adds, &sum) == 0);
        for (int i = 0; i < 8; i++) MUST(pthread_join(threads[i], NULL) == 0);
        MUST(sum == 8);
        child = fork();
        if (child == 0) {
            atexit(leaves);
            exit(1);
        }
        ends_with(child, 9);
        child = fork();
        if (child == 0) abort();
        int how;
        MUST(waitpid(child, &how, 0) == child && WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
    }
    gate_pending(0);
}

static int ends[2];
static volatile int handled;
static sigjmp_buf back;

static void counts(int signal) {
    (void)signal;
    handled++;
}

static void writes(int signal) {
    (void)signal;
    handled++;
    MUST(write(ends[1], "x", 1) == 1);
}

static void jumps(int signal) {
    (void)signal;
    handled++;
    siglongjmp(back, 1);
}

static void soon(void (*handler)(int), int flags) {
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(SIGALRM, &act, NULL) == 0);
    struct itimerval in = {.it_value = {0, 30000}};
    MUST(setitimer(ITIMER_REAL, &in, NULL) == 0);
    handled = 0;
}

static void handlers_interrupt_calls(void) {
    char byte;
    MUST(pipe(ends) == 0);
    for (int pending = 0; pending < 2; pending++) {
        gate_pending(pending);
        soon(writes, SA_RESTART);
        MUST(read(ends[0], &byte, 1) == 1 && handled == 1);
        soon(counts, 0);
        MUST(read(ends[0], &byte, 1) == -1 && errno == EINTR && handled == 1);
        soon(counts, 0);
        struct timespec much = {5, 0}, rest = {0, 0};
        MUST(nanosleep(&much, &rest) == -1 && errno == EINTR && rest.tv_sec == 4);
        soon(counts, 0);
        MUST(pause() == -1 && errno == EINTR);
        soon(jumps, 0);
        if (!sigsetjmp(back, 1)) {
            read(ends[0], &byte, 1);
            MUST(!"read");
        }
        MUST(handled == 1);
        if (!sigsetjmp(back, 1)) raise(SIGALRM);
        MUST(handled == 2);
    }
    gate_pending(0);
}

static void *fires(void *thread) {
    while (!gate_waiting()) sched_yield();
    MUST(pthread_kill(*(pthread_t *)thread, SIGALRM) == 0);
    return NULL;
}

/* While the judge of an fsync waits, a thread sends a signal. */
static void interrupts_the_judge(void (*handler)(int)) {
    pthread_t self = pthread_self(), other;
    struct sigaction act = {.sa_handler = handler};
    MUST(sigaction(SIGALRM, &act, NULL) == 0);
    handled = 0;
    gate_wait(SYS_fsync);
    MUST(pthread_create(&other, NULL, fires, &self) == 0);
    if (!sigsetjmp(back, 1)) fsync(-1);
    gate_wait(NONE);
    MUST(pthread_join(other, NULL) == 0 && handled == 1);
}

static void writes_and_ends_the_wait(int signal) {
    writes(signal);
    gate_wait(NONE);
}

static void handlers_run_while_the_judge_waits_and_may_leave(void) {
    MUST(pipe(ends) == 0);
    interrupts_the_judge(jumps);
    uint64_t syncs = gate_judged(SYS_fsync);
    MUST(fsync(-1) == -1 && errno == EBADF && gate_judged(SYS_fsync) == syncs + 1);
    /* Its own calls are judged. */
    gate_pending(1);
    uint64_t written = gate_judged(SYS_write);
    interrupts_the_judge(writes_and_ends_the_wait);
    MUST(gate_judged(SYS_write) == written + 1);
    gate_pending(0);
}

static void *frames[64];
static int depth;

static void looks_back(int signal) {
    (void)signal;
    handled++;
    depth = backtrace(frames, 64);
    gate_wait(NONE);
}

__attribute__((noinline)) static int syncs_for_main(int fd) {
    int done = fsync(fd);
    __asm__ volatile("" ::: "memory");
    return done;
}

static void frames_are_found_through_a_trampoline(void) {
    pthread_t self = pthread_self(), other;
    struct sigaction act = {.sa_handler = looks_back};
    MUST(backtrace(frames, 64) > 0); /* (loads what it needs) */
    MUST(sigaction(SIGALRM, &act, NULL) == 0);
    gate_wait(SYS_fsync);
    MUST(pthread_create(&other, NULL, fires, &self) == 0);
    MUST(syncs_for_main(-1) == -1);
    MUST(pthread_join(other, NULL) == 0 && handled == 1);
    int caller = 0, fsyncs = 0;
    for (int i = 0; i < depth; i++) {
        caller |= (uintptr_t)frames[i] - (uintptr_t)syncs_for_main < 64;
        fsyncs |= (uintptr_t)frames[i] - (uintptr_t)fsync < 256;
    }
    MUST(caller && fsyncs);
}

static int cleaned, unwound;

static void cleans(void *unused) {
    (void)unused;
    cleaned++;
}

static void unwinds(int *unused) {
    (void)unused;
    unwound++;
}

static volatile int begun;

static void *reads(void *unused) {
    /* (tests/calls.rs compiles with -fexceptions: this runs because the unwinder comes by.) */
    __attribute__((cleanup(unwinds))) int local;
    char byte;
    pthread_cleanup_push(cleans, NULL);
    begun = 1;
    read(ends[0], &byte, 1);
    pthread_cleanup_pop(0);
    return unused;
}

static void *syncs(void *unused) {
    __attribute__((cleanup(unwinds))) int local;
    pthread_cleanup_push(cleans, NULL);
    begun = 1;
    fsync(ends[0]);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return unused;
}

/* (A function's own cleanups are done for calls that it makes, not for its other instructions.) */
__attribute__((noinline)) static void reads_and_is_cancelled_anywhere(ssize_t (*alone)(int, void *, size_t)) {
    char byte;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    begun = 1;
    if (alone) alone(ends[0], &byte, 1);
    else syscall(SYS_read, ends[0], &byte, 1);
}

static void *reads_in_odd_ways(void *unused) {
    /* (The function's call has no room before it, so it is made in the trampoline.) */
    __attribute__((cleanup(unwinds))) int local;
    pthread_cleanup_push(cleans, NULL);
    reads_and_is_cancelled_anywhere(dlsym(RTLD_DEFAULT, "__read_nocancel"));
    pthread_cleanup_pop(0);
    return unused;
}

static void is_cancelled(void *(*run)(void *), uint64_t waits) {
    pthread_t thread;
    void *result;
    begun = cleaned = unwound = 0;
    gate_wait(waits);
    MUST(pthread_create(&thread, NULL, run, NULL) == 0);
    while (!begun) sched_yield();
    if (waits != (uint64_t)NONE)
        while (!gate_waiting()) sched_yield();
    else
        usleep(20000);
    MUST(pthread_cancel(thread) == 0);
    usleep(20000);
    gate_wait(NONE);
    MUST(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    /* (The judge was not left in the middle.) */
    MUST(cleaned == 1 && unwound == 1 && gate_waiting() == 0);
}

static void threads_are_cancelled(void) {
    MUST(pipe(ends) == 0);
    for (int pending = 0; pending < 2; pending++) {
        gate_pending(pending);
        for (int i = 0; i < 3; i++) {
            is_cancelled(reads, NONE);
            is_cancelled(reads_in_odd_ways, NONE);
            is_cancelled(syncs, SYS_fsync);
        }
    }
    for (int i = 0; i < 3; i++) is_cancelled(reads, SYS_read);
    gate_pending(0);
}

static volatile int cancelled, came_past;

static void is_cancelled_before(void) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    begun = 1;
    while (!cancelled) sched_yield();
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

static void *writes_when_cancelled(void *unused) {
    __attribute__((cleanup(unwinds))) int local;
    pthread_cleanup_push(cleans, NULL);
    is_cancelled_before();
    write(ends[1], "x", 1);
    came_past = 1;
    pthread_cleanup_pop(0);
    return unused;
}

static void *syncs_when_cancelled(void *unused) {
    __attribute__((cleanup(unwinds))) int local;
    pthread_cleanup_push(cleans, NULL);
    is_cancelled_before();
    fsync(ends[1]);
    came_past = 1;
    pthread_cleanup_pop(0);
    return unused;
}

static void makes_no_call(void *(*run)(void *), uint64_t number) {
    pthread_t thread;
    void *result;
    begun = cancelled = came_past = cleaned = unwound = 0;
    uint64_t before = gate_judged(number);
    MUST(pthread_create(&thread, NULL, run, NULL) == 0);
    while (!begun) sched_yield();
    MUST(pthread_cancel(thread) == 0);
    cancelled = 1;
    MUST(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && !came_past);
    MUST(cleaned == 1 && unwound == 1 && gate_judged(number) == before);
}

static void a_thread_that_is_cancelled_already_makes_no_call(void) {
    char byte;
    MUST(pipe2(ends, O_NONBLOCK) == 0);
    for (int i = 0; i < 4; i++) {
        gate_pending(i % 2);
        gate_answer(i < 2 ? NONE : SYS_write, 1);
        makes_no_call(writes_when_cancelled, SYS_write);
        gate_answer(i < 2 ? NONE : SYS_fsync, 0);
        makes_no_call(syncs_when_cancelled, SYS_fsync);
    }
    gate_answer(NONE, 0);
    gate_pending(0);
    MUST(read(ends[0], &byte, 1) == -1 && errno == EAGAIN);
}

/* Reads and writes a byte in turns, and then waits in a read for good. */
static void *goes_round(void *unused) {
    __attribute__((cleanup(unwinds))) int local;
    char byte;
    pthread_cleanup_push(cleans, NULL);
    begun = 1;
    for (int i = 0; i < 200; i++)
        if (write(ends[1], "x", 1) != 1 || read(ends[0], &byte, 1) != 1) abort();
    read(ends[0], &byte, 1);
    pthread_cleanup_pop(0);
    return unused;
}

static void threads_are_cancelled_at_any_moment(void) {
    /* (A cancellation that is lost leaves a thread that never ends, and so does this.) */
    for (int i = 0; i < 2000; i++) {
        pthread_t thread;
        void *result;
        begun = cleaned = unwound = 0;
        MUST(pipe(ends) == 0);
        gate_pending(i % 2);
        MUST(pthread_create(&thread, NULL, goes_round, NULL) == 0);
        while (!begun) sched_yield();
        for (volatile int j = rand() % 60000; j > 0; j--) {}
        MUST(pthread_cancel(thread) == 0);
        MUST(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
        MUST(cleaned == 1 && unwound == 1);
        MUST(close(ends[0]) == 0 && close(ends[1]) == 0);
    }
    gate_pending(0);
}

/* Calls `call` with known values in the registers that functions keep. The processor traps behind each
 * instruction from the first breakpoint to the second (`traps`). */
void across_steps(void (*call)(void));
extern char across_steps_over[], across_steps_end[];
uintptr_t stack_across_steps;
__asm__(".text\nacross_steps:\n .cfi_startproc\n"
        "push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"
        "push %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbp, 0\n"
        "push %r12\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r12, 0\n"
        "push %r13\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r13, 0\n"
        "push %r14\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r14, 0\n"
        "push %r15\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r15, 0\n"
        "sub $8, %rsp\n .cfi_adjust_cfa_offset 8\n"
        "mov %rsp, stack_across_steps(%rip)\n"
        "mov $1, %ebx\n mov $2, %ebp\n mov $3, %r12d\n mov $4, %r13d\n mov $5, %r14d\n mov $6, %r15d\n"
        "int3\n call *%rdi\n int3\nacross_steps_over:\n"
        "add $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
        "pop %r15\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r15\n"
        "pop %r14\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r14\n"
        "pop %r13\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r13\n"
        "pop %r12\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r12\n"
        "pop %rbp\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbp\n"
        "pop %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n"
        "ret\n .cfi_endproc\nacross_steps_end:\n");

/* Whether there are to be more steps. */
static _Bool (*at_a_step)(const void *);

static void traps(int signal, siginfo_t *info, void *context) {
    enum { TRAP_FLAG = 0x100 };
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const char *at = (const char *)registers[REG_RIP];
    _Bool breaks = info->si_code == SI_KERNEL;
    if (breaks ? at != across_steps_over : at_a_step(at)) registers[REG_EFL] |= TRAP_FLAG;
    else registers[REG_EFL] &= ~TRAP_FLAG;
}

/* A cancellation comes no earlier than this handler has returned. */
static void steps_are_seen_by(_Bool (*by)(const void *)) {
    struct sigaction act = {.sa_sigaction = traps, .sa_flags = SA_SIGINFO};
    at_a_step = by;
    memset(&act.sa_mask, 0, sizeof act.sa_mask);
    act.sa_mask.__val[0] = 1ul << (SIGCANCEL - 1); /* (sigaddset refuses) */
    MUST(sigaction(SIGTRAP, &act, NULL) == 0);
}

static int zero;
static char byte_of_zero;

static void reads_a_zero(void) { MUST(read(zero, &byte_of_zero, 1) == 1); }
static void syncs_nothing(void) { MUST(fsync(-1) == -1); }
static void reads_by_number(void) { MUST(syscall(SYS_read, zero, &byte_of_zero, 1) == 1); }
static ssize_t (*read_alone)(int, void *, size_t);
/* (No room before the call, so it is made in the trampoline.) */
static void reads_in_the_trampoline(void) { MUST(read_alone(zero, &byte_of_zero, 1) == 1); }

static void at_once(void (*call)(void)) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    call();
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
}
static void reads_a_zero_at_once(void) { at_once(reads_a_zero); }
static void syncs_nothing_at_once(void) { at_once(syncs_nothing); }
static void reads_by_number_at_once(void) { at_once(reads_by_number); }
static void reads_in_the_trampoline_at_once(void) { at_once(reads_in_the_trampoline); }

static void makes_a_child(void) {
    pid_t child = vfork();
    if (child == 0) _exit(6);
    ends_with(child, 6);
}

static void uses_much_of_libc(void) {
    struct timespec little = {0, 1000};
    struct stat about;
    struct addrinfo *found, numeric = {.ai_flags = AI_NUMERICHOST};
    int channel[2];
    FILE *null = fopen("/dev/null", "w");
    fprintf(null, "x"), fclose(null);
    free(malloc(1 << 20));
    nanosleep(&little, NULL);
    MUST(stat("/", &about) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    MUST(send(channel[0], "x", 1, 0) == 1 && recv(channel[1], &byte_of_zero, 1, 0) == 1);
    MUST(close(channel[0]) == 0 && close(channel[1]) == 0);
    if (getaddrinfo("127.0.0.1", "80", &numeric, &found) == 0) freeaddrinfo(found);
    MUST(mprotect(NULL, 0, PROT_READ) == 0 && sigaltstack(NULL, &(stack_t){0}) == 0);
    MUST(prctl(PR_GET_DUMPABLE) >= 0 && syscall(SYS_getppid) == getppid());
}

static void (*const stepped[])(void) = {
    reads_a_zero, reads_a_zero_at_once, reads_by_number_at_once, reads_in_the_trampoline_at_once,
    syncs_nothing, syncs_nothing_at_once, makes_a_child, uses_much_of_libc,
};
enum { STEPPED = sizeof stepped / sizeof *stepped, READS = 4 };

static void prepares_steps(void) {
    struct timespec little = {0, 1000};
    zero = open("/dev/zero", O_RDWR);
    read_alone = dlsym(RTLD_DEFAULT, "__read_nocancel");
    if (!read_alone) read_alone = read;
    nanosleep(&little, NULL);
    MUST(zero >= 0 && backtrace(frames, 64) > 0);
}

static _Unwind_Reason_Code is_the_callers(struct _Unwind_Context *frame, void *right) {
    if (_Unwind_GetIP(frame) - (uintptr_t)across_steps >= (uintptr_t)(across_steps_end - (char *)across_steps))
        return _URC_NO_REASON;
    *(int *)right = _Unwind_GetCFA(frame) == stack_across_steps && _Unwind_GetGR(frame, 3) == 1 &&
        _Unwind_GetGR(frame, 6) == 2 && _Unwind_GetGR(frame, 12) == 3 && _Unwind_GetGR(frame, 13) == 4 &&
        _Unwind_GetGR(frame, 14) == 5 && _Unwind_GetGR(frame, 15) == 6;
    return _URC_NORMAL_STOP;
}

static long step, steps_of_ours, wrong;
enum { WRONG = 32 };
static const void *wrong_at[WRONG];
static const void *our_base;

static _Bool looks_for_the_caller(const void *at) {
    int right = 0;
    Dl_info where;
    step++;
    if (dladdr(at, &where) && where.dli_fbase == our_base) steps_of_ours++;
    _Unwind_Backtrace(is_the_callers, &right);
    for (long i = 0; !right && i < wrong; i++) right |= wrong_at[i] == at;
    if (!right && wrong < WRONG) wrong_at[wrong++] = at;
    return 1;
}

/* From each instruction that a call executes, libc's, a trampoline's and the judge's, the unwinder comes to who
 * called, with its registers. */
static void frames_are_found_from_every_instruction(void) {
    Dl_info where;
    MUST(dladdr((void *)gate_pending, &where));
    our_base = where.dli_fbase;
    prepares_steps();
    steps_are_seen_by(looks_for_the_caller);
    for (int pending = 0; pending < 2; pending++)
        for (int i = 0; i < STEPPED; i++) {
            gate_pending(pending);
            step = steps_of_ours = 0;
            across_steps(stepped[i]);
            gate_pending(0);
            MUST(step > 10 && steps_of_ours > 3);
        }
    for (long i = 0; i < wrong; i++) {
        MUST(dladdr(wrong_at[i], &where));
        printf("%s + 0x%zx (%s)\n", where.dli_fname, (size_t)(wrong_at[i] - where.dli_fbase), where.dli_sname);
    }
    MUST(wrong == 0);
}

static long cancelled_at;

static _Bool is_cancelled_here(const void *unused) {
    (void)unused;
    if (step++ < cancelled_at) return 1;
    /* (The gate has kept flags, and gives them back: it goes on with steps.) */
    if (step > cancelled_at + 1) return 0;
    pthread_cancel(pthread_self());
    /* (glibc 2.41 and later send nothing to themselves, and look where a signal comes.) */
    syscall(SYS_tgkill, getpid(), gettid(), SIGCANCEL);
    return 0;
}

static void *is_cancelled_at_a_step(void *call) {
    __attribute__((cleanup(unwinds))) int local;
    pthread_cleanup_push(cleans, NULL);
    across_steps(*(void (**)(void))call);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

static void threads_are_cancelled_at_every_instruction(void) {
    prepares_steps();
    steps_are_seen_by(is_cancelled_here);
    for (int pending = 0; pending < 2; pending++)
        /* (A sync is judged always, so that once is enough, with the pending word zero.) */
        for (int i = 0; i < READS + !pending; i++) {
            gate_pending(pending);
            _Bool was = 1;
            for (cancelled_at = 0; was; cancelled_at++) {
                pthread_t thread;
                void *result;
                step = cleaned = unwound = 0;
                MUST(pthread_create(&thread, NULL, is_cancelled_at_a_step, (void *)&stepped[i]) == 0);
                MUST(pthread_join(thread, &result) == 0);
                was = step > cancelled_at;
                MUST(result == (was ? PTHREAD_CANCELED : NULL));
                MUST(cleaned == was && unwound == 1 && gate_waiting() == 0);
            }
            MUST(cancelled_at > 10);
        }
    gate_pending(0);
}

/* (call, in, out): vector registers from `in`, call(-1), vector registers to `out`. */
void vectors_across(int (*call)(int), const void *in, void *out);
__asm__(".text\nvectors_across:\n"
        "push %rbx\n push %r12\n push %r13\n mov %rdi, %rbx\n mov %rdx, %r12\n"
        "vmovups (%rsi), %ymm0\n vmovups 32(%rsi), %ymm1\n vmovups 64(%rsi), %ymm7\n vmovups 96(%rsi), %ymm15\n"
        "mov $-1, %edi\n call *%rbx\n"
        "vmovups %ymm0, (%r12)\n vmovups %ymm1, 32(%r12)\n vmovups %ymm7, 64(%r12)\n vmovups %ymm15, 96(%r12)\n"
        "pop %r13\n pop %r12\n pop %rbx\n ret\n");

/* (call, kept): known values in the registers that functions keep, call(74, -1), these registers to `kept`. */
long registers_across(long (*call)(long, ...), uint64_t *kept);
__asm__(".text\nregisters_across:\n"
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rsi\n mov %rdi, %rax\n"
        "mov $1, %ebx\n mov $2, %ebp\n mov $3, %r12d\n mov $4, %r13d\n mov $5, %r14d\n mov $6, %r15d\n"
        "mov $74, %edi\n mov $-1, %rsi\n call *%rax\n"
        "pop %rcx\n mov %rbx, (%rcx)\n mov %rbp, 8(%rcx)\n mov %r12, 16(%rcx)\n mov %r13, 24(%rcx)\n"
        "mov %r14, 32(%rcx)\n mov %r15, 40(%rcx)\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");

static void vector_registers_stay(void) {
    if (!__builtin_cpu_supports("avx")) return;
    uint32_t in[32], out[32] = {0};
    for (uint32_t i = 0; i < 32; i++) in[i] = 0x01010101u * (i + 1);
    uint64_t before = gate_judged(SYS_fsync);
    vectors_across(fsync, in, out);
    MUST(gate_judged(SYS_fsync) == before + 1 && !memcmp(in, out, sizeof in));
    unsigned control = _mm_getcsr();
    _mm_setcsr(control | _MM_ROUND_UP);
    MUST(fsync(-1) == -1 && _mm_getcsr() == (control | _MM_ROUND_UP));
    _mm_setcsr(control);
}

static void general_registers_stay(void) {
    for (int pending = 0; pending < 2; pending++) {
        gate_pending(pending);
        uint64_t kept[6], before = gate_judged(SYS_fsync);
        MUST(registers_across(syscall, kept) == -1 && errno == EBADF && gate_judged(SYS_fsync) == before + 1);
        for (uint64_t i = 0; i < 6; i++) MUST(kept[i] == i + 1);
        /* Six arguments arrive. */
        char *page = (char *)syscall(SYS_mmap, NULL, 4096L, (long)(PROT_READ | PROT_WRITE), (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
        MUST(page != MAP_FAILED && (page[0] = 1));
    }
    gate_pending(0);
}

static volatile int on_alternate;

static void syncs_there(int signal) {
    (void)signal;
    stack_t now;
    sigset_t mask, after;
    MUST(sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_ONSTACK));
    MUST(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
    MUST(fsync(-1) == -1 && errno == EBADF);
    MUST(sigprocmask(SIG_SETMASK, NULL, &after) == 0 && !memcmp(&mask, &after, 8));
    on_alternate++;
}

static void a_small_alternate_stack_is_enough(void) {
    enum { AROUND = 64 << 10 };
    /* The kernel's own frame, and little more. */
    size_t kernels = getauxval(51 /* AT_MINSIGSTKSZ */), small = (kernels ? kernels : MINSIGSTKSZ) + 1024;
    char *memory = malloc(AROUND + small);
    memset(memory, 0x5a, AROUND + small);
    stack_t stack = {.ss_sp = memory + AROUND, .ss_size = small};
    struct sigaction act = {.sa_handler = syncs_there, .sa_flags = SA_ONSTACK};
    MUST(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &act, NULL) == 0);
    for (int pending = 0; pending < 2; pending++) {
        gate_pending(pending);
        uint64_t before = gate_judged(SYS_fsync);
        MUST(raise(SIGUSR1) == 0);
        MUST(gate_judged(SYS_fsync) == before + 1);
    }
    gate_pending(0);
    MUST(on_alternate == 2);
    int low = 0;
    while (low < AROUND && memory[low] == 0x5a) low++;
    if (low < AROUND) printf("%d bytes below %zu\n", AROUND - low, small);
    MUST(low == AROUND);
}

static void *on_a_small_stack(void *unused) {
    size_t kernels = getauxval(51), small = (kernels ? kernels : MINSIGSTKSZ) + 1024;
    stack_t stack = {.ss_sp = malloc(small), .ss_size = small};
    MUST(sigaltstack(&stack, NULL) == 0);
    for (int i = 0; i < 200; i++) MUST(pthread_kill(pthread_self(), SIGUSR1) == 0);
    stack_t none = {.ss_flags = SS_DISABLE};
    MUST(sigaltstack(&none, NULL) == 0);
    free(stack.ss_sp);
    return unused;
}

/* They take turns on the gate's stack. */
static void small_alternate_stacks_of_several_threads_are_enough(void) {
    struct sigaction act = {.sa_handler = syncs_there, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &act, NULL) == 0);
    gate_pending(1);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) MUST(pthread_create(&threads[i], NULL, on_a_small_stack, NULL) == 0);
    for (int i = 0; i < 4; i++) MUST(pthread_join(threads[i], NULL) == 0);
    MUST(gate_judged(SYS_fsync) == 800);
    gate_pending(0);
}

static volatile int faults, faults_of_callers;

/* (Such a fault comes on the gate's stack, too, where no other signal does.) */
static void skips(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    int right = 0;
    _Unwind_Backtrace(is_the_callers, &right);
    faults_of_callers += right;
    ucontext_t *where = context;
    where->uc_mcontext.gregs[REG_RIP] += 2;
    faults++;
}

static void syncs_with_a_fault(int signal) {
    (void)signal;
    uint64_t words[64], errors = 0;
    stack_t now;
    for (uint64_t i = 0; i < 64; i++) ((volatile uint64_t *)words)[i] = i;
    MUST(fsync(-1) == -1 && errno == EBADF);
    for (uint64_t i = 0; i < 64; i++) errors += ((volatile uint64_t *)words)[i] != i;
    MUST(errors == 0 && sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK);
    on_alternate++;
}

static void raises_a_signal(void) { MUST(raise(SIGUSR1) == 0); }

static _Bool none(const void *unused) {
    (void)unused;
    return 0;
}

static void faults_of_the_judge_are_handled_on_any_stack(void) {
    size_t kernels = getauxval(51), small = (kernels ? kernels : MINSIGSTKSZ) + 2048;
    stack_t stack = {.ss_sp = malloc(small), .ss_size = small};
    struct sigaction act = {.sa_handler = syncs_with_a_fault, .sa_flags = SA_ONSTACK};
    struct sigaction fault = {.sa_sigaction = skips, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    MUST(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &act, NULL) == 0 && sigaction(SIGSEGV, &fault, NULL) == 0);
    steps_are_seen_by(none);
    MUST(backtrace(frames, 64) > 0);
    gate_fault(1);
    MUST(fsync(-1) == -1 && errno == EBADF && faults == 1);
    across_steps(raises_a_signal);
    gate_fault(0);
    MUST(on_alternate == 1 && faults >= 2 && faults_of_callers == faults - 1);
    stack_t after;
    MUST(sigaltstack(NULL, &after) == 0 && after.ss_sp == stack.ss_sp && after.ss_size == small && after.ss_flags == 0);
}

enum { STACKS = 8 };

/* In a process that may not see our threads. */
static int syncs_elsewhere(void *unused) {
    (void)unused;
    static char small[32 << 10];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    size_t kernels = getauxval(51);
    stack_t stack = {.ss_sp = small, .ss_size = (kernels ? kernels : MINSIGSTKSZ) + 1024};
    MUST(sigaltstack(&stack, NULL) == 0 && raise(SIGUSR1) == 0);
    return 0;
}

static void *on_a_small_stack_once(void *unused) {
    size_t kernels = getauxval(51), small = (kernels ? kernels : MINSIGSTKSZ) + 1024;
    stack_t stack = {.ss_sp = malloc(small), .ss_size = small};
    MUST(sigaltstack(&stack, NULL) == 0 && pthread_kill(pthread_self(), SIGUSR1) == 0);
    return unused;
}

static void a_stack_of_who_lives_is_taken_over_by_nobody(void) {
    struct sigaction act = {.sa_handler = syncs_there, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &act, NULL) == 0);
    gate_wait(SYS_fsync);
    pthread_t threads[STACKS];
    for (int i = 0; i < STACKS; i++) MUST(pthread_create(&threads[i], NULL, on_a_small_stack_once, NULL) == 0);
    while (gate_waiting() < STACKS) sched_yield();
    static char stack[64 << 10] __attribute__((aligned(64)));
    pid_t child = clone(syncs_elsewhere, stack + sizeof stack, CLONE_VM | CLONE_NEWPID | SIGCHLD, NULL);
    if (child == -1 && errno == EPERM) child = clone(syncs_elsewhere, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    MUST(child > 0);
    usleep(300000);
    MUST(gate_waiting() == STACKS);
    gate_wait(NONE);
    for (int i = 0; i < STACKS; i++) MUST(pthread_join(threads[i], NULL) == 0);
    ends_with(child, 0);
    MUST(on_alternate == STACKS + 1);
}

/* Children that have our memory are killed on all stacks of the gate's. */
static void a_stack_of_who_died_is_taken_over(void) {
    struct sigaction act = {.sa_handler = syncs_there, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &act, NULL) == 0);
    static char stacks[STACKS + 1][64 << 10] __attribute__((aligned(64)));
    for (unsigned i = 0; i < STACKS; i++) {
        gate_wait(SYS_fsync);
        pid_t child = clone(syncs_elsewhere, stacks[i + 1], CLONE_VM | SIGCHLD, NULL);
        int how;
        MUST(child > 0);
        while (gate_waiting() < i + 1) sched_yield();
        MUST(kill(child, SIGKILL) == 0 && waitpid(child, &how, 0) == child && WIFSIGNALED(how));
        gate_wait(NONE);
    }
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, on_a_small_stack_once, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0 && on_alternate == 1);
}

__attribute__((noinline)) int changed(void) {
    __asm__ volatile("nop; nop; nop");
    return 7;
}

static int is_the_programs(struct dl_phdr_info *info, size_t n, void *text) {
    (void)n;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *it = &info->dlpi_phdr[i];
        if (it->p_type != PT_LOAD || !(it->p_flags & PF_X)) continue;
        uintptr_t begins = info->dlpi_addr + it->p_vaddr, from = begins & ~4095ul;
        ((uintptr_t *)text)[0] = from;
        ((uintptr_t *)text)[1] = ((begins + it->p_memsz + 4095) & ~4095ul) - from;
    }
    return 1;
}

/* All of it at once: it is one mapping, as before. */
static void a_look_sees_that_code_was_made(void) {
    uintptr_t text[2];
    MUST(gate_look());
    dl_iterate_phdr(is_the_programs, text);
    unsigned char *code = (unsigned char *)changed;
    MUST(mprotect((void *)text[0], text[1], PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    while (code[0] != 0x90 || code[1] != 0x90) code++;
    code[0] = 0x0f, code[1] = 0x05;
    MUST(mprotect((void *)text[0], text[1], PROT_READ | PROT_EXEC) == 0);
    MUST(!gate_look());
}

static volatile unsigned char selector;
static volatile int dispatched;

static void is_dispatched(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    selector = 0; /* SYSCALL_DISPATCH_FILTER_ALLOW */
    dispatched = info->si_syscall;
}

static void calls_may_be_dispatched_to_the_program(void) {
    enum { DISPATCH = 59, OFF = 0, ON = 1 };
    static char room[64 << 10];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction act = {.sa_sigaction = is_dispatched, .sa_flags = SA_SIGINFO};
    /* (With such a stack the gate makes a call of its own for each one that is judged.) */
    MUST(sigaltstack(&stack, NULL) == 0 && sigaction(SIGSYS, &act, NULL) == 0);
    if (prctl(DISPATCH, ON, 0L, 0L, &selector)) {
        puts("skipped: no dispatch of system calls");
        return;
    }
    gate_pending(1);
    selector = 1; /* SYSCALL_DISPATCH_FILTER_BLOCK */
    getppid();
    MUST(selector == 0 && dispatched == SYS_getppid);
    MUST(prctl(DISPATCH, OFF, 0L, 0L, 0L) == 0 && !gate_look());
}

static volatile int over;

static void *changes_the_word(void *unused) {
    for (uint64_t i = 0; !over; i++) {
        gate_pending(i & 1);
        sched_yield();
    }
    gate_pending(0);
    return unused;
}

static void syncs_anywhere(int signal) {
    (void)signal;
    int had = errno;
    handled++;
    MUST(fsync(-1) == -1 && errno == EBADF && getpid() > 0);
    errno = had;
}

/* Handlers come at any instruction, of trampolines too, and the word changes all the time. */
static void handlers_come_anywhere_while_the_word_changes(void) {
    pthread_t thread;
    struct sigaction act = {.sa_handler = syncs_anywhere, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}}, none = {{0, 0}, {0, 0}};
    MUST(pipe(ends) == 0 && sigaction(SIGALRM, &act, NULL) == 0);
    MUST(pthread_create(&thread, NULL, changes_the_word, NULL) == 0);
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
    time_t begins = time(NULL);
    uint64_t sum = 0, also = 0;
    double product = 1;
    for (uint64_t i = 0; time(NULL) < begins + 3; i++) {
        uint64_t got = 0;
        MUST(write(ends[1], &i, 8) == 8 && read(ends[0], &got, 8) == 8 && got == i);
        MUST(syscall(SYS_lseek, ends[0], i, SEEK_SET) == -1 && errno == ESPIPE);
        sum += got, also += i, product = product * 1.25 / 1.25;
        if (i % 1024 == 0) {
            pid_t child = fork();
            if (child == 0) _exit(5);
            ends_with(child, 5);
            child = vfork();
            if (child == 0) _exit(6);
            ends_with(child, 6);
        }
    }
    MUST(setitimer(ITIMER_REAL, &none, NULL) == 0);
    over = 1;
    MUST(pthread_join(thread, NULL) == 0);
    MUST(sum == also && product == 1 && handled > 10);
}

static void a_look_finds_what_was_loaded(void) {
    MUST(gate_look());
    MUST(dlopen("libm.so.6", RTLD_NOW) && gate_look());
    void *past = dlopen("./past.so", RTLD_NOW);
    MUST(past && !gate_look());
    MUST(dlclose(past) == 0 && gate_look());
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(code != MAP_FAILED && !gate_look());
}

static void *looks(void *unused) {
    while (!over) MUST(gate_look());
    return unused;
}

static void *loads(void *unused) {
    while (!over) {
        void *past = dlopen("./past-too.so", RTLD_NOW), *plain = dlopen("./plain.so", RTLD_NOW);
        MUST(past && plain && dlclose(past) == 0 && dlclose(plain) == 0);
    }
    return unused;
}

static void a_look_is_taken_while_others_load(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) MUST(pthread_create(&threads[i], NULL, loads, NULL) == 0);
    int found = 0, none = 0;
    for (int i = 0; i < 2000 && (i < 300 || !found || !none); i++) *(gate_look() ? &none : &found) += 1;
    over = 1;
    for (int i = 0; i < 2; i++) MUST(pthread_join(threads[i], NULL) == 0);
    MUST(found && gate_look());
}

static void a_child_that_is_forked_during_a_look_may_load(void) {
    pthread_t thread;
    MUST(dlopen("./plain.so", RTLD_NOW) && pthread_create(&thread, NULL, looks, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            _exit(dlopen("./other.so", RTLD_NOW) ? 8 : 1);
        }
        ends_with(child, 8);
    }
    over = 1;
    MUST(pthread_join(thread, NULL) == 0);
}

static __thread volatile int tid_of_mine;

static void *waits_for_ever(void *end) {
    char byte;
    while (end) read(*(int *)end, &byte, 1);
    return end;
}

static void *does_everything(void *which) {
    int mine = (int)(intptr_t)which, channel[2];
    tid_of_mine = mine;
    MUST(pipe(channel) == 0);
    time_t begins = time(NULL);
    for (int i = 0; time(NULL) < begins + 3; i++) {
        int got = -1, number = mine << 20 | i;
        MUST(write(channel[1], &number, 4) == 4 && read(channel[0], &got, 4) == 4 && got == number);
        MUST(fsync(-1) == -1 && errno == EBADF && tid_of_mine == mine);
        sigjmp_buf here;
        if (!sigsetjmp(here, 1)) {
            read(-1, &got, 4);
            siglongjmp(here, 1);
        }
        if (i % 64 == 0) {
            pid_t child = mine & 1 ? fork() : vfork();
            if (child == 0) _exit(mine);
            ends_with(child, mine);
        }
        if (i % 64 == 32) {
            pthread_t thread;
            void *result;
            int never[2];
            MUST(pipe(never) == 0);
            MUST(pthread_create(&thread, NULL, waits_for_ever, &never[0]) == 0);
            if (i & 64) sched_yield();
            MUST(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
            MUST(close(never[0]) == 0 && close(never[1]) == 0);
        }
    }
    return NULL;
}

/* Threads write, read, sync, fork, are cancelled, and jump; handlers come; the word changes. */
static void many_threads_do_everything_at_once(void) {
    pthread_t threads[8], word;
    struct sigaction act = {.sa_handler = syncs_anywhere, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 500}, {0, 500}}, none = {{0, 0}, {0, 0}};
    MUST(sigaction(SIGALRM, &act, NULL) == 0);
    MUST(pthread_create(&word, NULL, changes_the_word, NULL) == 0);
    for (intptr_t i = 0; i < 8; i++) MUST(pthread_create(&threads[i], NULL, does_everything, (void *)(i + 1)) == 0);
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 8; i++) MUST(pthread_join(threads[i], NULL) == 0);
    MUST(setitimer(ITIMER_REAL, &none, NULL) == 0);
    over = 1;
    MUST(pthread_join(word, NULL) == 0 && handled > 10);
}

static void nothing_is_judged(void) {
    MUST(gate_places() == 0 && fsync(-1) == -1 && gate_judged_all() == 0);
}

/* Whether libc's text is what its file has. */
static void nothing_was_changed(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], path[4096], access[8];
    unsigned long from, to, offset;
    int texts = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %4000s", &from, &to, access, &offset, path) != 5) continue;
        if (!strstr(path, "/libc.so.6") && !strstr(path, "/ld-linux-")) continue;
        if (access[2] != 'x') continue;
        MUST(!strcmp(access, "r-xp"));
        int fd = open(path, O_RDONLY);
        char *was = mmap(NULL, to - from, PROT_READ, MAP_PRIVATE, fd, (off_t)offset);
        MUST(was != MAP_FAILED && !memcmp(was, (char *)from, to - from));
        texts++;
    }
    MUST(texts == 2);
    if (gate_places) MUST(gate_places() == 0 && gate_judged_all() == 0);
}

static void all_or_nothing(void) {
    if (gate_places()) MUST(fsync(-1) == -1 && gate_judged(SYS_fsync) == 1);
    else nothing_was_changed();
}

static void calls_are_led_through_the_gate(void) {
    MUST(gate_places() > 100);
    printf("%lu places\n", (unsigned long)gate_places());
    MUST(gate_look());
}

static double ns_each(void) {
    enum { TIMES = 1000000 };
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < TIMES; i++) getppid();
    clock_gettime(CLOCK_MONOTONIC, &b);
    return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / TIMES;
}

/* A call that is made at once, and one that is judged (by a judge that does little). */
static void costs(void) {
    printf("getppid: %.1f ns", ns_each());
    if (gate_pending) {
        gate_pending(1);
        printf(", judged: %.1f ns", ns_each());
        gate_pending(0);
    }
    puts("");
}

#define TEST(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    TEST(syncs_are_judged_always),
    TEST(everything_is_judged_while_something_is_pending),
    TEST(what_the_judge_says_is_the_result),
    TEST(processes_and_threads),
    TEST(handlers_interrupt_calls),
    TEST(handlers_run_while_the_judge_waits_and_may_leave),
    TEST(frames_are_found_through_a_trampoline),
    TEST(threads_are_cancelled),
    TEST(threads_are_cancelled_at_any_moment),
    TEST(frames_are_found_from_every_instruction),
    TEST(threads_are_cancelled_at_every_instruction),
    TEST(a_thread_that_is_cancelled_already_makes_no_call),
    TEST(vector_registers_stay),
    TEST(general_registers_stay),
    TEST(a_small_alternate_stack_is_enough),
    TEST(small_alternate_stacks_of_several_threads_are_enough),
    TEST(handlers_come_anywhere_while_the_word_changes),
    TEST(faults_of_the_judge_are_handled_on_any_stack),
    TEST(a_stack_of_who_lives_is_taken_over_by_nobody),
    TEST(a_stack_of_who_died_is_taken_over),
    TEST(a_look_sees_that_code_was_made),
    TEST(calls_may_be_dispatched_to_the_program),
    TEST(many_threads_do_everything_at_once),
    TEST(nothing_is_judged),
    TEST(a_look_finds_what_was_loaded),
    TEST(a_look_is_taken_while_others_load),
    TEST(a_child_that_is_forked_during_a_look_may_load),
    TEST(nothing_was_changed),
    TEST(all_or_nothing),
    TEST(calls_are_led_through_the_gate),
    TEST(costs),
};

int main(int n, char **names) {
    for (unsigned i = 0; n == 2 && i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(tests[i].name, names[1])) {
            /* (The timer ends it whatever the test does with signals.) */
            struct sigevent ends_it = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
            struct itimerspec in = {.it_value = {60, 0}};
            timer_t timer;
            MUST(timer_create(CLOCK_MONOTONIC, &ends_it, &timer) == 0 && timer_settime(timer, 0, &in, NULL) == 0);
            tests[i].run();
            puts("done");
            return 0;
        }
    return 2;
}
