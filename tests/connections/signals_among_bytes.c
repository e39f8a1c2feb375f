/* A signal that comes while a call is awake for a moment, because of a byte that another thread takes, and is about to sleep again: it ends the call. (With
 * Linux the call sleeps all the time.) Two threads wait over one end; each round brings a byte for one of them, and a signal for both a moment later. */
#include "connection.h"
#include <sys/syscall.h>

enum { ROUNDS = 4000, RECV = 0, POLL, SELECT, SET, WAYS };
static int far_end, near_end, set, numbers[2];
static volatile int handled, is_in_call[2], way;
static int go, done[2];
static _Thread_local int nested;

/* Makes a call of its own, too: the one that it interrupts ends all the same. */
static void comes(int signal) {
    char byte;
    int before = errno;
    handled = signal;
    if (nested) MUST(recv(nested, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    errno = before;
}

static int waits(int by) {
    char byte;
    struct pollfd p = {near_end, POLLIN, 0};
    struct epoll_event event;
    fd_set read;
    FD_ZERO(&read);
    FD_SET(near_end, &read);
    switch (by) {
    case RECV: return (int)recv(near_end, &byte, 1, 0);
    case POLL: return poll(&p, 1, -1);
    case SELECT: return select(near_end + 1, &read, NULL, NULL, NULL);
    default: return epoll_wait(set, &event, 1, -1);
    }
}
static void *waiter(void *which) {
    int own = (int)(intptr_t)which;
    __atomic_store_n(&numbers[own], (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    for (int round = 1; round <= ROUNDS; round++) {
        while (__atomic_load_n(&go, __ATOMIC_SEQ_CST) < round) usleep(20);
        nested = own && round % 2 ? far_end : 0;
        is_in_call[own] = 1;
        int n = waits(own ? way : RECV);
        is_in_call[own] = 0;
        if (n != 1 && errno != EINTR) say("WRONG: %d %s", n, strerror(errno));
        __atomic_store_n(&done[own], round, __ATOMIC_SEQ_CST);
    }
    return NULL;
}
/* In its call, and there in a system call that is no futex (in which the library waits for others of its threads). */
static int sleeps(int which) {
    char name[64], text[256];
    snprintf(name, sizeof name, "/proc/self/task/%d/syscall", numbers[which]);
    int fd = open(name, O_RDONLY);
    MUST(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return is_in_call[which] && n > 0 && text[0] >= '0' && text[0] <= '9' && strncmp(text, "202 ", 4) != 0;
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
    struct sigaction action = {.sa_handler = comes};
    sigaction(SIGUSR1, &action, NULL);
    alarm(100);
    connect_within(1, &far_end, &near_end);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, near_end, &event) == 0);
    pthread_t threads[2];
    for (intptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, waiter, (void *)i);
    while (!__atomic_load_n(&numbers[0], __ATOMIC_SEQ_CST) || !__atomic_load_n(&numbers[1], __ATOMIC_SEQ_CST)) usleep(100);
    for (int round = 1; round <= ROUNDS; round++) {
        way = round % WAYS;
        __atomic_store_n(&go, round, __ATOMIC_SEQ_CST);
        for (int i = 0; i < 2; i++)
            while (!sleeps(i)) usleep(10);
        MUST(send(far_end, "b", 1, 0) == 1);
        double begun = now(), until = begun + (round * 7 % 400) * 1e-7;
        while (now() < until) {}
        for (int i = 0; i < 2; i++) pthread_kill(threads[i], SIGUSR1);
        for (int i = 0; i < 2; i++)
            while (__atomic_load_n(&done[i], __ATOMIC_SEQ_CST) < round) {
                if (now() - begun > 5) {
                    say("WRONG: way %d of thread %d waits on, round %d", i ? way : RECV, i, round);
                    return 1;
                }
                usleep(20);
            }
        char byte;
        while (recv(near_end, &byte, 1, MSG_DONTWAIT) == 1) {}
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    say("handled: %d", handled == SIGUSR1);
    say("by rings: %d", !under_tcp() || counter("tcp_receives") > 0);
    return 0;
}
