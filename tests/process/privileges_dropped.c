/* A server that drops its privileges (setresgid, setgroups, setresuid), changes its root, and goes on: further elision, mremap, fork, and no
 * way back for any of its threads. */
#include "process.h"
#include <dirent.h>
#include <grp.h>

int main(void) {
    if (geteuid() != 0) say("not root: nothing to drop");
    char *v = VIEW(1);
    for (int jail = 0; jail < 2; jail++) {
        pid_t child = fork();
        if (child == 0) {
            char *before = VIEW(2), *origin = fresh(SIZE), *to = fresh(SIZE);
            receive(origin, SIZE, 3);
            if (geteuid() == 0) {
                if (jail) MUST(chroot("/proc/self/fdinfo") == 0 && chdir("/") == 0);
                gid_t group = 65534;
                MUST(setgroups(1, &group) == 0 && setresgid(65534, 65534, 65534) == 0);
                MUST(setresuid(65534, 65534, 65534) == 0);
                MUST(setuid(0) != 0);
            }
            ELIDED_COPY(to, origin, SIZE);
            EXPECT_INPUT(before, SIZE, 2);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                receive(origin, SIZE, 4);
                char *fresh_one = fresh(SIZE);
                ELIDED_COPY(fresh_one, origin, SIZE); /* a userfaultfd of its own, without the privilege */
                _exit(is_input(fresh_one, SIZE, 4, 0) && is_input(to, SIZE, 3, 0) ? 0 : 1);
            }
            wait_for("its child", grandchild);
            /* Of several mappings by now; /proc may be out of reach. */
            char *half = fresh(SIZE);
            receive(origin, SIZE, 5);
            ELIDED_COPY(half + SIZE / 4, origin, SIZE / 2);
            char *moved = mremap(half, SIZE, SIZE * 4, MREMAP_MAYMOVE);
            say("mremap: %s", moved == MAP_FAILED ? strerror(errno) : "moved");
            if (moved != MAP_FAILED) EXPECT_INPUT(moved + SIZE / 4, SIZE / 2, 5);
            EXPECT_INPUT(to, SIZE, 3);
            if (!jail) {
                DIR *tasks = opendir("/proc/self/task");
                struct dirent *e;
                int privileged = 0;
                while (tasks && (e = readdir(tasks))) {
                    char path[300], line[200];
                    snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
                    FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
                    unsigned a, b, c, d;
                    while (f && fgets(line, sizeof line, f))
                        if (sscanf(line, "Uid: %u %u %u %u", &a, &b, &c, &d) == 4)
                            privileged += geteuid() == 65534 && (a == 0 || b == 0 || c == 0 || d == 0);
                    if (f) fclose(f);
                }
                say("threads with privileges: %d", privileged);
            }
            _exit(0);
        }
        wait_for("server", child);
    }
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
