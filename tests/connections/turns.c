/* Ready descriptors take turns: connections at rings, connections of Linux' and everything else in one set. One that becomes ready is told of within one
 * round, however many others stay ready and however few events a call has room for; and by level all connections that stay ready are told of equally often. */
#include "connection.h"
#include <sys/signalfd.h>
#include <sys/timerfd.h>

enum { CONNECTIONS = 20, LINUX = 5, OTHER = 100, MOST = 64 };
static int far_end[CONNECTIONS], near_end[CONNECTIONS];

static void add(int set, int fd, unsigned events, unsigned data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* How many calls until `data` is told of. */
static int calls_until(int set, int room, unsigned data) {
    struct epoll_event events[MOST];
    for (int calls = 1; calls <= 100000; calls++) {
        int n = epoll_wait(set, events, room, 1000);
        MUST(n > 0);
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 == data) return calls;
    }
    return 0;
}

/* All connections stay ready, for bytes or for room, and so do some that are Linux'; then something else becomes ready. */
static void stay_ready(const char *name, unsigned asked, int room) {
    int set = epoll_create1(0), pairs[LINUX][2], pipes[2];
    MUST(pipe(pipes) == 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        if (asked & EPOLLIN) send_all(far_end[i], "unread", 6);
        add(set, near_end[i], asked, (unsigned)i);
    }
    for (int i = 0; i < LINUX; i++) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) == 0 && write(pairs[i][1], "x", 1) == 1);
        add(set, pairs[i][0], EPOLLIN, (unsigned)(CONNECTIONS + i));
    }
    add(set, pipes[0], EPOLLIN, OTHER);
    struct sockaddr_in at;
    int l = listener(&at);
    add(set, l, EPOLLIN, OTHER + 1);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    add(set, timer, EPOLLIN, OTHER + 2);
    sigset_t mask;
    sigemptyset(&mask), sigaddset(&mask, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
    int signals = signalfd(-1, &mask, 0);
    add(set, signals, EPOLLIN, OTHER + 3);

    enum { READY = CONNECTIONS + LINUX };
    struct epoll_event events[MOST];
    int told[READY] = {0};
    for (int i = 0; i < 100 * READY; i++) {
        int n = epoll_wait(set, events, room, 1000);
        MUST(n > 0);
        for (int k = 0; k < n; k++) {
            MUST(events[k].data.u64 < READY);
            told[events[k].data.u64]++;
            for (int j = 0; j < k; j++)
                if (events[j].data.u64 == events[k].data.u64) say("WRONG: %s, room for %d: one is told of twice in one call", name, room);
        }
    }
    int least = told[0], most = told[0], least_of_linux = told[CONNECTIONS];
    for (int i = 1; i < READY; i++) {
        if (i < CONNECTIONS && told[i] < least) least = told[i];
        if (i < CONNECTIONS && told[i] > most) most = told[i];
        if (i >= CONNECTIONS && told[i] < least_of_linux) least_of_linux = told[i];
    }
    if (most - least > 2 || least - least_of_linux > 2)
        say("WRONG: %s, room for %d: one is told of %d times, another %d times, others %d times", name, room, least, most, least_of_linux);

    int round = READY / room + 2;
    struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
    for (int which = 0; which < 4; which++) {
        int client = -1;
        switch (which) {
        case 0: MUST(write(pipes[1], "!", 1) == 1); break;
        case 1: client = connected(&at); break;
        case 2:
            MUST(timerfd_settime(timer, 0, &soon, NULL) == 0);
            usleep(2000);
            break;
        case 3: MUST(raise(SIGUSR1) == 0); break;
        }
        int calls = calls_until(set, room, OTHER + (unsigned)which);
        if (calls == 0 || calls > round) say("WRONG: %s, room for %d: %d is told of after %d calls", name, room, which, calls);
        char buffer[256];
        if (which == 1) close(accepted(l)), close(client);
        else MUST(read(which == 0 ? pipes[0] : which == 2 ? timer : signals, buffer, sizeof buffer) > 0);
    }
    /* A connection whose bytes come now is told of within a round too. */
    char bytes[6];
    if (asked & EPOLLIN) {
        for (int i = 0; i < CONNECTIONS; i += 7) {
            receive_all(near_end[i], bytes, 6);
            for (int k = 0; k < 3; k++) MUST(epoll_wait(set, events, room, 1000) > 0);
            send_all(far_end[i], "unread", 6);
            int calls = calls_until(set, room, (unsigned)i);
            if (calls == 0 || calls > round) say("WRONG: %s, room for %d: a connection is told of after %d calls", name, room, calls);
        }
        for (int i = 0; i < CONNECTIONS; i++) receive_all(near_end[i], bytes, 6);
    }
    close(set), close(l), close(timer), close(signals), close(pipes[0]), close(pipes[1]);
    for (int i = 0; i < LINUX; i++) close(pairs[i][0]), close(pairs[i][1]);
    say("%s, room for %d: done", name, room);
}

