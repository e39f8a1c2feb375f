// A library whose lock its fork handlers take (with -DLIBRARY), and a program that holds the lock while its input and
// copies go on and another thread forks. The first to register handlers has the last word before fork: if that is the
// library, a profiler that waits in fork with its own lock held never gets on.
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY

pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
volatile int forking;

static void before(void) {
    forking = 1;
    pthread_mutex_lock(&library_lock);
}

static void after(void) {
    pthread_mutex_unlock(&library_lock);
}

// Other constructors may copy too, long before main.
static char here[1 << 16], there[1 << 16];

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(before, after, after);
    memcpy(there, here, sizeof there);
}

#else

extern pthread_mutex_t library_lock;
extern volatile int forking;
enum { SIZE = 64 << 10 };
static char buffer[SIZE], copy[SIZE];
static int input[2], output[2];

static int relay(void) {
    if (write(input[1], buffer, SIZE / 2) != SIZE / 2 || read(input[0], buffer, SIZE) != SIZE / 2)
        return 1;
    memcpy(copy, buffer, SIZE / 2);
    __asm__ volatile("" ::: "memory");
    return write(output[1], copy, SIZE / 2) != SIZE / 2 || read(output[0], copy, SIZE) != SIZE / 2;
}

static void *forker(void *result) {
    int status = 1, pid = fork();
    if (pid == 0)
        _exit(relay());
    if (pid > 0)
        waitpid(pid, &status, 0);
    *(int *)result = status;
    return NULL;
}

int main(void) {
    if (pipe(input) != 0 || pipe(output) != 0 || relay() != 0)
        return 1;
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        int result = 1;
        forking = 0;
        pthread_mutex_lock(&library_lock);
        if (pthread_create(&thread, NULL, forker, &result) != 0)
            return 2;
        while (!forking)
            usleep(100);
        usleep(1000);
        if (relay() != 0)
            return 3;
        pthread_mutex_unlock(&library_lock);
        pthread_join(thread, NULL);
        if (result != 0)
            return 4;
    }
    return 0;
}

#endif
