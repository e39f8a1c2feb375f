/* A connection is handed on to another program while bytes of the peer's lie unread and the peer computes. The other program reads them: at its standard input, at the number that
 * it inherits, or from a descriptor that comes by SCM_RIGHTS; whether the first program keeps its own descriptor or not. */
#include "connection.h"
#include <spawn.h>

static const char *how;

/* The peer: sends a line, computes for longer than anybody waits for it (1 s), then reads the answer. */
static void computes(int fd) {
    char byte = 'g', line[64];
    receive_all(fd, &byte, 1);
    send_all(fd, "hand me on\n", 11);
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - end.tv_sec) * 1000 + (now.tv_nsec - end.tv_nsec) / 1000000 < 1600);
    receive_all(fd, line, 15);
    MUST(memcmp(line, "worker got it!!", 15) == 0);
}

/* Executes this program as the one that reads a line from `fd` and answers. */
static void executes(int fd) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", "worker", "worker", number, NULL);
    _exit(9);
}

static void worker(int fd) {
    char line[64];
    receive_all(fd, line, 11);
    MUST(memcmp(line, "hand me on\n", 11) == 0);
    send_all(fd, "worker got it!!", 15);
}

static void hands_on(int fd) {
    send_all(fd, "g", 1);
    usleep(100000);
    if (strcmp(how, "rights") == 0) {
        int pair[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            close(fd);
            close(pair[0]);
            worker(handed_over(pair[1]));
            _exit(0);
        }
        usleep(50000);
        hand_over(pair[0], fd);
        close(fd);
        int status;
        MUST(waitpid(child, &status, 0) == child);
        say("the worker ended with %d", status);
        return;
    }
    pid_t child;
    if (strcmp(how, "spawned") == 0) {
        posix_spawn_file_actions_t actions;
        char *const worker_at_0[] = {"worker", "worker", "0", NULL};
        MUST(posix_spawn_file_actions_init(&actions) == 0);
        MUST(posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
        MUST(posix_spawn(&child, "/proc/self/exe", &actions, NULL, worker_at_0, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
    } else if (strcmp(how, "vfork") == 0) {
        child = vfork();
        if (child == 0) {
            if (dup2(fd, 0) != 0) _exit(8);
            execl("/proc/self/exe", "worker", "worker", "0", NULL);
            _exit(9);
        }
    } else {
        child = fork();
    }
    MUST(child >= 0);
    if (child == 0) {
        if (strcmp(how, "alone") == 0) usleep(200000);
        if (strcmp(how, "input") == 0) {
            MUST(dup2(fd, 0) == 0);
            executes(0);
        }
        executes(fd);
    }
    if (strcmp(how, "alone") == 0) close(fd);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    say("the worker ended with %d", status);
}

int main(int count, char **words) {
    if (count > 2) {
        worker(atoi(words[2]));
        return 0;
    }
    static const char *const ways[] = {"alone", "kept", "input", "rights", "spawned", "vfork"};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        how = ways[i];
        run_pair(how, computes, hands_on);
    }
    return 0;
}