/* One connection brings one thing after another, each of which is taken. */
static volatile int stop;
static void *floods(void *unused) {
    char bytes[64];
    fill(bytes, sizeof bytes, 1, 0);
    while (!stop) {
        send_all(far_end[0], bytes, sizeof bytes);
        receive_all(far_end[0], bytes, 1);
    }
    return unused;
}
static void comes_again_and_again(int room) {
    int set = epoll_create1(0), pipes[2];
    MUST(pipe(pipes) == 0);
    add(set, near_end[0], EPOLLIN, 0);
    add(set, pipes[0], EPOLLIN, OTHER);
    pthread_t thread;
    stop = 0;
    MUST(pthread_create(&thread, NULL, floods, NULL) == 0);
    struct epoll_event events[MOST];
    int worst = 0;
    for (int round = 0; round < 20; round++) {
        int told = 0, calls = 0;
        MUST(write(pipes[1], "!", 1) == 1);
        for (; !told && calls < 20000; calls++) {
            int n = epoll_wait(set, events, room, 1000);
            MUST(n > 0);
            for (int i = 0; i < n; i++) {
                char bytes[64];
                if (events[i].data.u64 == OTHER) told = 1;
                else if (recv(near_end[0], bytes, sizeof bytes, MSG_DONTWAIT) == sizeof bytes) send_all(near_end[0], bytes, 1);
            }
        }
        if (calls > worst) worst = calls;
        char byte;
        MUST(read(pipes[0], &byte, 1) == 1);
    }
    /* (The kernel is asked by time: so how many calls that is depends on the machine.) */
    if (worst > 5000) say("WRONG: room for %d: a pipe is told of after %d calls", room, worst);
    stop = 1;
    char bytes[64];
    while (recv(near_end[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) send_all(near_end[0], bytes, 1);
    for (struct timespec until; clock_gettime(CLOCK_REALTIME, &until), until.tv_nsec = (until.tv_nsec + 1000000) % 1000000000, pthread_timedjoin_np(thread, NULL, &until) != 0;)
        if (recv(near_end[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) send_all(near_end[0], bytes, 1);
    close(set), close(pipes[0]), close(pipes[1]);
    say("one thing after another, room for %d: done", room);
}

/* Room for one event ends a round before one that has nothing. The next wait is over that one, and the first again. */
static void rest_of_a_round(void) {
    int set = epoll_create1(0);
    add(set, near_end[0], EPOLLOUT, 0);
    add(set, near_end[1], 0, 1);
    struct epoll_event events[2];
    for (int i = 0; i < 20; i++) {
        int n = epoll_wait(set, events, 1 + i % 2, 0);
        if (n != 1 || events[0].data.u64 != 0) say("WRONG: wait %d says %d", i, n);
    }
    close(set);
    say("the rest of a round: done");
}

/* Sending goes by Linux, then by the ring again, while a set is asked for room: each wait tells of it. */
static void room_that_becomes_the_rings(void) {
    int far, near, set = epoll_create1(0), said[4];
    char byte;
    connect_within(1, &far, &near);
    MUST(send(near, "u", 1, MSG_OOB) == 1);
    /* (Until it is acknowledged.) */
    usleep(100000);
    MUST(recv(far, &byte, 1, MSG_OOB) == 1);
    MUST(recv(far, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    add(set, near, EPOLLOUT, 0);
    struct epoll_event event;
    struct pollfd p = {.fd = set, .events = POLLIN};
    said[0] = poll(&p, 1, 0);
    send_all(near, "x", 1);
    for (int i = 1; i < 4; i++) said[i] = epoll_wait(set, &event, 1, 0);
    receive_all(far, &byte, 1);
    say("room that becomes the ring's: %d %d %d %d", said[0], said[1], said[2], said[3]);
    close(set), close(near), close(far);
}

int main(void) {
    alarm(100);
    room_that_becomes_the_rings();
    connect_within(CONNECTIONS, far_end, near_end);
    rest_of_a_round();
    for (int room = 1; room <= 64; room *= 4) stay_ready("bytes", EPOLLIN, room);
    for (int room = 1; room <= 64; room *= 4) stay_ready("room", EPOLLOUT, room);
    for (int room = 1; room <= 64; room *= 4) stay_ready("both", EPOLLIN | EPOLLOUT, room);
    for (int room = 1; room <= 64; room *= 8) comes_again_and_again(room);
    if (under_tcp() && counter("tcp_receives") == 0) say("NOT BY RINGS");
    return 0;
}
