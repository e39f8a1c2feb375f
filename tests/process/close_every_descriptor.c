/* Programs that close every descriptor they do not know, in every way there is, and work on; a number that they get afterwards is theirs. */
#include "process.h"
#include <dirent.h>
#include <sys/resource.h>

static void close_all(int how) {
    switch (how) {
    case 0:
        for (int fd = 3; fd < 4096; fd++) close(fd);
        break;
    case 1: MUST(close_range(3, ~0u, 0) == 0); break;
    case 2: closefrom(3); break;
    case 3:
        for (int fd = 3; fd < 4096; fd++) RAW(SYS_close, fd, 0, 0);
        break;
    case 4: MUST(RAW(SYS_close_range, 3, ~0u, 0) == 0); break;
    case 5: { /* as daemons do */
        DIR *d = opendir("/proc/self/fd");
        struct dirent *e;
        int list[200], n = 0;
        while ((e = readdir(d)) && n < 200)
            if (atoi(e->d_name) > 2 && atoi(e->d_name) != dirfd(d)) list[n++] = atoi(e->d_name);
        closedir(d);
        for (int i = 0; i < n; i++) close(list[i]);
        break;
    }
    case 6: MUST(close_range(3, ~0u, 2 /* CLOSE_RANGE_UNSHARE */) == 0); break;
    case 7: MUST(close_range(0, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */) == 0); break;
    default: MUST(syscall(SYS_close_range, 3, ~0u, 0) == 0);
    }
}

int main(void) {
    for (int how = 0; how < 9; how++) {
        pid_t child = fork();
        if (child == 0) {
            char *v = VIEW(1), *origin = fresh(SIZE), *to = fresh(SIZE);
            receive(origin, SIZE, 2);
            MUST_BE_UNMAPPED(v + SIZE / 2);
            close_all(how);
            say("first free number: %d", dup(0)); /* what a program gets is what it would get */
            memcpy(to, origin, SIZE);
            EXPECT_INPUT(to, SIZE, 2);
            EXPECT_INPUT(v, SIZE, 1);
            receive(v, SIZE, 3);
            memcpy(origin, v, SIZE);
            EXPECT_INPUT(origin, SIZE, 3);
            pid_t grandchild = fork();
            if (grandchild == 0) _exit(is_input(origin, SIZE, 3, 0) ? 0 : 1);
            wait_for("its child", grandchild);
            /* All numbers up to the limit are to be had. */
            struct rlimit limit = {256, 256};
            MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
            int most = 0;
            for (int fd; (fd = dup(0)) >= 0;) most = fd;
            say("largest number: %d", most);
            _exit(0);
        }
        wait_for("closer", child);
    }
    VIEW(1);
    return finish();
}
