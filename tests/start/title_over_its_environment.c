/* A server that shows what it does in `ps`, as many do: it moves its environment elsewhere and
 * writes its title over its words and the old environment. A program that it executes then has the
 * same libraries as before, and no other, whatever the title says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int under_uncopy(void) { return dlsym(RTLD_DEFAULT, "uncopy_counters") != NULL; }

static int as_child(const char *how, const char *parent_under) {
    printf("%s: the other library is %s\n", how, dlsym(RTLD_DEFAULT, "other_library_is_here") ? "there" : "gone");
    if (under_uncopy() != (*parent_under == 'u')) printf("WRONG: %s\n", under_uncopy() ? "under uncopy" : "not under uncopy");
    return 0;
}

static char *from, *to;

/* Writes the title as often as there is room. */
static void write_title(const char *title, int often) {
    memset(from, 0, to - from);
    size_t n = strlen(title);
    if (!often) {
        strncpy(from, title, to - from - 1);
        return;
    }
    for (char *at = from; at + n < to; at += n) memcpy(at, title, n);
}

static void starts(char *program, const char *how) {
    char *under = under_uncopy() ? "under" : "plain";
    char *const words[] = {program, (char *)how, under, NULL};
    fflush(stdout);
    pid_t child;
    int status = -1;
    if (!strcmp(how, "spawned")) {
        if (posix_spawn(&child, program, NULL, NULL, words, environ)) _exit(1);
    } else if (!(child = fork())) {
        /* (With an environment of its own making, too.) */
        char *const own[] = {"PATH=/bin", NULL};
        if (!strcmp(how, "executed")) execv(program, words);
        else execve(program, words, own);
        _exit(127);
    }
    waitpid(child, &status, 0);
    if (status) printf("WRONG: status %d\n", status);
}

int main(int count, char **words) {
    if (count == 3) return as_child(words[1], words[2]);
    char *program = strdup(words[0]), foreign[512];
    snprintf(foreign, sizeof foreign, "%.*s/foreign.so ", (int)(strrchr(program, '/') - program), program);
    from = words[0], to = words[0] + strlen(words[0]) + 1;
    int n = 0;
    for (; environ[n]; n++)
        if (environ[n] == to) to = environ[n] + strlen(environ[n]) + 1;
    char **moved = malloc((n + 1) * sizeof *moved);
    for (int i = 0; i < n; i++) moved[i] = strdup(environ[i]);
    moved[n] = NULL;
    environ = moved;
    const struct {
        const char *title;
        int often;
    } TITLES[] = {{"idle", 0}, {"T", 1}, {foreign, 1}};
    for (int i = 0; i < 3; i++) {
        write_title(TITLES[i].title, TITLES[i].often);
        starts(program, "executed");
        starts(program, "spawned");
        /* Plainly such a child has nothing of ours. */
        starts(program, "afresh");
    }
    return 0;
}
