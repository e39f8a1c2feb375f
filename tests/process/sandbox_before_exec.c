/* A sandbox that was there before the program: its filter answers userfaultfd and its ioctls with EPERM (as container runtimes
 * do), or ends the program for calls that elision takes (as service managers do). The program runs as ever, without elision. Where
 * the filter minds only calls that elision can do without, it elides. */
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

/* These end the program. */
static const int ENDS[][2] = {
    {SYS_process_vm_readv, SYS_process_vm_writev},
    {SYS_close_range, SYS_tgkill},
    {SYS_capset, SYS_sched_setaffinity},
    {SYS_vmsplice, SYS_splice},
};
enum { USES = 2, KINDS = USES + sizeof ENDS / sizeof *ENDS, ELIDES_FROM = USES + 2 };

static void put_in_force(int kind) {
    struct sock_filter ends[] = {
        DATA(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)ENDS[kind < USES ? 0 : kind - USES][0], 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)ENDS[kind < USES ? 0 : kind - USES][1], 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {8, kind == 1 ? forbids_use : forbids_userfaultfd};
    if (kind >= USES) program = (struct sock_fprog){5, ends};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(RAW(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

static int sandboxed(int kind) {
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
    if (kind < ELIDES_FROM && elided_copies()) say("elided in a sandbox that forbids it");
    if (kind >= ELIDES_FROM && eager() && !elided_copies()) say("not elided in a sandbox that lets it pass");
    return 5;
}

int main(int argc, char **argv) {
    if (argc > 1) return sandboxed(atoi(argv[1]));
    for (int kind = 0; kind < KINDS; kind++) {
        pid_t child = fork();
        if (child == 0) {
            char word[2] = {(char)('0' + kind), 0};
            put_in_force(kind);
            execl("/proc/self/exe", argv[0], word, (char *)NULL);
            _exit(99);
        }
        wait_for("sandboxed", child);
    }
    VIEW(1);
    return finish();
}
