/* Pointers that lead nowhere: where the kernel answers EFAULT so do we, and the program's own disposition of SIGSEGV and SIGBUS is
 * as ever: what it is told, what crashes do, what executed programs inherit. */
#include "process.h"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Winfinite-recursion"
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

static char *nowhere, *half; /* a page that is not there; four bytes before it */
static sigjmp_buf out;
static volatile int code, entered;

static const char *answer(long result) {
    static char text[40];
    snprintf(text, sizeof text, result < 0 ? "errno %d" : "%d", result < 0 ? errno : (int)result);
    return text;
}

static void calls(void) {
    void *const places[] = {nowhere, half, (void *)8, (void *)0xffff800000000000ul, (void *)0x8000000000000000ul};
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    char *v = VIEW(3);
    char *arguments[] = {(char *)"/bin/true", NULL};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        void *p = places[i];
        say("place %zu", i);
        say("clone3: %s", answer(syscall(SYS_clone3, p, 88)));
        struct uffdio_api api = {.api = UFFD_API};
        if (uffd >= 0 && (i > 0 || ioctl(uffd, UFFDIO_API, &api) == 0))
            ioctl(uffd, UFFDIO_REGISTER, p) == -1 && errno == EFAULT ? 0 : (say("ioctl: %d", errno), 0);
        /* (A view that begins in the middle of a page is received into in several pieces.) */
        MUST(send(pair[0], "hello", 5, 0) == 5);
        char from[10];
        say("recvfrom: %s", answer(recvfrom(pair[1], v + 100, SIZE - 300, 0, (struct sockaddr *)from, p)));
        recv(pair[1], from, 5, MSG_DONTWAIT);
        say("rt_sigaction: %s", answer(syscall(SYS_rt_sigaction, SIGUSR1, p, NULL, 8)));
        say("rt_sigaction's old: %s", answer(syscall(SYS_rt_sigaction, SIGUSR1, NULL, p, 8)));
        say("sigaltstack: %s", answer(syscall(SYS_sigaltstack, p, NULL)));
        say("execve: %s", answer(execve("/bin/true", arguments, p)));
        char *strings[] = {(char *)"A=1", p, NULL};
        say("execve, a string: %s", answer(execve("/bin/true", arguments, strings)));
    }
    /* Lists of buffers, and headers, that lead nowhere themselves or name such. */
    int stream[2], file = input_file(SIZE, 4);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        void *p = places[i];
        say("lists at place %zu", i);
        struct msghdr lists = {.msg_iov = p, .msg_iovlen = 2};
        struct iovec two[2] = {{v, 8192}, {p, 8192}};
        struct msghdr names = {.msg_iov = two, .msg_iovlen = 1, .msg_name = p, .msg_namelen = 100};
        struct mmsghdr many[2] = {{.msg_hdr = lists}, {.msg_hdr = lists}};
        say("writev %s", answer(writev(stream[0], p, 2)));
        say("readv %s", answer(readv(file, p, 2)));
        say("preadv %s", answer(preadv(file, p, 2, 4096)));
        say("pwritev %s", answer(pwritev(file, p, 2, 4096)));
        say("sendmsg %s", answer(sendmsg(stream[0], p, 0)));
        say("sendmsg, its list %s", answer(sendmsg(stream[0], &lists, 0)));
        say("sendmsg, its name %s", answer(sendmsg(pair[0], &names, 0)));
        say("sendmmsg %s", answer(sendmmsg(stream[0], p, 2, 0)));
        say("sendmmsg, lists %s", answer(sendmmsg(stream[0], many, 2, 0)));
        say("recvmsg %s", answer(recvmsg(stream[1], p, MSG_DONTWAIT)));
        say("recvmsg, its list %s", answer(recvmsg(stream[1], &lists, MSG_DONTWAIT)));
        say("recvmmsg %s", answer(recvmmsg(stream[1], p, 2, MSG_DONTWAIT, NULL)));
        int spliced[2];
        MUST(pipe(spliced) == 0);
        say("vmsplice %s", answer(vmsplice(spliced[1], p, 2, 0)));
        close(spliced[0]), close(spliced[1]);
    }
    EXPECT_INPUT(v, 8192, 3);
    close(stream[0]), close(stream[1]), close(file);
    close(pair[0]), close(pair[1]), close(uffd);
    munmap(v, SIZE);
}

static void ends(const char *what, void (*f)(void)) {
    pid_t child = fork();
    if (child == 0) {
        f();
        _exit(0);
    }
    wait_for(what, child);
}
static void touch_it(void) { *(volatile char *)nowhere = 1; }
static void trap(void) { __asm__ volatile("int3"); }
static void illegal(void) { __builtin_trap(); }
static void noncanonical(void) { *(volatile char *)0x8000000000000000ul = 1; }
static void behind_file(void) {
    int fd = memfd_create("short", 0);
    *(volatile char *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) = 1;
}
static void sent(void) { kill(getpid(), SIGSEGV), pause(); }
static void sent_bus(void) { raise(SIGBUS); }
static void ignored_and_sent(void) { signal(SIGSEGV, SIG_IGN), raise(SIGSEGV), signal(SIGBUS, SIG_IGN), raise(SIGBUS); }
static void ignored_and_real(void) { signal(SIGSEGV, SIG_IGN), touch_it(); }
static void ignored_and_asked(void) {
    signal(SIGSEGV, SIG_IGN);
    say("ignored, clone3: %s", answer(syscall(SYS_clone3, nowhere, 88)));
}
static void blocked_and_real(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    touch_it();
}
static void in_ppoll(void) {
    sigset_t all, none;
    sigfillset(&all), sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &all, NULL);
    raise(SIGSEGV), raise(SIGQUIT);
    ppoll(NULL, 0, NULL, &none);
}
static int deeper(volatile char *above) {
    volatile char here[1000];
    here[0] = above[0];
    return deeper(here) + here[999];
}
static void overflows(void) {
    volatile char top = 0;
    deeper(&top);
}
static void overflows_with_alternate(void) {
    stack_t stack = {.ss_sp = fresh(SIZE), .ss_size = SIZE};
    sigaltstack(&stack, NULL);
    overflows();
}
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    code = info->si_code;
    entered++;
    siglongjmp(out, 1);
}
static void once(void) {
    struct sigaction act = {.sa_sigaction = handler, .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND)}, now;
    sigaction(SIGSEGV, &act, NULL);
    sigsetjmp(out, 1);
    sigaction(SIGSEGV, NULL, &now);
    say("once: entered %d, default %d, flags %x", entered, now.sa_handler == SIG_DFL, (unsigned)now.sa_flags);
    say("once, clone3: %s", answer(syscall(SYS_clone3, nowhere, 88)));
    touch_it();
}

