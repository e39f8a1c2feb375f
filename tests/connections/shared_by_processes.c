/* Connections that several numbers, processes and programs have: dup, fork on both sides, a child for each connection, exec. */
#include "connection.h"

static void echo(int fd) {
    static char bytes[100000];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) send_all(fd, bytes, (size_t)got);
}
static void talk(int fd, int rounds, unsigned seed) {
    static char out[5000], in[5000];
    for (int i = 0; i < rounds; i++) {
        size_t n = (size_t)(i * 97) % sizeof out + 1;
        fill(out, n, seed, (size_t)i);
        send_all(fd, out, n);
        receive_all(fd, in, n);
        MUST(is(in, n, seed, (size_t)i));
    }
}

static void duplicates(int fd) {
    int second = dup(fd);
    talk(fd, 20, 1), talk(second, 20, 2);
    close(fd);
    talk(second, 20, 3);
    int third = fcntl(second, F_DUPFD_CLOEXEC, 50);
    MUST(third >= 50);
    MUST(dup2(third, second) == second);
    talk(second, 20, 4);
    int other_file = open("/dev/null", O_RDWR);
    MUST(dup2(other_file, second) == second);
    talk(third, 20, 5);
    MUST(dup3(third, second, O_CLOEXEC) == second);
    close(third);
    talk(second, 20, 6);
    close(second);
}

static void forks(int fd) {
    talk(fd, 20, 1);
    pid_t child = fork();
    if (child == 0) {
        talk(fd, 50, 2);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    talk(fd, 50, 3);
    child = fork();
    if (child == 0) {
        usleep(20000);
        talk(fd, 50, 4);
        _exit(0);
    }
    close(fd); /* The child has it still. */
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

static void child_for_each(void) {
    struct sockaddr_in at;
    int l = listener(&at);
    other = fork();
    if (other == 0) {
        alarm(60);
        for (int i = 0; i < 5; i++) {
            int fd = accepted(l);
            if (fork() == 0) {
                warm_up(fd, 0);
                echo(fd);
                _exit(0);
            }
            close(fd);
        }
        for (int i = 0, status; i < 5; i++) MUST(wait(&status) > 0 && status == 0);
        _exit(0);
    }
    close(l);
    int fds[5];
    for (int i = 0; i < 5; i++) fds[i] = connected(&at), warm_up(fds[i], 1);
    for (int i = 0; i < 5; i++) talk(fds[i], 50, (unsigned)i), close(fds[i]);
    other_ends();
    say("a child for each connection: done");
}

/* The server's end becomes another program's standard input and output. */
static void executes(int fd) {
    dup2(fd, 0), dup2(fd, 1);
    close(fd);
    execlp("cat", "cat", NULL);
    _exit(5);
}
static void spoken_to(int fd) {
    talk(fd, 30, 8);
    MUST(shutdown(fd, SHUT_WR) == 0);
    char byte;
    MUST(recv(fd, &byte, 1, 0) == 0);
    close(fd);
}

/* The server's end goes to another process as a message (SCM_RIGHTS). */
static void hands_over(int fd) {
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(fd), close(pair[0]);
        echo(handed_over(pair[1]));
        _exit(0);
    }
    hand_over(pair[0], fd);
    close(fd);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

/* A forked child closes a connection that is in its parent's epoll set. The parent still hears of it: of bytes, and that the other end was killed. */
static void killed_when_told(int fd) {
    char byte;
    receive_all(fd, &byte, 1);
    send_all(fd, &byte, 1);
    receive_all(fd, &byte, 1);
    kill(getpid(), SIGKILL);
}
static void child_closes_what_is_watched(int fd) {
    int set = epoll_create1(0), status;
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = 5};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
    MUST(epoll_wait(set, &e, 1, 0) == 0);
    pid_t child = fork();
    if (child == 0) close(fd), _exit(0);
    MUST(waitpid(child, &status, 0) == child && status == 0);
    char byte = 'b';
    send_all(fd, &byte, 1);
    say("bytes: %d", epoll_wait(set, &e, 1, 10000));
    receive_all(fd, &byte, 1);
    send_all(fd, &byte, 1);
    say("its end: %d", epoll_wait(set, &e, 1, 10000));
    close(fd), close(set);
}

int main(void) {
    run_pair("duplicates", echo, duplicates);
    run_pair("forks", echo, forks);
    child_for_each();
    run_pair("exec", executes, spoken_to);
    run_pair("a descriptor in a message", hands_over, spoken_to);
    run_pair("a child closes what is watched", killed_when_told, child_closes_what_is_watched);
    return 0;
}
