/* unshare of namespaces, filesystem attributes and descriptors, and chroot, in a process with views. */
#include "process.h"

static const struct {
    const char *name;
    int flags;
} ways[] = {{"files", CLONE_FILES}, {"fs", CLONE_FS},          {"mount", CLONE_NEWNS}, {"uts", CLONE_NEWUTS},
            {"ipc", CLONE_NEWIPC},  {"network", CLONE_NEWNET}, {"pid", CLONE_NEWPID},  {"cgroup", CLONE_NEWCGROUP}};

int main(void) {
    char *kept = VIEW(1);
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        if (child == 0) {
            char *v = VIEW(2), *origin = fresh(SIZE), *to = fresh(SIZE);
            receive(origin, SIZE, 3);
            int result = unshare(ways[i].flags);
            say("unshare %s: %s", ways[i].name, result == 0 ? "done" : strerror(errno));
            ELIDED_COPY(to, origin, SIZE);
            EXPECT_INPUT(to, SIZE, 3);
            EXPECT_INPUT(v, SIZE, 2);
            pid_t grandchild = fork(); /* the first of a pid namespace, in one of them */
            if (grandchild == 0) {
                receive(origin, SIZE, 4);
                char *fresh_one = fresh(SIZE);
                ELIDED_COPY(fresh_one, origin, SIZE);
                _exit(is_input(fresh_one, SIZE, 4, 0) && is_input(to, SIZE, 3, 0) ? 0 : 1);
            }
            wait_for("its child", grandchild);
            _exit(0);
        }
        wait_for("child", child);
    }
    pid_t child = fork();
    if (child == 0) {
        char *v = VIEW(5);
        int done = unshare(CLONE_NEWUSER);
        say("user namespace: %s", done == 0 ? "done" : strerror(errno));
        EXPECT_INPUT(v, SIZE, 5);
        receive(v, SIZE, 6);
        char *w = fresh(SIZE);
        memcpy(w, v, SIZE);
        EXPECT_INPUT(w, SIZE, 6);
        _exit(0);
    }
    wait_for("child", child);
    EXPECT_INPUT(kept, SIZE, 1);
    return finish();
}
