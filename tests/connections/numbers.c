/* Numbers that were a file's and are another's now: what was said of the first is not true of the second. */
#include "connection.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static char bytes[20000], back[20000];

static void echo(int fd) {
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) send_all(fd, bytes, (size_t)got);
}
static void talks(int fd) {
    for (int i = 0; i < 30; i++) {
        fill(bytes, sizeof bytes, (unsigned)i, 0);
        send_all(fd, bytes, sizeof bytes);
        receive_all(fd, back, sizeof back);
        is(back, sizeof back, (unsigned)i, 0);
    }
}

/* A socket is added to a set before it connects, and both are closed. Then the set's number is a connection's, and the socket's that of one which connects. */
static void a_connection_at_a_set_s_number(int fd) {
    struct sockaddr_in at;
    int l = listener(&at);
    for (int way = 0; way < 3; way++) {
        int set = epoll_create1(0), unconnected = socket(AF_INET, SOCK_STREAM, 0);
        struct epoll_event event = {.events = EPOLLIN};
        MUST(set >= 0 && unconnected >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, unconnected, &event) == 0);
        if (way == 0) close(unconnected), close(set);
        if (way == 1) close(set), close(unconnected);
        MUST(dup2(fd, set) == set);
        close(fd);
        fd = set;
        int other = socket(AF_INET, SOCK_STREAM, 0);
        if (other != unconnected) {
            MUST(dup2(other, unconnected) == unconnected);
            close(other);
        }
        MUST(connect(unconnected, (struct sockaddr *)&at, sizeof at) == 0);
        talks(fd);
        close(unconnected);
    }
    close(l);
    close(fd);
}

/* A number that is no set. */
static void a_connection_in_place_of_a_set(int fd) {
    struct sockaddr_in at;
    int l = listener(&at), another = connected(&at);
    struct epoll_event event = {.events = EPOLLIN};
    int added = epoll_ctl(fd, EPOLL_CTL_ADD, another, &event);
    say("no set: %d %s", added, strerror(errno));
    talks(fd);
    close(another), close(l), close(fd);
}

/* The kernel refuses it, and closes nothing. */
static void dup3_with_unknown_flags(int fd) {
    int other = open("/dev/null", O_RDONLY);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    talks(fd);
    fill(bytes, 5000, 1, 0);
    send_all(fd, bytes, 5000);
    for (int there = 0, i = 0; there < 5000 && i < 5000; i++) {
        MUST(ioctl(fd, FIONREAD, &there) == 0);
        usleep(1000);
    }
    int same = dup3(other, fd, 12345);
    say("dup3: %d %s", same, strerror(errno));
    say("what had come: %d", poll(&p, 1, 5000));
    receive_all(fd, back, 5000);
    is(back, 5000, 1, 0);
    talks(fd);
    close(other), close(fd);
}

