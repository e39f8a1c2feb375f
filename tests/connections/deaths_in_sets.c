/* A peer that is killed with bytes unread: sets tell of it, whatever they ask for, by level, by edge and once. One that is killed having read all ends its stream. */
#include "connection.h"

static const struct { const char *name; unsigned events; } asks[] = {
    {"nothing", 0}, {"bytes", EPOLLIN}, {"room", EPOLLOUT}, {"both", EPOLLIN | EPOLLOUT}, {"urgent data", EPOLLPRI}, {"the end", EPOLLRDHUP},
};
static const struct { const char *name; unsigned events; } ways[] = {{"by level", 0}, {"by edge", EPOLLET}, {"once", EPOLLONESHOT}};
static unsigned events;
static int all;

static void is_killed(int fd) {
    char bytes[1000];
    receive_all(fd, bytes, all ? sizeof bytes : 1);
    send_all(fd, "!", 1);
    for (;;) pause();
}

static void hears(int fd) {
    char bytes[1000], byte;
    fill(bytes, sizeof bytes, 1, 0);
    send_all(fd, bytes, sizeof bytes);
    receive_all(fd, &byte, 1);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = events}, told;
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    /* Room is told of. */
    int n = epoll_wait(set, &told, 1, 20);
    if (n != !!(events & EPOLLOUT)) say("WRONG: %x is told of %d times", events, n);
    if (n == 1 && events & EPOLLONESHOT) MUST(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
    MUST(kill(other, SIGTERM) == 0);
    unsigned what = 0, wanted = all ? 0 : EPOLLHUP | EPOLLERR;
    for (int i = 0; i < 1000 && (all ? i < 10 : (what & wanted) != wanted); i++) {
        n = epoll_wait(set, &told, 1, all ? 5 : 100);
        if (n > 0) {
            what |= told.events;
            usleep(2000);
            if (events & EPOLLONESHOT) MUST(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
        }
    }
    say("  %s%s%s%s", what & EPOLLIN ? "I" : "", what & EPOLLRDHUP ? "R" : "", what & EPOLLHUP ? "H" : "", what & EPOLLERR ? "E" : "");
    if (!all) {
        ssize_t sent = send(fd, "x", 1, MSG_NOSIGNAL);
        if (sent == 1) say("WRONG: bytes are taken for a peer that is dead");
    }
    close(set), close(fd);
}

int main(void) {
    char name[100];
    alarm(100);
    for (all = 0; all < 2; all++)
        for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
            for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
                events = asks[i].events | ways[k].events;
                snprintf(name, sizeof name, "%s, %s, %s", all ? "all read" : "unread", asks[i].name, ways[k].name);
                run_pair(name, is_killed, hears);
            }
    return 0;
}
