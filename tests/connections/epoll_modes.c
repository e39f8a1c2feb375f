/* Echo servers over epoll: by level, by edge, one shot; several connections and an eventfd in one set; sets in sets. */
#include "connection.h"
#include <sys/resource.h>

enum { CONNECTIONS = 8, ROUNDS = 300, MOST = 3000 };
static int modes;

static void echo(int fd) {
    static char bytes[MOST];
    for (;;) {
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got <= 0) {
            if (got == 0) close(fd);
            else MUST(errno == EAGAIN);
            return;
        }
        send_all(fd, bytes, (size_t)got);
        if (!(modes & EPOLLET)) return;
    }
}

static void serve(int l, int nested) {
    int set = epoll_create1(0), outer = epoll_create1(0), bell = eventfd(0, EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1000};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, bell, &event) == 0);
    event.data.u64 = 2000;
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, l, &event) == 0);
    event.data.u64 = 7;
    MUST(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0);
    int open = 0, rings = 0, seen = 0;
    while (!seen || open > 0) {
        if (nested) {
            struct epoll_event of_outer;
            int n = epoll_wait(outer, &of_outer, 1, 10000);
            if (n != 1) say("WRONG: the outer set says %d", n);
            MUST(n != 1 || of_outer.data.u64 == 7);
        }
        struct epoll_event events[16];
        int n = epoll_wait(set, events, 16, nested ? 0 : 10000);
        if (n == 0 && !nested) say("WRONG: nothing for ten seconds");
        MUST(n >= 0);
        for (int i = 0; i < n; i++) {
            uint64_t data = events[i].data.u64;
            if (data == 1000) {
                uint64_t count;
                MUST(read(bell, &count, 8) == 8);
                rings += (int)count;
            } else if (data == 2000) {
                int fd = accept4(l, NULL, NULL, SOCK_NONBLOCK);
                MUST(fd >= 0);
                event.events = EPOLLIN | (unsigned)modes, event.data.u64 = (uint64_t)fd;
                MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
                open++, seen++;
            } else {
                int fd = (int)data;
                MUST(events[i].events & EPOLLIN);
                echo(fd);
                if (fcntl(fd, F_GETFD) == -1) {
                    open--;
                    continue;
                }
                if (modes & EPOLLONESHOT) {
                    event.events = EPOLLIN | (unsigned)modes, event.data.u64 = data;
                    MUST(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
                }
                uint64_t one = 1;
                MUST(write(bell, &one, 8) == 8);
            }
        }
    }
    if (rings == 0) say("WRONG: the eventfd was never ready");
    if (under_tcp() && counter("tcp_receives") == 0) say("NOT BY RINGS");
    _exit(0);
}

static void clients(const struct sockaddr_in *at) {
    static char out[MOST], in[MOST];
    int fds[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) fds[i] = connected(at);
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = (size_t)(round * 37) % MOST + 1;
        for (int i = 0; i < CONNECTIONS; i++) {
            fill(out, n, (unsigned)(round + i), 0);
            send_all(fds[i], out, n);
        }
        for (int i = 0; i < CONNECTIONS; i++) {
            receive_all(fds[i], in, n);
            MUST(is(in, n, (unsigned)(round + i), 0));
        }
        if (round % 100 == 50) usleep(20000);
    }
    for (int i = 0; i < CONNECTIONS; i++) close(fds[i]);
}

/* A writer that fills the ring again and again and waits for room, by edge or by level, to a reader that is slow at times. */
static char much[3 << 20];
static void reads_slowly(int fd) {
    static char bytes[100000];
    size_t got = 0;
    while (got < sizeof much) {
        ssize_t more = recv(fd, bytes, sizeof bytes, 0);
        MUST(more > 0 && is(bytes, (size_t)more, 3, got));
        if (got / 500000 != (got + (size_t)more) / 500000) usleep(10000);
        got += (size_t)more;
    }
    MUST(send(fd, "done", 4, 0) == 4);
    close(fd);
}
static void writes_much(int fd) {
    int set = epoll_create1(0), waited = 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | (unsigned)modes};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    nonblocking(fd, 1);
    fill(much, sizeof much, 3, 0);
    size_t sent = 0;
    while (sent < sizeof much) {
        ssize_t more = write(fd, much + sent, sizeof much - sent);
        if (more > 0) sent += (size_t)more;
        else MUST(errno == EAGAIN);
        if (more <= 0) {
            do MUST(epoll_wait(set, &event, 1, 10000) == 1);
            while (!(event.events & EPOLLOUT));
            waited = 1;
        }
    }
    char answer[4];
    receive_all(fd, answer, 4);
    if (under_tcp() && !waited) say("WRONG: there was always room");
    close(set), close(fd);
}

/* Nobody reads until it is told to; then how much it was is answered. */
static int told[2];
static void reads_in_the_end(int fd) {
    static char bytes[100000];
    uint64_t count = 0;
    ssize_t got;
    char go;
    MUST(read(told[0], &go, 1) == 1);
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) count += (uint64_t)got;
    send_all(fd, (char *)&count, sizeof count);
    close(fd);
}
static long processor(void) {
    struct rusage used;
    MUST(getrusage(RUSAGE_THREAD, &used) == 0);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}
static void a_writer_that_is_exclusive_sleeps(int fd) {
    int set = epoll_create1(0), n;
    struct epoll_event event = {.events = EPOLLOUT | EPOLLEXCLUSIVE};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    nonblocking(fd, 1);
    uint64_t sent = 0, count = 0;
    do {
        ssize_t more;
        while ((more = write(fd, much, sizeof much)) > 0) sent += (uint64_t)more;
        MUST(errno == EAGAIN);
        n = epoll_wait(set, &event, 1, 200);
    } while (n == 1);
    long used = processor();
    n = epoll_wait(set, &event, 1, 1000);
    used = processor() - used;
    say("while nobody reads: %d", n);
    if (used > 300000) say("WRONG: it took %ld us of the processor", used);
    MUST(write(told[1], "g", 1) == 1);
    n = epoll_wait(set, &event, 1, 10000);
    say("once somebody does: %d, room %d", n, n == 1 && event.events & EPOLLOUT ? 1 : 0);
    nonblocking(fd, 0);
    MUST(shutdown(fd, SHUT_WR) == 0);
    receive_all(fd, (char *)&count, sizeof count);
    if (count != sent) say("WRONG: %lu of %lu bytes have come", (unsigned long)count, (unsigned long)sent);
    close(set), close(fd);
}

int main(void) {
    const struct { const char *name; int modes, nested; } all[] = {
        {"level", 0, 0}, {"edge", EPOLLET, 0}, {"one shot", EPOLLONESHOT, 0}, {"one shot by edge", EPOLLONESHOT | EPOLLET, 0},
        {"level in another set", 0, 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sockaddr_in at;
        int l = listener(&at);
        modes = all[i].modes;
        other = fork();
        MUST(other >= 0);
        if (other == 0) {
            alarm(60);
            serve(l, all[i].nested);
        }
        close(l);
        clients(&at);
        other_ends();
        say("%s: done", all[i].name);
    }
    modes = EPOLLET;
    run_pair("a writer by edge", reads_slowly, writes_much);
    modes = 0;
    run_pair("a writer by level", reads_slowly, writes_much);
    MUST(pipe(told) == 0);
    run_pair("a writer that is exclusive", reads_in_the_end, a_writer_that_is_exclusive_sleeps);
    return 0;
}
