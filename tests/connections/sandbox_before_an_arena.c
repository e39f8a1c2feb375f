/* A client has received much, 16 KB at a time, and its server's arena is on its way to it when it enters a sandbox, which ends programs for the
 * calls that arenas take. It goes on receiving by calls that wait and calls that do not, and gets the right bytes. */
#include "connection.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { SIZE = 1 << 20, PIECE = 16 << 10, BEFORE = 1, AFTER = 8 };

static void sends(int fd) {
    char *value = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), byte;
    MUST(value != MAP_FAILED);
    fill(value, SIZE, 1, 0);
    for (int i = 0; i < BEFORE + AFTER; i++) {
        send_all(fd, value, SIZE);
        receive_all(fd, &byte, 1);
    }
}

static void enters_sandbox(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstatfs, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

static void receives(int fd) {
    static char piece[PIECE];
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int i = 0; i < BEFORE + AFTER; i++) {
        if (i == BEFORE) {
            /* (The server sends the next one meanwhile, and offers its arena with it. Nothing is received that would take it.) */
            usleep(200000);
            enters_sandbox();
        }
        for (size_t from = 0; from < SIZE;) {
            size_t n = SIZE - from < PIECE ? SIZE - from : PIECE;
            if (i % 2 && i >= BEFORE) MUST(epoll_wait(set, &event, 1, -1) == 1);
            ssize_t got = recv(fd, piece, n, i % 2 && i >= BEFORE ? MSG_DONTWAIT : 0);
            MUST(got > 0);
            if (!is(piece, (size_t)got, 1, from)) say("WRONG at %zu of message %d", from, i);
            from += (size_t)got;
        }
        send_all(fd, "n", 1);
    }
}

int main(void) {
    run_pair("in a sandbox", sends, receives);
    return 0;
}
