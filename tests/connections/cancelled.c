/* Threads that are cancelled while they wait for a connection: they end, their handlers run, and the connection goes on with every byte. */
#include "connection.h"

enum { ROUNDS = 60 };
static int fd_of_thread, way, cleaned;
static void cleans(void *unused) { (void)unused, __atomic_fetch_add(&cleaned, 1, __ATOMIC_SEQ_CST); }

static void *waits(void *unused) {
    static char much[200000];
    int fd = fd_of_thread;
    pthread_cleanup_push(cleans, NULL);
    char byte;
    if (way == 0) recv(fd, &byte, 1, 0);
    if (way == 1) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        for (;;) poll(&p, 1, -1);
    }
    if (way == 2) {
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        for (;;) epoll_wait(set, &event, 1, -1);
    }
    if (way == 3)
        for (;;) send(fd, much, sizeof much, MSG_NOSIGNAL);
    if (way == 4) {
        fd_set r;
        for (;;) {
            FD_ZERO(&r);
            FD_SET(fd, &r);
            select(fd + 1, &r, NULL, NULL, NULL);
        }
    }
    if (way == 5) {
        /* It does not want to be cancelled while it waits. */
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        MUST(poll(&p, 1, 10000) == 1);
        MUST(recv(fd, &byte, 1, 0) == 1 && byte == 'd');
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        recv(fd, &byte, 1, 0);
    }
    say("WRONG: it goes on");
    pthread_cleanup_pop(0);
    return unused;
}

/* Says "?" back for each "!"; "d": waits a little, and says it back; "x": takes all there is until the end. */
static void answers(int fd) {
    char byte;
    static char much[100000];
    while (recv(fd, &byte, 1, 0) == 1) {
        if (byte == '!') send_all(fd, "?", 1);
        if (byte == 'd') usleep(3000), send_all(fd, "d", 1);
        if (byte == 'x') {
            usleep(50000);
            while (recv(fd, much, sizeof much, 0) > 0) {}
            break;
        }
    }
    close(fd);
}
static void cancels(int fd) {
    const int ways[] = {0, 1, 2, 4, 5, 3};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        way = ways[w];
        int rounds = way == 3 ? 1 : ROUNDS;
        cleaned = 0;
        for (int round = 0; round < rounds; round++) {
            fd_of_thread = fd;
            if (way == 5) send_all(fd, "d", 1);
            if (way == 3) send_all(fd, "x", 1);
            pthread_t thread;
            MUST(pthread_create(&thread, NULL, waits, NULL) == 0);
            /* At all moments: before it sleeps, while it does. */
            if (way == 3) usleep(30000);
            else for (volatile int i = 0; i < round * 2000; i++) {}
            if (round % 5 == 0) usleep(2000);
            MUST(pthread_cancel(thread) == 0);
            void *end;
            MUST(pthread_join(thread, &end) == 0);
            if (end != PTHREAD_CANCELED) say("WRONG: it ended otherwise");
            if (way == 3) break;
            char byte;
            send_all(fd, "!", 1);
            receive_all(fd, &byte, 1);
            if (byte != '?') say("WRONG: the answer is %c", byte);
        }
        say("way %d: %d cleaned", way, cleaned);
    }
    close(fd);
}

int main(void) {
    alarm(60);
    run_pair("cancelled", answers, cancels);
    return 0;
}
