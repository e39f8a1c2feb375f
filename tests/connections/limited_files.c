/* Programs whose files may be short (RLIMIT_FSIZE): what is in memory is no file of theirs, and no SIGXFSZ comes for it, while large messages go, and where they
 * execute another program over unread bytes. */
#include "connection.h"
#include <sys/resource.h>

enum { LARGE = 600000, TIMES = 30 };
static char out[LARGE], in[LARGE];

static void limited(void) {
    struct rlimit limit = {1 << 20, 1 << 20};
    MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}
static void echoes(int fd) {
    for (int i = 0; i < TIMES; i++) receive_all(fd, in, LARGE), send_all(fd, in, LARGE);
}
static void talks(int fd) {
    for (unsigned i = 0; i < TIMES; i++) {
        fill(out, LARGE, i, 0);
        send_all(fd, out, LARGE);
        receive_all(fd, in, LARGE);
        MUST(is(in, LARGE, i, 0));
    }
}
static void limited_echoes(int fd) { limited(), echoes(fd); }
static void limited_talks(int fd) { limited(), talks(fd); }

/* A program that has the limit from the beginning, and so has the service that it starts. */
static void from_the_beginning(void) {
    struct sockaddr_in at;
    limited();
    int l = listener(&at);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        echoes(accepted(l));
        _exit(0);
    }
    talks(connected(&at));
    other_ends();
}

/* Bytes that are unread when another program is executed come to that. */
static void sends_and_ends(int fd) {
    fill(out, LARGE, 7, 0);
    send_all(fd, out, LARGE);
    MUST(shutdown(fd, SHUT_WR) == 0);
    receive_all(fd, in, 1);
}
static void executes(int fd) {
    char number[20];
    usleep(100000);
    limited();
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", "limited_files", number, NULL);
    _exit(7);
}

static void apart(void (*part)(void), const char *name) {
    int status;
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        part();
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child);
    if (status) say("WRONG: %s ends with %x", name, status);
    else say("%s: done", name);
}
static void later(void) { run_pair("from some moment on", limited_echoes, limited_talks); }
static void over_exec(void) { run_pair("over exec", sends_and_ends, executes); }

int main(int argc, char **argv) {
    alarm(60);
    if (argc > 1) {
        receive_all(atoi(argv[1]), in, LARGE);
        MUST(is(in, LARGE, 7, 0));
        send_all(atoi(argv[1]), "k", 1);
        say("all is there");
        return 0;
    }
    apart(later, "later");
    apart(over_exec, "over exec");
    /* (Until the service has ended.) */
    if (under_tcp()) usleep(2500000);
    apart(from_the_beginning, "from the beginning");
    return 0;
}
