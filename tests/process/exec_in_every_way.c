/* The whole exec family, with environments given, emptied and changed; what is executed runs as its parent does, with elision or
 * without it. */
#include "process.h"

extern char **environ;

/* Bit 0: works; bit 1: the library is there. */
static int executed(void) {
    return (is_input(VIEW(5), SIZE, 5, 0) ? 1 : 0) | (counters() ? 2 : 0);
}

int main(int argc, char **argv) {
    if (argc > 1) return executed();
    char *self = realpath("/proc/self/exe", NULL), *slash = strrchr(self, '/');
    char directory[4200];
    snprintf(directory, sizeof directory, "%.*s", (int)(slash - self), self);
    VIEW(1);
    char *const none[] = {NULL}, *const one[] = {(char *)"HOME=/", NULL};
    char *const preload[] = {(char *)"LD_PRELOAD=", (char *)"A=B", NULL};
    char *const arguments[] = {argv[0], (char *)"executed", NULL};
    static const char *names[] = {"execl", "execlp", "execle", "execv", "execvp", "execvpe", "execve", "execve, nothing", "fexecve",
                                  "execveat", "execveat by number", "cleared environment", "environ", "a script", "a shell"};
    for (unsigned how = 0; how < sizeof names / sizeof *names; how++) {
        pid_t child = how % 2 ? vfork() : fork();
        if (child == 0) {
            int fd;
            switch (how) {
            case 0: execl(self, argv[0], "executed", "2", "3", "4", "5", "6", "7", (char *)NULL); break;
            case 1: execlp(self, argv[0], "executed", (char *)NULL); break;
            case 2: execle(self, argv[0], "executed", "2", "3", "4", "5", (char *)NULL, one); break;
            case 3: execv(self, arguments); break;
            case 4:
                setenv("PATH", directory, 1);
                execvp(slash + 1, arguments);
                break;
            case 5: execvpe(self, arguments, preload); break;
            case 6: execve(self, arguments, one); break;
            case 7: execve(self, arguments, none); break;
            case 8:
                fd = open(self, O_RDONLY);
                fexecve(fd, arguments, one);
                break;
            case 9: execveat(AT_FDCWD, self, arguments, one, 0); break;
            case 10: syscall(SYS_execveat, AT_FDCWD, self, arguments, one, 0); break;
            case 11:
                clearenv();
                execv(self, arguments);
                break;
            case 12: execve(self, arguments, environ); break;
            case 13: {
                int script = open("script", O_WRONLY | O_CREAT | O_TRUNC, 0700);
                dprintf(script, "#!/bin/sh\nexec %s executed\n", self);
                close(script);
                execl("./script", "script", (char *)NULL);
                break;
            }
            default: execl("/bin/sh", "sh", "-c", "exec \"$0\" executed", self, (char *)NULL);
            }
            _exit(99);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
        status = WEXITSTATUS(status);
        say("%s: works: %d, as its parent: %d", names[how], status & 1 && status < 4, !(status & 2) == !counters());
    }
    unlink("script");
    return finish();
}
