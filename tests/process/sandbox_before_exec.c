/* A sandbox that was there before the program: its filter answers userfaultfd and its ioctls with EPERM (as container runtimes
 * do). The program runs as ever, without elision. */
#include "process.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define DATA(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* ioctls of userfaultfd have the type 0xaa. */
static struct sock_filter forbids_userfaultfd[] = {
    DATA(nr),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 5, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
    DATA(args[1]),
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xaa00, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
};
/* Only the calls that move pages: what was set up cannot be used. 0x05 is UFFDIO_MOVE, 0x00 UFFDIO_REGISTER. */
static struct sock_filter forbids_use[] = {
    DATA(nr),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
    DATA(args[1]),
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xaa05, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xaa00, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
};

static int sandboxed(void) {
    char *from = fresh(SIZE), *to = fresh(SIZE);
    for (unsigned round = 0; round < 5; round++) {
        receive(from, SIZE, round);
        memcpy(to, from, SIZE);
        send_on("sandboxed", to, SIZE);
        EXPECT_INPUT(from, SIZE, round);
        EXPECT_INPUT(to, SIZE, round);
    }
    pid_t child = fork();
    if (child == 0) _exit(is_input(to, SIZE, 4, 0) ? 3 : 4);
    wait_for("its child", child);
    if (elided_copies()) say("elided in a sandbox that forbids it");
    return 5;
}

int main(int argc, char **argv) {
    if (argc > 1) return sandboxed();
    for (int use = 0; use < 2; use++) {
        pid_t child = fork();
        if (child == 0) {
            struct sock_fprog program = {8, use ? forbids_use : forbids_userfaultfd};
            MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
            MUST(RAW(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
            execl("/proc/self/exe", argv[0], "sandboxed", (char *)NULL);
            _exit(99);
        }
        wait_for("sandboxed", child);
    }
    VIEW(1);
    return finish();
}
