/* A child of vfork, then a process that shares memory, gives up rights, as who starts another program does: they are its own. Its
 * parent's views are served as before, also after it has executed something or ended, and copies are elided. */
#include "process.h"
#include <grp.h>
#include <sys/prctl.h>

static int no_new_rights(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }
static int no_groups(void) { return setgroups(0, NULL); }
static int another_user(void) { return (int)syscall(SYS_setresuid, 65534, 65534, 65534); }
static int other_mounts(void) { return unshare(CLONE_NEWNS); }
static int other_users(void) { return unshare(CLONE_NEWUSER); }
static int another_root(void) { return chroot("/"); }

static int (*gives_up)(void);
static int shares_memory(void *unused) {
    (void)unused;
    return gives_up() ? 7 : 0;
}

int main(void) {
    alarm(20);
    static int (*const ways[])(void) = {no_new_rights, no_groups, another_user, other_mounts, other_users, another_root};
    char *stack = fresh(1 << 20);
    unsigned input = 1;
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        gives_up = ways[i];
        char *view = VIEW(input), *other = VIEW(input + 1);
        int status, pid = vfork();
        if (pid == 0) {
            if (gives_up()) _exit(7);
            execl("/bin/true", "true", (char *)NULL);
            _exit(8);
        }
        MUST(waitpid(pid, &status, 0) == pid);
        say("%u: child of vfork: %x", i, status);
        EXPECT_INPUT(view, SIZE, input);
        pid = clone(shares_memory, stack + (1 << 20), CLONE_VM | SIGCHLD, NULL);
        MUST(waitpid(pid, &status, 0) == pid);
        say("%u: process that shares memory: %x", i, status);
        EXPECT_INPUT(other, SIZE, input + 1);
        input += 2;
    }
    return finish();
}
