/* Programs that may have few descriptors, from the beginning or from some moment on: they have as
 * many as plainly, and connections go on whoever waits over them. */
#include "connection.h"
#include <sys/resource.h>

enum { MOST = 30 };

static int free_numbers(void) {
    static int all[20000];
    int n = 0;
    while (n < 20000 && (all[n] = open("/dev/null", O_RDONLY)) >= 0) n++;
    for (int i = 0; i < n; i++) close(all[i]);
    return n;
}
static void limited_to(unsigned long most) {
    struct rlimit limit = {most, most};
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}
static void talks(int fd, int other) {
    for (int i = 0; i < 300; i++) {
        char byte = (char)i, back = 0;
        send_all(fd, &byte, 1);
        receive_all(other, &back, 1);
        if (back != byte) say("WRONG byte");
    }
}

/* Sends back what comes, on `n` connections, until all have ended. */
static void echoes(int l, int n) {
    struct pollfd fds[MOST];
    char bytes[1000];
    int open_ = n;
    for (int i = 0; i < n; i++) fds[i] = (struct pollfd){.fd = accepted(l), .events = POLLIN};
    while (open_ > 0) {
        MUST(poll(fds, (nfds_t)n, -1) > 0);
        for (int i = 0; i < n; i++) {
            if (!fds[i].revents) continue;
            ssize_t got = recv(fds[i].fd, bytes, sizeof bytes, 0);
            if (got > 0) {
                send_all(fds[i].fd, bytes, (size_t)got);
            } else {
                close(fds[i].fd);
                fds[i].fd = -1, open_--;
            }
        }
    }
}
static struct sockaddr_in at;
static void other_side(int n) {
    int l = listener(&at);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        echoes(l, n);
        _exit(0);
    }
    close(l);
}

static void *talks_by(void *fd) {
    char byte = 't';
    for (int i = 0; i < 20; i++) {
        send_all((int)(intptr_t)fd, &byte, 1);
        receive_all((int)(intptr_t)fd, &byte, 1);
    }
    return NULL;
}
/* All wait at the same time, each for its own bytes. */
static void threads_talk(const int *fds, int n) {
    pthread_t threads[MOST];
    for (int i = 0; i < n; i++) MUST(pthread_create(&threads[i], NULL, talks_by, (void *)(intptr_t)fds[i]) == 0);
    for (int i = 0; i < n; i++) MUST(pthread_join(threads[i], NULL) == 0);
}
static void polls(int fd, const int *others, int n) {
    struct pollfd all[MOST];
    for (int i = 0; i < n; i++) all[i] = (struct pollfd){.fd = others[i], .events = POLLIN};
    for (int i = 0; i < 20; i++) {
        char byte = 'p';
        send_all(fd, &byte, 1);
        MUST(poll(all, (nfds_t)n, 10000) == 1);
        receive_all(fd, &byte, 1);
    }
}

/* Each number is the program's. */
static void has_all_numbers(const char *name) {
    if (!is_wanted(name)) return;
    int at_first = free_numbers();
    other_side(1);
    int fd = connected(&at), set = epoll_create1(0), second;
    talks(fd, fd);
    say("with a connection and a set: %d", free_numbers() - at_first);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    send_all(fd, "e", 1);
    MUST(epoll_wait(set, &event, 1, 5000) == 1);
    receive_all(fd, (char[1]){0}, 1);
    say("with the one in the other: %d", free_numbers() - at_first);
    second = dup(fd);
    talks(fd, second);
    talks(second, fd);
    say("with a second number: %d", free_numbers() - at_first);
    polls(fd, &second, 1);
    close(fd), close(second), close(set);
    other_ends();
    say("at the end: %d", free_numbers() - at_first);
    int all[MOST];
    other_side(MOST);
    for (int i = 0; i < MOST; i++) all[i] = connected(&at);
    for (int i = 0; i < MOST; i++) talks(all[i], all[i]);
    threads_talk(all, MOST);
    polls(all[0], all, MOST);
    say("with many: %d", free_numbers() - at_first);
    for (int i = 0; i < MOST; i++) close(all[i]);
    other_ends();
    say("%s: done", name);
}

/* Most numbers are the program's, however many threads wait at once. */
static void has_most_numbers(const char *name) {
    if (!is_wanted(name)) return;
    int at_first = free_numbers(), all[MOST];
    other_side(MOST);
    for (int i = 0; i < MOST; i++) all[i] = connected(&at);
    for (int i = 0; i < MOST; i++) talks(all[i], all[i]);
    for (int i = 0; i < 10; i++) threads_talk(all, MOST);
    say("an eighth at most is gone: %d", free_numbers() >= at_first - MOST - 256 / 8);
    polls(all[0], all, MOST);
    for (int i = 0; i < MOST; i++) close(all[i]);
    other_ends();
    say("%s: done", name);
}

