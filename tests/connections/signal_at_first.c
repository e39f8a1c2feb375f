/* A signal that comes while a call registers its connection ends it, as it ends one that waits. (A service that does not answer is waited for.) */
#include "connection.h"
#include <stddef.h>
#include <sys/un.h>

static void comes(int signal) { (void)signal; }

/* Somebody who has the service's name, and does not answer. */
static int silent(void) {
    const char *name = getenv("UNCOPY_TCP_SERVICE");
    if (!under_tcp() || !name) return -1;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    MUST(len + 1 < sizeof at.sun_path);
    memcpy(at.sun_path + 1, name, len);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    MUST(fd >= 0 && bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) == 0 && listen(fd, 10) == 0);
    return fd;
}

/* After so many calls the connection is to be registered. */
static void waits(int calls, int restarts) {
    struct sockaddr_in at;
    int l = listener(&at), to = connected(&at), fd = accepted(l);
    char byte = 'x';
    for (int i = 0; i < calls; i++) MUST(send(fd, &byte, 1, 0) == 1);
    struct sigaction action = {.sa_handler = comes, .sa_flags = restarts ? SA_RESTART : 0};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval soon = {.it_value = {.tv_usec = 100000}};
    MUST(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    pid_t child = -1;
    if (restarts) {
        child = fork();
        MUST(child >= 0);
        if (child == 0) {
            usleep(2000000);
            _exit(send(to, &byte, 1, 0) != 1);
        }
    }
    ssize_t got = recv(fd, &byte, 1, 0);
    say("after %d calls%s: %s", calls, restarts ? ", with SA_RESTART" : "", got < 0 ? strerror(errno) : "a byte");
    if (child > 0) MUST(waitpid(child, NULL, 0) == child);
    close(fd), close(to), close(l);
}

static void *watches(void *none) {
    sleep(15);
    say("WRONG: it waits on");
    _exit(3);
    return none;
}

int main(void) {
    int service = silent();
    pthread_t watcher;
    sigset_t alarms, before;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    /* (The signal is for the thread that waits.) */
    MUST(pthread_sigmask(SIG_BLOCK, &alarms, &before) == 0);
    MUST(pthread_create(&watcher, NULL, watches, NULL) == 0);
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    waits(3, 0);
    waits(3, 1);
    if (service >= 0) close(service);
    return 0;
}