/* The other end goes back to Linux and to its ring again, and this one has not looked since: what is sent now is offered, and nobody has taken it. */
static void reads_late(int fd) {
    receive_all(fd, bytes, sizeof bytes);
    send_all(fd, bytes, 1);
    usleep(300000);
    receive_all(fd, bytes, 6);
    say("it has come: %.6s", bytes);
    close(fd);
}
static void offers(int fd) {
    memset(bytes, 0, sizeof bytes);
    /* Past the ring: printf to a number. */
    MUST(dprintf(fd, "%0*d", (int)sizeof bytes, 0) == (int)sizeof bytes);
    receive_all(fd, bytes, 1);
    usleep(50000);
    send_all(fd, "unread", 6);
}
/* A child of vfork has its parent's memory, and other files under its numbers: what it does there is not done to the parent's connection. */
static void another_file_in_a_child_of_vfork(int fd, int duplicates) {
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    offers(fd);
    pid_t child = vfork();
    if (child == 0) {
        if (dup2(pair[1], fd) != fd) _exit(5);
        if (duplicates && dup2(fd, 1) != 1) _exit(6);
        execlp("true", "true", NULL);
        _exit(7);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    say("the child: %x", status);
    close(pair[1]);
    char byte;
    say("in the pair: %zd", recv(pair[0], &byte, 1, 0));
    close(pair[0]), close(fd);
}
static void duplicated_there(int fd) { another_file_in_a_child_of_vfork(fd, 1); }
static void executed_there(int fd) { another_file_in_a_child_of_vfork(fd, 0); }

/* Connections of which each gets a second number, where ours have few numbers to lie at. */
enum { MANY = 40 };
static void echoes(int l) {
    struct pollfd all[MANY];
    int open = 0;
    for (; open < MANY; open++) all[open] = (struct pollfd){.fd = accepted(l), .events = POLLIN};
    while (open > 0) {
        MUST(poll(all, MANY, 20000) > 0);
        for (int i = 0; i < MANY; i++) {
            if (all[i].fd < 0 || !all[i].revents) continue;
            ssize_t got = recv(all[i].fd, bytes, sizeof bytes, 0);
            if (got > 0) send_all(all[i].fd, bytes, (size_t)got);
            else close(all[i].fd), all[i].fd = -1, open--;
        }
    }
    _exit(0);
}
/* By the one number there, by the other back. */
static void goes_round(int to, int from, int i) {
    char byte = (char)i, back = 0;
    struct pollfd p = {.fd = from, .events = POLLIN};
    MUST(send(to, &byte, 1, 0) == 1);
    if (poll(&p, 1, 5000) != 1 || recv(from, &back, 1, MSG_DONTWAIT) != 1 || back != byte) {
        say("WRONG: connection %d: it does not come back", i);
        _exit(1);
    }
}
static void duplicates_where_few_numbers_are_left(void) {
    struct rlimit before, few;
    struct sockaddr_in at;
    int l = listener(&at), first[MANY], second[MANY];
    MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before, few.rlim_cur = 1024;
    MUST(setrlimit(RLIMIT_NOFILE, &few) == 0);
    other = fork();
    MUST(other >= 0);
    if (other == 0) {
        alarm(60);
        echoes(l);
    }
    close(l);
    unsigned long there = counter("tcp_connections");
    for (int i = 0; i < MANY; i++) first[i] = connected(&at);
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < MANY; i++) goes_round(first[i], first[i], i);
        if (!under_tcp() && round == 20) break;
        if (counter("tcp_connections") - there >= MANY && round > 20) break;
        usleep(1000);
    }
    if (under_tcp() && counter("tcp_connections") - there < MANY) say("NOT UPGRADED: %lu", counter("tcp_connections") - there);
    for (int i = 0; i < MANY; i++) MUST((second[i] = dup(first[i])) >= 0);
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < MANY; i++) goes_round(first[i], second[i], i), goes_round(second[i], first[i], i);
    /* A set too. */
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0), again = dup(set);
    MUST(again >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, second[0], &event) == 0);
    close(set);
    MUST(send(second[0], "s", 1, 0) == 1);
    int told = epoll_wait(again, &event, 1, 5000);
    say("by the set's second number: %d", told);
    receive_all(first[0], bytes, 1);
    close(again);
    for (int i = 0; i < MANY; i++) close(first[i]);
    for (int i = 0; i < MANY; i++) goes_round(second[i], second[i], i), close(second[i]);
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
    other_ends();
}

/* Numbers of ours lie above the program's: whatever a program does to close what it does not know, its connections and sets go on, by each of their numbers. */
static const char *const WAYS[] = {"close", "close, as /proc/self/fd lists them", "closefrom", "close_range", "close_range of a table of its own",
                                   "close_range for exec", "close by number", "close_range by number", "dup2"};
