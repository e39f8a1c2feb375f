#include "input.h"
/* The first copy that is elided makes a thread. Here a signal handler makes it, while the interrupted code is inside malloc
   or pthread_create: a child for every try, since each has only one first copy. */
static char in[65536] __attribute__((aligned(4096))), copy[65536] __attribute__((aligned(4096)));
static int file;
static volatile int copied;
static void handler(int sig) {
    (void)sig;
    if (pread(file, in, sizeof in, 0) != sizeof in) _exit(2);
    memcpy(copy, in, sizeof in);
    copied = 1;
}
static void *nothing(void *p) { return p; }
int main(void) {
    file = memfd_create("input", 0);
    ftruncate(file, sizeof in);
    signal(SIGALRM, handler);
    int bad = 0;
    for (int i = 0; i < 150 && !bad; i++) {
        pid_t child = fork();
        if (!child) {
            signal(SIGVTALRM, SIG_DFL);
            struct itimerval once = {{0, 0}, {0, 200 + i * 7}};
            setitimer(ITIMER_REAL, &once, 0);
            void *block[64] = {0};
            for (unsigned n = 0; !copied || n < 200; n++) {
                free(block[n % 64]);
                block[n % 64] = malloc(n % 97 * 50);
                pthread_t t;
                if (n % 3 == 0 && !pthread_create(&t, 0, nothing, 0)) pthread_join(t, 0);
            }
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
