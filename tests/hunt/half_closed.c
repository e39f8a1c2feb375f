/* The peer has ended its stream and reads on. A set that asks for bytes, room and the end tells of each of them: by level again and again, by edge whenever it is asked anew. Whatever the program
 * does in between: it sends, it receives, it waits, it changes what it asks for. */
#include "../connections/connection.h"

enum { WAITS = 40, SOME = 10 };
static const unsigned ASKED = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
static const char *const STEPS[] = {"", "send", "ask", "send ask", "ask send", "receive ask", "receive send ask", "send wait ask", "send add", NULL};
static const char *steps;
static unsigned edge;

static void ends_its_stream(int fd) {
    static char bytes[1000];
    usleep(50000);
    MUST(shutdown(fd, SHUT_WR) == 0);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {}
}
/* True: what is so is to be told anew. */
static int takes_step(int set, int fd, const char *step) {
    struct epoll_event event = {.events = ASKED | edge};
    char bytes[10];
    if (!strcmp(step, "send")) MUST(send(fd, "abc", 3, MSG_NOSIGNAL) == 3);
    if (!strcmp(step, "receive")) MUST(recv(fd, bytes, sizeof bytes, 0) == 0);
    if (!strcmp(step, "wait")) MUST(epoll_wait(set, &event, 1, 0) >= 0);
    if (!strcmp(step, "ask")) MUST(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
    if (!strcmp(step, "add")) MUST(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return !strcmp(step, "ask") || !strcmp(step, "add");
}
static void waits(int fd) {
    int set = epoll_create1(0), anew = 0, told[3] = {0};
    struct epoll_event event = {.events = ASKED | edge};
    MUST(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    usleep(150000);
    unsigned first = 0;
    for (int i = 0; i < 3; i++) {
        int n = epoll_wait(set, &event, 1, 100);
        first |= n > 0 ? event.events : 0;
    }
    if ((first & ASKED) != ASKED) say("WRONG: %x was told at first", first);
    char words[40], *rest = words;
    snprintf(words, sizeof words, "%s", steps);
    for (char *step; (step = strsep(&rest, " ")) != NULL;) anew |= takes_step(set, fd, step);
    for (int i = 0; i < WAITS; i++) {
        int n = epoll_wait(set, &event, 1, 10);
        unsigned events = n > 0 ? event.events : 0;
        told[0] += !!(events & EPOLLIN), told[1] += !!(events & EPOLLOUT), told[2] += !!(events & EPOLLRDHUP);
    }
    int least = edge ? anew : SOME;
    for (int i = 0; i < 3; i++)
        if (told[i] < least) say("WRONG: %s was told %d times", (const char *[]){"bytes", "room", "the end"}[i], told[i]);
    close(set), close(fd);
}

int main(void) {
    alarm(100);
    for (int i = 0; i < 2; i++) {
        edge = i ? EPOLLET : 0;
        for (const char *const *at = STEPS; *at; at++) {
            char name[60];
            steps = *at;
            snprintf(name, sizeof name, "%s: %s", edge ? "by edge" : "by level", steps);
            run_pair(name, ends_its_stream, waits);
        }
    }
    return 0;
}
