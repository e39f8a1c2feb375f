/* A program sends a few bytes and closes at once, with bytes unread (Linux resets the connection) or without (it ends). However the other side looks, it receives these bytes first: a TLS alert,
 * an answer to a request that was not read to its end. */
#include "../connections/connection.h"

enum { TIMES = 30, WARM = 8 };
static const char WORDS[] = "alert!";
static const char *const HOW[] = {"sleep", "poll", "select", "epoll", "block", "spin"};

static void says_its_last_words(const struct sockaddr_in *at, int unread) {
    for (int i = 0; i < TIMES; i++) {
        int fd = connected(at);
        char byte;
        for (int k = 0; k < WARM; k++) send_all(fd, "x", 1), receive_all(fd, &byte, 1);
        send_all(fd, "g", 1);
        if (unread) receive_all(fd, &byte, 1);
        usleep(2000);
        send_all(fd, WORDS, sizeof WORDS);
        close(fd);
    }
}
static void looks(int fd, const char *how) {
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    if (!strcmp(how, "sleep")) usleep(6000);
    if (!strcmp(how, "poll")) MUST(poll(&asked, 1, 5000) == 1);
    if (!strcmp(how, "select")) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        struct timeval patience = {.tv_sec = 5};
        MUST(select(fd + 1, &set, NULL, NULL, &patience) == 1);
    }
    if (!strcmp(how, "epoll")) {
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(set, &event, 1, 5000) == 1);
        close(set);
    }
}
static void hears_them(int l, const char *how, int unread) {
    int heard = 0, ended = 0;
    char bytes[100] = {0};
    for (int i = 0; i < TIMES; i++) {
        int fd = accepted(l);
        ssize_t got;
        for (int k = 0; k < WARM; k++) receive_all(fd, bytes, 1), send_all(fd, "y", 1);
        receive_all(fd, bytes, 1);
        if (unread) send_all(fd, bytes, (size_t)(1 + unread));
        looks(fd, how);
        int flags = strcmp(how, "spin") ? 0 : MSG_DONTWAIT;
        do got = recv(fd, bytes, sizeof bytes, flags);
        while (got < 0 && errno == EAGAIN);
        heard += got == sizeof WORDS && !memcmp(bytes, WORDS, sizeof WORDS);
        do got = recv(fd, bytes, sizeof bytes, flags);
        while (got < 0 && errno == EAGAIN);
        ended += unread ? got < 0 && errno == ECONNRESET : got == 0;
        close(fd);
    }
    say("%s, %d unread: %d of %d last words, then %d ends", how, unread, heard, TIMES, ended);
    if (heard < TIMES || ended < TIMES) say("WRONG");
}

int main(void) {
    alarm(100);
    for (size_t i = 0; i < sizeof HOW / sizeof *HOW; i++)
        for (int unread = 0; unread <= 5; unread += 5) {
            struct sockaddr_in at;
            int l = listener(&at);
            other = fork();
            MUST(other >= 0);
            if (other == 0) {
                close(l);
                says_its_last_words(&at, unread);
                _exit(0);
            }
            hears_them(l, HOW[i], unread);
            other_ends();
            close(l);
        }
    return 0;
}