static void crashes(void) {
    ends("touch", touch_it);
    ends("int3", trap);
    ends("ud2", illegal);
    ends("non-canonical", noncanonical);
    ends("behind a file", behind_file);
    ends("sent", sent);
    ends("sent SIGBUS", sent_bus);
    ends("ignored and sent", ignored_and_sent);
    ends("ignored and real", ignored_and_real);
    ends("ignored and asked", ignored_and_asked);
    ends("blocked and real", blocked_and_real);
    ends("in ppoll", in_ppoll);
    ends("stack overflow", overflows);
    ends("stack overflow, alternate stack", overflows_with_alternate);
    entered = 0;
    ends("one-shot handler", once);
}

static void inherited(const char *what, int how) {
    char *arguments[] = {(char *)"/bin/grep", (char *)"SigIgn", (char *)"/proc/self/status", NULL};
    say("%s", what);
    pid_t child;
    if (how == 0) {
        if ((child = vfork()) == 0) execv(arguments[0], arguments), _exit(9);
    } else if (how == 1) {
        if ((child = fork()) == 0) execv(arguments[0], arguments), _exit(9);
    } else {
        MUST(posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ) == 0);
    }
    wait_for("grep", child);
}

static void dispositions(void) {
    struct sigaction now, act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, plain = {.sa_handler = SIG_DFL, .sa_flags = SA_RESTART};
    const int signals[] = {SIGSEGV, SIGBUS, SIGQUIT, SIGABRT};
    for (int i = 0; i < 4; i++) {
        MUST(sigaction(signals[i], NULL, &now) == 0);
        say("default %d, flags %x", now.sa_handler == SIG_DFL, (unsigned)now.sa_flags);
        MUST(sigaction(signals[i], &act, &now) == 0);
        say("default %d, flags %x", now.sa_handler == SIG_DFL, (unsigned)now.sa_flags);
        MUST(sigaction(signals[i], &plain, &now) == 0);
        say("ours %d, flags %x", now.sa_sigaction == handler, (unsigned)now.sa_flags);
        MUST(sigaction(signals[i], NULL, &now) == 0);
        say("default %d, flags %x", now.sa_handler == SIG_DFL, (unsigned)now.sa_flags);
        MUST(signal(signals[i], SIG_IGN) == SIG_DFL && signal(signals[i], SIG_DFL) == SIG_IGN);
        MUST(sigset(signals[i], SIG_HOLD) == SIG_DFL && sigset(signals[i], SIG_DFL) == SIG_HOLD);
    }
    /* A child of vfork has our memory, but not our handlers. */
    signal(SIGSEGV, SIG_DFL);
    pid_t child = vfork();
    if (child == 0) {
        sigaction(SIGSEGV, &act, NULL);
        signal(SIGBUS, SIG_IGN);
        _exit(0);
    }
    wait_for("vfork", child);
    MUST(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    MUST(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    ends("after vfork", touch_it);
    MUST(sigaction(SIGSEGV, &act, NULL) == 0);
    if (sigsetjmp(out, 1) == 0) touch_it();
    say("a fault of its own: %d", code);
    say("clone3 with a handler: %s", answer(syscall(SYS_clone3, nowhere, 88)));
    if (sigsetjmp(out, 1) == 0) raise(SIGSEGV);
    say("sent: %d", code);
    signal(SIGSEGV, SIG_DFL);
}

int main(void) {
    struct rlimit none = {0, RLIM_INFINITY};
    setrlimit(RLIMIT_CORE, &none);
    char *pages = fresh(2 * PAGE);
    nowhere = pages + PAGE, half = nowhere - 4;
    MUST(mprotect(nowhere, PAGE, PROT_NONE) == 0); /* (nothing else will be there) */
    if (fork() == 0) { /* before anything was elided */
        say("clone3: %s", answer(syscall(SYS_clone3, nowhere, 88)));
        crashes();
        _exit(0);
    }
    wait(NULL);
    char *v = VIEW(1);
    calls();
    crashes();
    dispositions();
    inherited("default", 0);
    signal(SIGSEGV, SIG_IGN);
    inherited("ignored, vfork", 0);
    inherited("ignored, fork", 1);
    inherited("ignored, posix_spawn", 2);
    say("ignored, clone3: %s", answer(syscall(SYS_clone3, nowhere, 88)));
    signal(SIGSEGV, SIG_DFL);
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
