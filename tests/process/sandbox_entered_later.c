/* seccomp after a start with views: the strict mode, and filters that kill for everything but a few calls, on one thread or on all
 * (SECCOMP_FILTER_FLAG_TSYNC), by prctl and by the system call. Memory that was a view before is there; nothing kills the
 * program. */
#include "process.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

static char *v, *origin, *to;

static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 6, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 5, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 4, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvfrom, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

/* A call that the sandbox forbids ends a program of one thread, also where the action is to kill "the
 * thread". */
static void forbidden(int how) {
    v = VIEW(1);
    filter[7].k = how == 0 ? SECCOMP_RET_KILL_THREAD : SECCOMP_RET_KILL_PROCESS;
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    if (how < 2 && geteuid() == 0) MUST(chroot(".") == 0); /* no /proc there */
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (how == 2)
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
    else
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
    if (is_input(v, SIZE, 1, 0)) raw(SYS_getppid, 0, 0, 0, 0, 0, 0);
    say("still here");
    raw(SYS_exit, 99, 0, 0, 0, 0, 0);
}

static void inside(int how, int pipe_end) {
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    switch (how) {
    case 0: MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0); break;
    case 1: MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) == 0); break;
    case 2: MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0); break;
    case 3: MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0); break;
    default: MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    }
    if (!is_input(v, SIZE, 1, 0)) raw(SYS_exit, 1, 0, 0, 0, 0, 0);
    if (!is_input(origin, SIZE, 2, 0)) raw(SYS_exit, 1, 0, 0, 0, 0, 0);
    /* Input, a copy and output on, inside. */
    MUST(read(pipe_end, origin, PAGE * 8) == (ssize_t)PAGE * 8);
    memcpy(to, origin, SIZE);
    if (!is_input(to, PAGE * 8, 3, 0) || !is_input(to + PAGE * 8, SIZE - PAGE * 8, 2, PAGE * 8))
        raw(SYS_exit, 1, 0, 0, 0, 0, 0);
    if (how >= 2) {
        for (size_t at = 0; at < SIZE; at += PAGE * 8) MUST(write(2, "", 0) == 0);
        free(malloc(100));
        munmap(v, SIZE);
    }
    raw(SYS_exit, 20 + how, 0, 0, 0, 0, 0);
}

int main(void) {
    for (int how = 0; how < 5; how++) {
        pid_t child = fork(); /* each sandbox in a process with views of its own */
        int fds[2];
        char chunk[PAGE * 8];
        if (child != 0) {
            wait_for("sandboxed", child);
            continue;
        }
        MUST(pipe(fds) == 0);
        fill(chunk, sizeof chunk, 3, 0);
        MUST(RAW(SYS_write, fds[1], chunk, sizeof chunk) == (long)sizeof chunk);
        to = fresh(SIZE);
        origin = fresh(SIZE);
        v = VIEW(1);
        receive(origin, SIZE, 2);
        ELIDED_COPY(to, origin, SIZE);
        MUST_BE_UNMAPPED(v + SIZE / 2);
        inside(how, fds[0]);
    }
    for (int how = 0; how < 3; how++) {
        pid_t child = fork();
        if (child == 0) forbidden(how);
        wait_for("forbidden", child);
    }
    /* Without a sandbox: a program of one thread that ends that thread only. */
    pid_t child = fork();
    if (child == 0) {
        v = VIEW(1);
        syscall(SYS_exit, 33);
    }
    wait_for("thread's exit", child);
    VIEW(1);
    return finish();
}
