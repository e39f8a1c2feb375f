/* Chains signal handlers, as the JDK's libjsig does: once a runtime has installed its own, what
 * the program installs is kept for the runtime to call, and the kernel is not told. While it works
 * it holds a lock that it waits for if it is called again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

typedef int (*by_sigaction)(int, const struct sigaction *, struct sigaction *);
typedef void (*handler)(int);
typedef handler (*by_signal)(int, handler);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int installing;
static unsigned long of_runtime;
static struct sigaction kept[65];

static by_sigaction next_sigaction(void) {
    static by_sigaction found;
    if (!found) found = (by_sigaction)dlsym(RTLD_NEXT, "sigaction");
    return found;
}

/* The runtime installs its handlers between the two. */
void runtime_begins(void) { installing = 1; }
void runtime_ends(void) { installing = 0; }
const struct sigaction *runtime_chained(int signal) { return &kept[signal]; }

int sigaction(int signal, const struct sigaction *new, struct sigaction *old) {
    int result = 0;
    pthread_mutex_lock(&lock);
    if (of_runtime >> signal & 1) {
        if (old) *old = kept[signal];
        if (new) kept[signal] = *new;
    } else if (installing) {
        struct sigaction before;
        result = next_sigaction()(signal, new, &before);
        if (old) *old = before;
        if (new) kept[signal] = before, of_runtime |= 1ul << signal;
    } else {
        result = next_sigaction()(signal, new, old);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

handler signal(int signal, handler new) {
    handler before = SIG_ERR;
    pthread_mutex_lock(&lock);
    if (of_runtime >> signal & 1) {
        before = kept[signal].sa_handler;
        kept[signal] = (struct sigaction){.sa_handler = new};
    } else {
        by_signal next = (by_signal)dlsym(RTLD_NEXT, "signal");
        before = next(signal, new);
    }
    pthread_mutex_unlock(&lock);
    return before;
}