enum { N_WAYS = sizeof WAYS / sizeof *WAYS };
static int way;
static void close_from(int first) {
    switch (way) {
    case 0:
        for (int fd = first; fd < 2000; fd++) close(fd);
        break;
    case 1: {
        DIR *listed = opendir("/proc/self/fd");
        struct dirent *entry;
        int all[500], n = 0;
        MUST(listed);
        while ((entry = readdir(listed)) && n < 500)
            if (atoi(entry->d_name) >= first && atoi(entry->d_name) != dirfd(listed)) all[n++] = atoi(entry->d_name);
        closedir(listed);
        for (int i = 0; i < n; i++) close(all[i]);
        break;
    }
    case 2: closefrom(first); break;
    case 3: MUST(close_range((unsigned)first, ~0u, 0) == 0); break;
    case 4: MUST(close_range((unsigned)first, ~0u, 2) == 0); break;
    case 5: MUST(close_range((unsigned)first, ~0u, 4) == 0); break;
    case 6:
        for (int fd = first; fd < 2000; fd++) syscall(SYS_close, fd);
        break;
    case 7: MUST(syscall(SYS_close_range, first, ~0u, 0) == 0); break;
    default: { /* (Of our own numbers it is told that they are busy.) */
        int other = open("/dev/null", O_RDONLY);
        MUST(other >= 0);
        for (int fd = first; fd < 2000; fd++)
            if (dup2(other, fd) == fd) close(fd);
        close(other);
    }
    }
}
static void says_and_hears(int to, int from, int i) {
    char byte = (char)i, back = 0;
    ssize_t sent = send(to, &byte, 1, MSG_NOSIGNAL), got = sent == 1 ? recv(from, &back, 1, 0) : 0;
    if (got != 1 || back != byte) {
        say("WRONG: %zd sent, %zd received: %s", sent, got, strerror(errno));
        _exit(1);
    }
}
/* Two numbers of a connection, two of a set: 0 to 3, and whatever else there is is closed. */
static int numbered(int fd, int *numbers) {
    numbers[0] = fd, numbers[1] = dup(fd), numbers[2] = epoll_create1(0), numbers[3] = dup(numbers[2]);
    int highest = 0;
    for (int i = 0; i < 4; i++) {
        MUST(numbers[i] >= 0);
        if (numbers[i] > highest) highest = numbers[i];
    }
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(numbers[2], EPOLL_CTL_ADD, fd, &event) == 0);
    return highest + 1;
}
static void goes_on(const int *numbers) {
    struct epoll_event event;
    for (int i = 0; i < 40; i++) {
        says_and_hears(numbers[i & 1], numbers[i >> 1 & 1], i);
        send_all(numbers[i & 1], "e", 1);
        int told = epoll_wait(numbers[2 + (i & 1)], &event, 1, 5000);
        if (told != 1) {
            say("WRONG: epoll_wait %d: %s", told, strerror(errno));
            _exit(1);
        }
        receive_all(numbers[i & 1], back, 1);
    }
    /* Others in a set of poll's. */
    struct pollfd p = {.fd = numbers[1], .events = POLLIN};
    send_all(numbers[0], "p", 1);
    MUST(poll(&p, 1, 5000) == 1);
    receive_all(numbers[1], back, 1);
}
static void closes_the_rest(int fd) {
    int numbers[4];
    close_from(numbered(fd, numbers));
    goes_on(numbers);
    close(numbers[0]), close(numbers[2]);
    numbers[0] = numbers[1], numbers[2] = numbers[3];
    close_from((numbers[1] > numbers[3] ? numbers[1] : numbers[3]) + 1);
    for (int i = 0; i < 40; i++) says_and_hears(numbers[1], numbers[1], i);
    close(numbers[1]), close(numbers[3]);
}
/* Between fork and exec, most often. The parent's connection is the child's meanwhile, and its own afterwards. */
static void closes_the_rest_in_a_child(int fd) {
    int numbers[4], status, first = numbered(fd, numbers);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        close_from(first);
        goes_on(numbers);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child);
    say("the child: %x", status);
    goes_on(numbers);
    child = vfork();
    if (child == 0) {
        for (int i = 3; i < 2000; i++) close(i);
        execlp("true", "true", NULL);
        _exit(7);
    }
    MUST(waitpid(child, &status, 0) == child);
    say("the command: %x", status);
    goes_on(numbers);
    for (int i = 0; i < 4; i++) close(numbers[i]);
}
/* As launchers do: the connection under the number that the command knows, and nothing else. */
static void hands_it_on(int fd) {
    int high = fcntl(fd, F_DUPFD, 50), status;
    MUST(high >= 50);
    close(fd);
    pid_t child = fork();
    if (child == 0) {
        if (dup2(high, 3) != 3) _exit(8);
        close_from(4);
        execlp("sh", "sh", "-c", "exec cat <&3 >&3", NULL);
        _exit(9);
    }
    close(high);
    MUST(waitpid(child, &status, 0) == child);
    say("the command: %x", status);
}
static void two_texts(int fd) {
    send_all(fd, "first", 5);
    usleep(100000);
    send_all(fd, "second", 6);
    shutdown(fd, SHUT_WR);
    receive_all(fd, bytes, 11);
    if (memcmp(bytes, "firstsecond", 11) || recv(fd, bytes, 1, 0) != 0) say("WRONG: %.11s", bytes), _exit(1);
}
static void closes_what_it_does_not_know(void) {
    for (way = 0; way < N_WAYS; way++) {
        char name[120];
        snprintf(name, sizeof name, "all other numbers are closed: %s", WAYS[way]);
        run_pair(name, echo, closes_the_rest);
        snprintf(name, sizeof name, "all other numbers are closed in a child: %s", WAYS[way]);
        run_pair(name, echo, closes_the_rest_in_a_child);
        snprintf(name, sizeof name, "all other numbers are closed before exec: %s", WAYS[way]);
        run_pair(name, two_texts, hands_it_on);
    }
}

int main(void) {
    alarm(120);
    closes_what_it_does_not_know();
    run_pair("a connection at a set's number", echo, a_connection_at_a_set_s_number);
    run_pair("a connection in place of a set", echo, a_connection_in_place_of_a_set);
    run_pair("dup3 with flags that there are not", echo, dup3_with_unknown_flags);
    run_pair("another file, duplicated after vfork", reads_late, duplicated_there);
    run_pair("another file, executed after vfork", reads_late, executed_there);
    if (is_wanted("few numbers are left")) {
        duplicates_where_few_numbers_are_left();
        say("few numbers are left: done");
    }
    return 0;
}
