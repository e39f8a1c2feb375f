/* A daemon by two forks and by libc's daemon(3): it leaves its session, its directory and its descriptors, and works on. */
#include "process.h"

static void work(char *v, unsigned number, int to) {
    char *more = VIEW(number);
    v[PAGE * 9] = 1;
    int ok = is_input(v + PAGE * 10, SIZE - PAGE * 10, 1, 0 + PAGE * 10) && v[PAGE * 9] == 1 &&
             is_input(v, PAGE * 9, 1, 0);
    MUST(write(to, ok ? "+" : "-", 1) == 1);
    for (size_t at = 0; at < SIZE; at += PAGE) MUST(write(to, more + at, PAGE) == (ssize_t)PAGE);
}

int main(void) {
    char *v = VIEW(1);
    for (int libc = 0; libc < 2; libc++) {
        int to[2];
        MUST(pipe(to) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(to[0]);
            if (libc) {
                MUST(daemon(0, 0) == 0);
            } else {
                setsid();
                if (fork() != 0) _exit(0);
                MUST(chdir("/") == 0);
                int null = open("/dev/null", O_RDWR);
                for (int fd = 0; fd < 3; fd++) dup2(null, fd);
            }
            work(v, 2 + (unsigned)libc, to[1]);
            exit(0);
        }
        close(to[1]);
        wait_for("first child", child);
        char mark = 0;
        MUST(read(to[0], &mark, 1) == 1);
        say("daemon's views: %c", mark);
        char *got = fresh(SIZE);
        for (size_t n = 0; n < SIZE;) {
            ssize_t r = read(to[0], got + n, SIZE - n);
            MUST(r > 0);
            n += (size_t)r;
        }
        EXPECT_INPUT(got, SIZE, 2 + (unsigned)libc);
        MUST(read(to[0], &mark, 1) == 0); /* the daemon has ended */
        close(to[0]);
    }
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
