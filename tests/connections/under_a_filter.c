/* Programs that were put under a filter of system calls before they were executed, as a container's are. What that lets pass is used: large messages
 * travel in blocks. What it refuses, or would end the program for, is not called by the program. */
#include "connection.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { SIZE = 1 << 20 };
static int filter;

static const struct {
    const char *name;
    int calls[2];
    unsigned answer;
    int blocks;
} FILTERS[] = {
    {"one that minds nothing", {SYS_swapoff, SYS_swapoff}, SECCOMP_RET_ERRNO | EPERM, 1},
    {"one that refuses a block's file", {SYS_fstatfs, SYS_fstatfs}, SECCOMP_RET_ERRNO | EPERM, 0},
    {"one that ends programs for a block's memory", {SYS_memfd_create, SYS_memfd_create}, SECCOMP_RET_KILL_PROCESS, 0},
    {"one that ends programs that look into others", {SYS_process_vm_readv, SYS_process_vm_writev}, SECCOMP_RET_KILL_PROCESS, 0},
    {"one that ends programs for what our thread gives up", {SYS_capset, SYS_sched_setaffinity}, SECCOMP_RET_KILL_PROCESS, 1},
    {"one that ends programs that call userfaultfd", {SYS_userfaultfd, SYS_userfaultfd}, SECCOMP_RET_TRAP, 1},
};
enum { COUNT = sizeof FILTERS / sizeof *FILTERS };

static void is_filtered(int which) {
    for (int i = 0; i < 2; i++) {
        struct sock_filter rules[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)FILTERS[which].calls[i], 0, 1),
            BPF_STMT(BPF_RET | BPF_K, FILTERS[which].answer),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {4, rules};
        /* (A raw call: nobody else hears of it before the next program does. With NoNewPrivs no blocks would be given.) */
        MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    }
}

static void sends(int fd) {
    static char bytes[SIZE];
    char byte;
    fill(bytes, SIZE, 3, 0);
    int blocks = FILTERS[filter].blocks && getenv("UNCOPY_TCP_BLOCKS") != NULL;
    /* (The receiver has our arena only once it has said so.) */
    for (int i = 0; i < 12 || (blocks && i < 600 && counter("tcp_block_bytes") == 0); i++) {
        send_all(fd, "m", 1);
        send_all(fd, bytes, SIZE);
        receive_all(fd, &byte, 1);
    }
    send_all(fd, "e", 1);
    if (blocks && counter("tcp_block_bytes") == 0) say("WRONG: no message went in a block");
    if (under_tcp() && !FILTERS[filter].blocks) {
        if (counter("tcp_block_bytes")) say("WRONG: messages went in blocks");
        if (counter("tcp_blocks_filtered") != 1) say("WRONG: that is not counted");
    }
}

static void takes(int fd) {
    char byte, *to = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(to != MAP_FAILED);
    for (receive_all(fd, &byte, 1); byte == 'm'; receive_all(fd, &byte, 1)) {
        receive_all(fd, to, SIZE);
        if (!is(to, SIZE, 3, 0)) say("WRONG where it came");
        send_all(fd, "n", 1);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) {
        filter = atoi(argv[1]);
        run_pair(FILTERS[filter].name, takes, sends);
        return 0;
    }
    if (geteuid() != 0) {
        say("only root puts others under filters");
        return 0;
    }
    /* The service runs before, and is under none. */
    int near_end, far_end;
    connect_within(1, &far_end, &near_end);
    for (int i = 0; i < COUNT; i++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            char word[2] = {(char)('0' + i), 0};
            close(near_end);
            close(far_end);
            is_filtered(i);
            execl("/proc/self/exe", argv[0], word, (char *)NULL);
            _exit(99);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        if (status != 0) say("WRONG: under %s it ended with %d", FILTERS[i].name, status);
    }
    return 0;
}
