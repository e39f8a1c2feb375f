/* posix_spawn with actions that give a connection to the child as its standard input and output: it has every byte, also those that came before. */
#include "connection.h"
#include <spawn.h>

extern char **environ;
enum { BEFORE = 30000, AFTER = 70000 };

static void spawns(int fd) {
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
    char byte;
    receive_all(fd, &byte, 1);
    MUST(byte == 'g');
    posix_spawn_file_actions_t actions;
    MUST(posix_spawn_file_actions_init(&actions) == 0);
    MUST(posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0 && posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
    char *words[] = {"cat", NULL};
    pid_t child;
    MUST(posix_spawnp(&child, "cat", &actions, NULL, words, environ) == 0);
    MUST(posix_spawn_file_actions_destroy(&actions) == 0);
    close(fd);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}
static void *sends_rest(void *at) {
    static char bytes[AFTER];
    int fd = *(int *)at;
    fill(bytes, AFTER, 4, BEFORE);
    usleep(20000);
    send_all(fd, bytes, AFTER);
    MUST(shutdown(fd, SHUT_WR) == 0);
    return NULL;
}
static void speaks(int fd) {
    static char out[BEFORE], in[BEFORE + AFTER + 1];
    fill(out, BEFORE, 4, 0);
    send_all(fd, "g", 1);
    send_all(fd, out, BEFORE);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, sends_rest, &fd) == 0);
    size_t got = 0;
    for (ssize_t n; (n = recv(fd, in + got, sizeof in - got, 0)) > 0;) got += (size_t)n;
    MUST(pthread_join(thread, NULL) == 0);
    say("%zu bytes came back, %s", got, is(in, got, 4, 0) ? "the right ones" : "wrong ones");
    close(fd);
}

int main(void) {
    run_pair("spawned", spawns, speaks);
    return 0;
}
