/* A set in another set, or in poll: by level and by edge, inside and outside; what is there before, what is left, what was taken meanwhile.
 * Both ends are this process's, so that what each step finds is the same each time. */
#include "connection.h"

enum { CONNECTIONS = 3 };
static int far_end[CONNECTIONS], near_end[CONNECTIONS];

static void end_all(void) {
    for (int i = 0; i < CONNECTIONS; i++) close(far_end[i]), close(near_end[i]);
}

static int set, outer, by_poll;

/* The answer of the outer set, or of poll, on the inner one: whether it is ready. */
static int outside(int milliseconds) {
    if (by_poll) {
        struct pollfd p = {.fd = set, .events = POLLIN};
        return poll(&p, 1, milliseconds);
    }
    struct epoll_event event;
    int n = epoll_wait(outer, &event, 1, milliseconds);
    MUST(n != 1 || event.data.u64 == 7);
    return n;
}
/* Which connections the inner set names, at most so many: bit i is connection i. */
static int inside(int most) {
    struct epoll_event events[8];
    int n = epoll_wait(set, events, most, 0), which = 0;
    MUST(n >= 0);
    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 >= CONNECTIONS) say("WRONG: data %lu", (unsigned long)events[i].data.u64);
        else which |= 1 << events[i].data.u64;
    }
    return which;
}
static void sends(int i, size_t n) {
    char bytes[100];
    fill(bytes, n, 5, 0);
    send_all(far_end[i], bytes, n);
    if (!under_tcp()) usleep(1000);
}
static void takes(int i, size_t n) {
    char bytes[100];
    receive_all(near_end[i], bytes, n);
}
static void add(int i, int events) {
    struct epoll_event event = {.events = (unsigned)events, .data.u64 = (unsigned)i};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, near_end[i], &event) == 0);
}

static void nest(int modes) {
    struct epoll_event event = {.events = EPOLLIN | (unsigned)modes, .data.u64 = 7};
    MUST(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0);
}

static void steps(const char *name, int in, int out) {
    set = epoll_create1(0), outer = epoll_create1(0);
    int edge = out & EPOLLET;
    connect_within(CONNECTIONS, far_end, near_end);
    for (int i = 0; i < CONNECTIONS - 1; i++) add(i, EPOLLIN | in);
    sends(0, 10);
    if (!by_poll) nest(out);
    say("%s: there before: %d", name, outside(1000));
    say("  inside %d", inside(8));
    /* (By edge the outer set may say so once more.) */
    if (!edge) say("  then outside %d", outside(0));
    takes(0, 10);
    if (!edge) say("  taken: outside %d", outside(0));
    say("  inside %d", inside(8));
    for (int round = 0; round < 3; round++) {
        sends(1, 20);
        say("  round %d: outside %d", round, outside(1000));
        say("  inside %d", inside(8));
        takes(1, 5);
        if (!edge) say("  some is left: outside %d", outside(0));
        say("  inside %d", inside(8));
        takes(1, 15);
        if (!edge) say("  nothing is left: outside %d", outside(0));
        say("  inside %d", inside(8));
    }
    /* Two are ready, one place. */
    sends(0, 1), sends(1, 1);
    say("  two: outside %d", outside(1000));
    int first = inside(1);
    say("  inside %d", first == 1 || first == 2);
    if (!edge) say("  and outside %d", outside(0));
    int second = inside(1);
    say("  inside the other %d", first + second);
    takes(0, 1), takes(1, 1);
    inside(8);
    if (!edge) say("  taken: outside %d", outside(0));
    /* Added when there is something, and removed. */
    sends(2, 1);
    add(2, EPOLLIN | in);
    say("  added: outside %d", outside(1000));
    MUST(epoll_ctl(set, EPOLL_CTL_DEL, near_end[2], NULL) == 0);
    say("  removed: inside %d", inside(8));
    if (!edge) say("  outside %d", outside(0));
    takes(2, 1);
    close(set), close(outer);
    end_all();
}

/* Room: the inner set waits for it, and the outer one is asked. */
static void room(void) {
    static char much[1 << 20];
    set = epoll_create1(0), outer = epoll_create1(0);
    connect_within(CONNECTIONS, far_end, near_end);
    nonblocking(near_end[0], 1);
    add(0, EPOLLOUT);
    nest(0);
    say("room: outside %d, inside %d", outside(1000), inside(8));
    size_t sent = 0;
    for (ssize_t n; (n = send(near_end[0], much, sizeof much, MSG_NOSIGNAL)) > 0;) sent += (size_t)n;
    MUST(errno == EAGAIN);
    inside(8);
    say("  none: outside %d, inside %d", outside(0), inside(8));
    while (sent > 0) {
        ssize_t got = recv(far_end[0], much, sizeof much, 0);
        MUST(got > 0);
        sent -= (size_t)got;
    }
    say("  again: outside %d, inside %d", outside(1000), inside(8));
    close(set), close(outer);
    end_all();
}

/* A thread sleeps in the outer set. */
static void *sender(void *unused) {
    for (int i = 0; i < 500; i++) {
        char byte = (char)i;
        usleep(i % 7 == 0 ? 300 : 0);
        send_all(far_end[0], &byte, 1);
        receive_all(far_end[0], &byte, 1);
    }
    return unused;
}
static void sleeps(const char *name, int in, int out) {
    set = epoll_create1(0), outer = epoll_create1(0);
    connect_within(CONNECTIONS, far_end, near_end);
    add(0, EPOLLIN | in);
    nest(out);
    inside(8);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, sender, NULL) == 0);
    int got = 0;
    while (got < 500) {
        if (outside(10000) != 1) say("WRONG: %s: nobody woke the outer set", name);
        if (inside(8) == 0) continue;
        char byte;
        while (recv(near_end[0], &byte, 1, MSG_DONTWAIT) == 1) {
            MUST(byte == (char)got);
            got++;
            send_all(near_end[0], &byte, 1);
        }
    }
    MUST(pthread_join(thread, NULL) == 0);
    say("%s: %d", name, got);
    close(set), close(outer);
    end_all();
}

/* Room was the ring's, and is Linux' from the moment that sending leaves the ring: a set that somebody else waits for goes on telling of it. */
static void room_after_the_ring(void) {
    int far_end, near_end, set = epoll_create1(0);
    connect_within(1, &far_end, &near_end);
    struct epoll_event event = {.events = EPOLLOUT};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, near_end, &event) == 0);
    struct pollfd p = {.fd = set, .events = POLLIN};
    int polled = poll(&p, 1, 1000), before = epoll_wait(set, &event, 1, 0);
    MUST(send(near_end, "u", 1, MSG_OOB) == 1);
    int after = epoll_wait(set, &event, 1, 0);
    say("room after the ring: %d %d %d", polled, before, after);
    close(set), close(near_end), close(far_end);
}

int main(void) {
    room_after_the_ring();
    alarm(120);
    steps("level in level", 0, 0);
    steps("edge in level", EPOLLET, 0);
    steps("level in edge", 0, EPOLLET);
    steps("edge in edge", EPOLLET, EPOLLET);
    by_poll = 1;
    steps("level in poll", 0, 0);
    steps("edge in poll", EPOLLET, 0);
    by_poll = 0;
    room();
    sleeps("sleeps, level in level", 0, 0);
    sleeps("sleeps, edge in level", EPOLLET, 0);
    sleeps("sleeps, level in edge", 0, EPOLLET);
    sleeps("sleeps, edge in edge", EPOLLET, EPOLLET);
    if (under_tcp() && counter("tcp_receives") == 0) say("NOT BY RINGS");
    return 0;
}
