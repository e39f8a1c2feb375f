/* posix_spawn with file actions and attributes; the spawned program copies its input to its output, all elided. */
#define MAP_CHANGES_MEANWHILE
#include "process.h"
#include <spawn.h>

extern char **environ;

static int copier(void) {
    char *in = fresh(SIZE), *between = fresh(SIZE), *out = fresh(SIZE);
    for (size_t n = 0; n < SIZE;) {
        ssize_t r = read(0, in + n, SIZE - n);
        MUST(r > 0);
        n += (size_t)r;
    }
    ELIDED_COPY(between, in, SIZE);
    ELIDED_COPY(out, between, SIZE);
    for (size_t n = 0; n < SIZE;) {
        ssize_t w = write(1, out + n, SIZE - n);
        MUST(w > 0);
        n += (size_t)w;
    }
    return eager() && page_missing(out + SIZE / 2) == 0 ? 8 : 7;
}

static void *feeds(void *arg) {
    int fd = *(int *)arg;
    char *v = VIEW(1);
    for (size_t n = 0; n < SIZE;) {
        ssize_t w = write(fd, v + n, SIZE - n);
        MUST(w > 0);
        n += (size_t)w;
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) return copier();
    char *own = VIEW(2);
    static char *no_environment[] = {NULL};
    for (int round = 0; round < 3; round++) {
        int to[2], from[2];
        MUST(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        sigset_t none;
        sigemptyset(&none);
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to[0], 0);
        posix_spawn_file_actions_adddup2(&actions, from[1], 1);
        posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addclose(&actions, 9);
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
        pid_t child;
        char *const arguments[] = {argv[0], (char *)"copier", NULL};
        /* The last round: an environment without anything of ours. */
        char **environment = round < 2 ? environ : no_environment;
        int error = round == 1 ? posix_spawnp(&child, "/proc/self/exe", &actions, &attributes, arguments, environment)
                               : posix_spawn(&child, "/proc/self/exe", &actions, &attributes, arguments, environment);
        MUST(error == 0);
        close(to[0]);
        close(from[1]);
        pthread_t feeder;
        MUST(pthread_create(&feeder, NULL, feeds, &to[1]) == 0);
        char *got = fresh(SIZE);
        for (size_t n = 0; n < SIZE;) {
            ssize_t r = read(from[0], got + n, SIZE - n);
            MUST(r > 0);
            n += (size_t)r;
        }
        pthread_join(feeder, NULL);
        EXPECT_INPUT(got, SIZE, 1);
        wait_for("copier", child);
        close(from[0]);
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
    pid_t child;
    char *const arguments[] = {argv[0], NULL};
    say("spawn of nothing: %s", strerror(posix_spawn(&child, "/nowhere", NULL, NULL, arguments, environ)));
    FILE *p = popen("cat", "w"); /* popen and system spawn too */
    MUST(p && fflush(NULL) == 0 && pclose(p) == 0);
    say("system: %d", system("exit 3"));
    EXPECT_INPUT(own, SIZE, 2);
    return finish();
}
