/* Executes a program in another root directory, where uncopy's library is not: it runs as it does
 * plainly, and nobody says a word about what is missing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

static const char *const DIRECTORIES[] = {"/usr", "/lib", "/lib64", "/bin", "/own"};

static void copy(const char *from, const char *to) {
    char room[1 << 14];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_WRONLY | O_EXCL, 0755);
    ssize_t n;
    MUST(in >= 0 && out >= 0);
    while ((n = read(in, room, sizeof room)) > 0) MUST(write(out, room, (size_t)n) == n);
    MUST(!n && !close(in) && !close(out));
}

/* In a mount namespace of its own. */
static void runs_inside(const char *root) {
    if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS)) {
        printf("no namespace is allowed here\n");
        exit(0);
    }
    MUST(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    for (int i = 0; i < 4; i++) {
        char inside[4200];
        snprintf(inside, sizeof inside, "%s%s", root, DIRECTORIES[i]);
        struct stat found;
        if (stat(DIRECTORIES[i], &found)) continue;
        MUST(!mount(DIRECTORIES[i], inside, NULL, MS_BIND | MS_REC, NULL));
    }
    MUST(!chroot(root) && !chdir("/"));
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        int status = -1;
        char *const words[] = {"alone", i ? "behind vfork" : "forked", NULL};
        pid_t child = i ? vfork() : fork();
        if (!child) execv("/own/alone", words), _exit(99);
        MUST(waitpid(child, &status, 0) == child);
        printf("status %d\n", WEXITSTATUS(status));
        fflush(stdout);
    }
    exit(0);
}

int main(int count, char **words) {
    (void)count;
    char root[] = "/tmp/uncopy-test-root-XXXXXX", from[4200], to[4200];
    MUST(mkdtemp(root));
    for (int i = 0; i < 5; i++) {
        snprintf(to, sizeof to, "%s%s", root, DIRECTORIES[i]);
        MUST(!mkdir(to, 0755));
    }
    snprintf(from, sizeof from, "%.*s/alone", (int)(strrchr(words[0], '/') - words[0]), words[0]);
    snprintf(to, sizeof to, "%s/own/alone", root);
    copy(from, to);
    fflush(stdout);
    int status = -1;
    pid_t child = fork();
    if (!child) runs_inside(root);
    MUST(waitpid(child, &status, 0) == child && !status);
    MUST(!unlink(to));
    for (int i = 0; i < 5; i++) {
        snprintf(to, sizeof to, "%s%s", root, DIRECTORIES[i]);
        MUST(!rmdir(to));
    }
    MUST(!rmdir(root));
    return 0;
}