/* Messages that may lie in blocks, which their peers map: each is sent back as it came. */
enum { LARGE = 600000, TIMES = 20 };
static void echoes_large(int l, int n) {
    static char bytes[LARGE];
    int fds[MOST];
    for (int i = 0; i < n; i++) fds[i] = accepted(l);
    for (int open_ = n; open_ > 0;) {
        for (int i = 0; i < n; i++) {
            ssize_t first;
            if (fds[i] < 0) continue;
            MUST((first = recv(fds[i], bytes, LARGE, 0)) >= 0);
            if (first > 0) {
                receive_all(fds[i], bytes + first, LARGE - (size_t)first);
                send_all(fds[i], bytes, LARGE);
            } else {
                close(fds[i]);
                fds[i] = -1, open_--;
            }
        }
    }
}
static void talk_large(const int *fds, int n, unsigned seed) {
    static char out[LARGE], in[LARGE];
    for (unsigned round = 0; round < TIMES; round++) {
        for (int i = 0; i < n; i++) {
            fill(out, LARGE, seed + round + (unsigned)i, 0);
            send_all(fds[i], out, LARGE);
            receive_all(fds[i], in, LARGE);
            MUST(is(in, LARGE, seed + round + (unsigned)i, 0));
        }
    }
}
static void large(unsigned long most) {
    struct sockaddr_in there;
    int n = most < 24 ? 2 : 6, fds[MOST], at_first = free_numbers();
    int l = listener(&there);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        echoes_large(l, n);
        _exit(0);
    }
    close(l);
    for (int i = 0; i < n; i++) fds[i] = connected(&there);
    talk_large(fds, n, 1);
    int left = free_numbers();
    if (most < 128) say("large messages, %lu: %d", most, left - at_first);
    else say("large messages, %lu: an eighth at most is gone: %d", most, left >= at_first - n - (int)most / 8);
    if (most > 1000 && getenv("UNCOPY_TCP_BLOCKS") && counter("tcp_block_bytes") == 0) say("WRONG: none went in blocks");
    for (int i = 0; i < n; i++) close(fds[i]);
    other_ends();
}
/* They are there when the limit is lowered, in both programs, which go on. */
static void large_lowered(const char *name, unsigned long most) {
    if (!is_wanted(name)) return;
    struct sockaddr_in there;
    int n = 4, fds[MOST], tells[2];
    char go = 'g';
    int l = listener(&there);
    MUST(pipe(tells) == 0);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        int all[MOST];
        close(tells[1]);
        for (int i = 0; i < n; i++) all[i] = accepted(l);
        static char bytes[LARGE];
        for (int half = 0; half < 2; half++) {
            for (int k = 0; k < TIMES * n; k++) {
                receive_all(all[k % n], bytes, LARGE);
                send_all(all[k % n], bytes, LARGE);
            }
            if (half == 0) {
                MUST(read(tells[0], &go, 1) == 1);
                limited_to(most);
            }
        }
        _exit(0);
    }
    close(l), close(tells[0]);
    for (int i = 0; i < n; i++) fds[i] = connected(&there);
    talk_large(fds, n, 5);
    MUST(write(tells[1], &go, 1) == 1);
    limited_to(most);
    say("free: %d", free_numbers());
    talk_large(fds, n, 9);
    say("still free: %d", free_numbers());
    for (int i = 0; i < n; i++) close(fds[i]);
    other_ends();
    say("%s: done", name);
}

/* They are by rings when the limit is lowered, to all that the program has, and go on. */
static void lowered(const char *name, unsigned long most) {
    if (!is_wanted(name)) return;
    int all[MOST], n = 12;
    other_side(n);
    for (int i = 0; i < n; i++) all[i] = connected(&at);
    for (int round = 0; round == 0 || (under_tcp() && counter("tcp_connections") < (unsigned)n); round++) {
        for (int i = 0; i < n; i++) talks(all[i], all[i]);
        if (round < 200) continue;
        say("NOT BY RINGS");
        break;
    }
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        alarm(60);
        limited_to(most);
        say("free: %d", free_numbers());
        threads_talk(all, n);
        talks(all[3], all[3]);
        polls(all[1], all, n);
        say("still free: %d", free_numbers());
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    threads_talk(all, n);
    limited_to(most);
    say("free: %d", free_numbers());
    threads_talk(all, n);
    threads_talk(all, n);
    polls(all[1], all, n);
    say("still free: %d", free_numbers());
    for (int i = 0; i < n; i++) close(all[i]);
    other_ends();
    say("%s: done", name);
}

int main(int argc, char **argv) {
    alarm(100);
    if (argc > 1) {
        if (argv[2]) large((unsigned long)atoi(argv[1]));
        else if (atoi(argv[1]) == 64) has_all_numbers("from the beginning");
        else has_most_numbers("some");
        return 0;
    }
    static const struct { char *most, *large; } LIMITS[] = {
        {"64", NULL}, {"256", NULL}, {"12", "large"}, {"20", "large"}, {"64", "large"}, {"130", "large"}, {"256", "large"}, {"4096", "large"},
    };
    int status;
    pid_t child;
    for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++) {
        child = fork();
        MUST(child >= 0);
        if (child == 0) {
            limited_to((unsigned long)atoi(LIMITS[i].most));
            execl("/proc/self/exe", argv[0], LIMITS[i].most, LIMITS[i].large, NULL);
            _exit(7);
        }
        MUST(waitpid(child, &status, 0) == child && status == 0);
    }
    child = fork();
    MUST(child >= 0);
    if (child == 0) {
        limited_to(64);
        has_all_numbers("before the first connection");
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    child = fork();
    MUST(child >= 0);
    if (child == 0) {
        large_lowered("while there are large messages", 20);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    lowered("while there are connections", 20);
    return 0;
}
