/* Executes programs that cannot run under uncopy, in every way, and others: each runs as it does
 * plainly, and so do other preloaded libraries. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

extern char **environ;

static char directory[4096];

static int status_of(pid_t child) {
    int status = -1;
    MUST(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

enum way { BY_PATH, BY_NAME, AS_A_LIST, BY_DESCRIPTOR, FROM_A_DIRECTORY, BEHIND_VFORK, SPAWNED, WAYS };

static void starts(const char *name, enum way way) {
    static char *const NAMES[] = {"path", "name", "list", "descriptor", "directory", "vfork", "spawn"};
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    char *const words[] = {path, NAMES[way], NULL};
    fflush(stdout);
    pid_t child;
    if (way == SPAWNED) {
        MUST(!posix_spawnp(&child, name, NULL, NULL, words, environ));
    } else if (way == BEHIND_VFORK) {
        if (!(child = vfork())) execve(path, words, environ), _exit(99);
    } else if (!(child = fork())) {
        if (way == BY_PATH) execv(path, words);
        if (way == BY_NAME) execvp(name, words);
        if (way == AS_A_LIST) execlp(name, path, NAMES[way], NULL);
        if (way == BY_DESCRIPTOR) fexecve(open(path, O_PATH), words, environ);
        if (way == FROM_A_DIRECTORY) execveat(open(directory, O_PATH), name, words, environ, 0);
        _exit(99);
    }
    printf("%s by %s: %d\n", name, NAMES[way], status_of(child));
}

/* A file whose first line names one of the programs. */
static void make_script(const char *program) {
    char path[4200], made[4300];
    snprintf(path, sizeof path, "%s/script_for_%s", directory, program);
    snprintf(made, sizeof made, "%s.%d", path, getpid());
    FILE *script = fopen(made, "w");
    MUST(script && fprintf(script, "#!%s/%s\n", directory, program) > 0 && !fclose(script));
    MUST(!chmod(made, 0755) && !rename(made, path));
}

int main(int count, char **words) {
    (void)count;
    MUST(realpath(words[0], directory));
    *strrchr(directory, '/') = 0;
    char value[9000], other[4200];
    snprintf(value, sizeof value, "%s:%s", directory, getenv("PATH"));
    MUST(!setenv("PATH", value, 1));
    snprintf(other, sizeof other, "%s/ld-other.so.1", directory);
    MUST(!symlink("/lib64/ld-linux-x86-64.so.2", other) || errno == EEXIST);

    static const char *const PROGRAMS[] = {"with_another_loader", "with_a_sanitizer", "static_one", "like_this_one"};
    for (unsigned i = 0; i < 4; i++) {
        for (enum way way = 0; way < WAYS; way++) starts(PROGRAMS[i], way);
        char script[64];
        snprintf(script, sizeof script, "script_for_%s", PROGRAMS[i]);
        make_script(PROGRAMS[i]);
        starts(script, BY_PATH), starts(script, SPAWNED);
    }
    /* Beside another library, which stays. */
    const char *own = getenv("LD_PRELOAD");
    char *kept = own ? strdup(own) : NULL;
    for (int i = 0; i < 4; i++) {
        if (!kept || i == 0) snprintf(value, sizeof value, "%s/present.so", directory);
        else if (i == 1) snprintf(value, sizeof value, "%s/present.so:%s", directory, kept);
        else snprintf(value, sizeof value, "%s%c%s/present.so", kept, i == 2 ? ':' : ' ', directory);
        MUST(!setenv("LD_PRELOAD", value, 1));
        starts("with_another_loader", BY_PATH), starts("like_this_one", BY_PATH);
    }
    return 0;
}
