/* A program that enters a sandbox which kills for all but a few calls is left alone from then on: it forks, copies and ends with the
 * calls that it needs itself. */
#include "process.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define PASS(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(void) {
    char *from = fresh(SIZE), *to = fresh(SIZE);
    receive(from, SIZE, 1);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        PASS(SYS_write), PASS(SYS_clone), PASS(SYS_wait4), PASS(SYS_set_robust_list), PASS(SYS_exit_group), PASS(SYS_rt_sigreturn),
        /* libc's own fork and stdio */
        PASS(SYS_rt_sigprocmask), PASS(SYS_gettid), PASS(SYS_rseq), PASS(SYS_brk), PASS(SYS_newfstatat), PASS(SYS_fstat),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
#ifdef COPIES_BEFORE
    ELIDED_COPY(to, from, SIZE);
#endif
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
    memcpy(to, from, SIZE);
    int status = -1, pid = fork();
    if (pid == 0) {
        memcpy(to, from, SIZE);
        say("child: %d", is_input(to, SIZE, 1, 0));
        _exit(0);
    }
    MUST(wait4(pid, &status, 0, NULL) == pid);
    say("status %x", status);
    EXPECT_INPUT(to, SIZE, 1);
    return 0;
}
