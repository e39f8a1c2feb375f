/* Copies input as often as it is told to, by lines of standard input; answers each with a line:
 *   copy N     N times: input of 256 KB, two copies of it, output
 *   overlap N  N times: memmove of input over itself
 *   fork       a child goes on with the next lines, until "end"; then this process again
 *   rawfork    a child made behind libc's back copies, allocates and ends
 *   sandbox    from now on, opening or removing a file kills it
 *   exec       becomes another program
 *   quit
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 256 << 10 };
static char *buffer, *first, *second;
static int source, sink;

static void say(const char *text)
{
    if (write(1, text, strlen(text)) < 0)
        _exit(3);
}

__attribute__((noinline)) void copy_input(void)
{
    if (pread(source, buffer, SIZE, 0) != SIZE)
        _exit(4);
    memcpy(first, buffer, SIZE);
    memcpy(second, first, SIZE);
    if (write(sink, second, SIZE) != SIZE)
        _exit(5);
}

__attribute__((noinline)) void move_over_itself(void)
{
    if (pread(source, buffer, SIZE, 0) != SIZE)
        _exit(4);
    /* (Not the last thing that it does: it would become a jump.) */
    if (memmove(buffer + 8192, buffer, SIZE - 8192) != buffer + 8192)
        _exit(8);
}

static int enter_sandbox(void)
{
    const int forbidden[] = {SYS_openat, SYS_open, SYS_unlinkat, SYS_unlink, SYS_mkdirat, SYS_fstatfs, SYS_renameat};
    const unsigned count = sizeof forbidden / sizeof *forbidden;
    struct sock_filter filter[2 * sizeof forbidden / sizeof *forbidden + 2];
    unsigned n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)forbidden[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)n, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

static long raw_fork(void)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_fork)
                     : "rcx", "r11", "memory");
    return result;
}

static int line(char *text, size_t room)
{
    size_t n = 0;
    while (n + 1 < room && read(0, text + n, 1) == 1 && text[n] != '\n')
        n++;
    text[n] = 0;
    return n > 0;
}

int main(int argc, char **argv)
{
    char text[64], answer[64];
    if (argc != 2)
        return 2;
    source = open(argv[1], O_RDONLY);
    sink = open("/dev/null", O_WRONLY);
    buffer = malloc(SIZE);
    first = malloc(SIZE);
    second = malloc(SIZE);
    if (source < 0 || sink < 0 || !buffer || !first || !second)
        return 2;
    say("ready\n");
    while (line(text, sizeof text) && strcmp(text, "quit") != 0) {
        int n = 0;
        if (sscanf(text, "copy %d", &n) == 1) {
            while (n-- > 0)
                copy_input();
            say("done\n");
        } else if (sscanf(text, "overlap %d", &n) == 1) {
            while (n-- > 0)
                move_over_itself();
            say("done\n");
        } else if (strcmp(text, "fork") == 0) {
            pid_t child = fork();
            if (child == 0) {
                snprintf(answer, sizeof answer, "%d\n", (int)getpid());
                say(answer);
                continue;
            }
            waitpid(child, NULL, 0);
            say("joined\n");
        } else if (strcmp(text, "end") == 0) {
            exit(0);
        } else if (strcmp(text, "rawfork") == 0) {
            pid_t child = (pid_t)raw_fork();
            if (child == 0) {
                for (int i = 0; i < 20; i++) {
                    char *block = malloc(1 << 20);
                    copy_input();
                    memset(block, i, 1 << 20);
                    free(block);
                }
                _exit(0);
            }
            waitpid(child, &n, 0);
            snprintf(answer, sizeof answer, "status %d\n", n);
            say(answer);
        } else if (strcmp(text, "sandbox") == 0) {
            say(enter_sandbox() ? "inside\n" : "refused\n");
        } else if (strcmp(text, "exec") == 0) {
            say("executing\n");
            execlp("cat", "cat", (char *)NULL);
            return 6;
        } else {
            return 7;
        }
    }
    return 0;
}
