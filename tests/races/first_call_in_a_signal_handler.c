#include "input.h"
#include <dlfcn.h>
/* pwrite may be called by a signal handler, whatever was interrupted. Here the dynamic linker was, with its lock half taken: what
   we looked up only now would wait for it. A child for every try, since each has only one first call. */
static volatile int called;
static int file;
static void handler(int sig) {
    (void)sig;
    if (pwrite(file, "x", 1, 0) != 1) _exit(2);
    called = 1;
}
int main(void) {
    file = memfd_create("output", 0);
    signal(SIGALRM, handler);
    int bad = 0;
    for (int i = 0; i < 600 && !bad; i++) {
        pid_t child = fork();
        if (!child) {
            struct itimerval once = {{0, 0}, {0, 100 + i}};
            setitimer(ITIMER_REAL, &once, 0);
            while (!called) dlsym(RTLD_DEFAULT, "memfd_create");
            _exit(0);
        }
        int status, waited = 0;
        while (!waitpid(child, &status, WNOHANG) && waited++ < 5000) usleep(1000);
        if (waited > 5000) kill(child, SIGKILL), waitpid(child, &status, 0);
        bad += status != 0;
    }
    printf("bad=%d\n", bad);
    return 0;
}
