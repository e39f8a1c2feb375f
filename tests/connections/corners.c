/* Lengths, lists and flags at the edges of what calls take: they say what Linux says. */
#include "connection.h"
#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static char bytes[1 << 20];
/* (Lengths that a compiler warns of.) */
static volatile size_t all_ones = (size_t)-1, most_positive = SSIZE_MAX;

static const char *said(ssize_t result) {
    static char all[4][60];
    static int i;
    char *to = all[i++ % 4];
    if (result < 0) snprintf(to, sizeof all[0], "%s", strerror(errno));
    else snprintf(to, sizeof all[0], "%zd", result);
    return to;
}

static void sink(int fd) {
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {}
}
static void echo(int fd) {
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) send_all(fd, bytes, (size_t)got);
}
static char *room(size_t n) {
    char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

/* A call moves at most so much (MAX_RW_COUNT), and refuses a length that is negative. */
static void more_than_a_call_moves(int fd) {
    const size_t most = 0x7ffff000, n = 3ul << 30;
    char *at = room(n);
    say("send: %s", said(send(fd, at, n, 0)));
    struct iovec parts[3] = {{at, 8}, {at, (size_t)1 << 63}, {at, 10}};
    say("writev, a negative part: %s", said(writev(fd, parts, 3)));
    parts[1].iov_len = SSIZE_MAX;
    say("writev, beyond all addresses: %s", said(writev(fd, parts, 3)));
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    say("sendmsg, beyond all addresses: %s", said(sendmsg(fd, &message, 0)));
    parts[1].iov_len = (size_t)-1;
    say("sendmsg, a negative part: %s", said(sendmsg(fd, &message, 0)));
    say("write of -1: %s", said(write(fd, at, all_ones)));
    say("write beyond all addresses: %s", said(write(fd, at, most_positive)));
    say("nothing from nowhere: %s", said(send(fd, (char *)8, 0, 0)));
    nonblocking(fd, 1);
    for (int i = 0; i < 20; i++) { /* However full Linux or the ring is: no more than that. */
        ssize_t sent = send(fd, at, all_ones, 0);
        if (sent < 0 ? errno != EAGAIN : (size_t)sent > most) say("WRONG: send of -1: %s", said(sent));
    }
    nonblocking(fd, 0);
    close(fd);
    munmap(at, n);
}
static void more_than_a_call_takes(int fd) {
    const size_t n = 3ul << 30;
    char *at = room(n);
    send_all(fd, "0123456789", 10);
    say("recv: %s", said(recv(fd, at, n, 0)));
    struct iovec parts[3] = {{at, 4}, {at, (size_t)1 << 63}, {at, 10}};
    send_all(fd, "0123456789", 10);
    say("readv, a negative part: %s", said(readv(fd, parts, 3)));
    parts[1].iov_len = SSIZE_MAX;
    say("readv, beyond all addresses: %s", said(readv(fd, parts, 3)));
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    say("recvmsg, beyond all addresses: %s", said(recvmsg(fd, &message, 0)));
    say("read of -1: %s", said(read(fd, at, all_ones)));
    parts[1].iov_len = n, parts[1].iov_base = at;
    usleep(50000);
    say("readv, of more than a call takes: %s", said(readv(fd, parts, 2)));
    send_all(fd, "0123456789", 10);
    say("recv of -1: %s", said(recv(fd, at, all_ones, 0)));
    close(fd);
    munmap(at, n);
}

/* Of no bytes: some calls return before they look at the socket, some do not. */
static void nothing_after_the_end(int fd) {
    struct iovec none[2] = {{bytes, 0}, {bytes, 0}};
    struct msghdr message = {.msg_iov = none, .msg_iovlen = 2};
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        say("%s", i ? "after SHUT_WR" : "before");
        say("write: %s", said(write(fd, bytes, 0)));
        say("send: %s", said(send(fd, bytes, 0, 0)));
        say("writev: %s", said(writev(fd, none, 2)));
        say("writev of no part: %s", said(writev(fd, none, 0)));
        say("pwritev2: %s", said(pwritev2(fd, none, 2, -1, 0)));
        say("sendmsg: %s", said(sendmsg(fd, &message, 0)));
        say("read: %s", said(read(fd, bytes, 0)));
        say("readv: %s", said(readv(fd, none, 2)));
        say("recv: %s", said(recv(fd, bytes, 0, MSG_DONTWAIT)));
        say("recvmsg: %s", said(recvmsg(fd, &message, MSG_DONTWAIT)));
        shutdown(fd, SHUT_WR);
        if (i == 0) usleep(100000);
    }
    close(fd);
}

/* recvmmsg: a message without room is none to stop at, and neither is the end of the stream. */
static void many(int fd, const char *name, int count, int flags) {
    static char to[4][10];
    struct iovec parts[4];
    struct mmsghdr all[4];
    memset(all, 0, sizeof all);
    const size_t rooms[] = {3, 0, 4, 10};
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct iovec){to[i], rooms[i]};
        all[i].msg_hdr.msg_iov = &parts[i], all[i].msg_hdr.msg_iovlen = 1, all[i].msg_len = 77;
    }
    int got = recvmmsg(fd, all, (unsigned)count, flags, NULL);
    say("%s: %s: %u %u %u %u", name, said(got), all[0].msg_len, all[1].msg_len, all[2].msg_len, all[3].msg_len);
}
static void sends_ten_twice(int fd) {
    char byte;
    receive_all(fd, &byte, 1);
    send_all(fd, "0123456789", 10);
    receive_all(fd, &byte, 1);
    send_all(fd, "0123456789", 10);
}
static void several_messages(int fd) {
    send_all(fd, "g", 1);
    usleep(100000);
    many(fd, "with one of no bytes", 3, 0);
    many(fd, "what is left", 4, MSG_WAITFORONE);
    many(fd, "nothing", 4, MSG_DONTWAIT);
    send_all(fd, "g", 1);
    usleep(100000);
    many(fd, "up to the end", 4, MSG_DONTWAIT);
    many(fd, "at the end", 4, 0);
    close(fd);
}

static volatile sig_atomic_t handled;
static void handle(int number) {
    (void)number;
    handled++;
}
static sigset_t none;
static void raised_and_blocked(void) {
    sigset_t one;
    sigemptyset(&none);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    signal(SIGUSR1, handle);
    sigprocmask(SIG_BLOCK, &one, NULL);
    handled = 0;
    raise(SIGUSR1);
}
static void tell(const char *name, int result) {
    const char *text = said(result);
    say("%s: %s, %d handled", name, text, (int)handled);
    raised_and_blocked();
}
/* A call that waits with a mask and has an answer gives it: what the mask lets in stays pending. */
static void a_signal_beside_data(int fd) {
    struct timespec second = {1, 0}, now = {0, 0};
    struct pollfd p = {fd, POLLIN, 0};
    fd_set set;
    send_all(fd, "d", 1);
    usleep(100000);
    raised_and_blocked();
    tell("ppoll", ppoll(&p, 1, &second, &none));
    tell("ppoll that looks", ppoll(&p, 1, &now, &none));
    FD_ZERO(&set);
    FD_SET(fd, &set);
    tell("pselect", pselect(fd + 1, &set, NULL, NULL, &second, &none));
    struct pollfd two[2] = {{fd, POLLIN, 0}, {open("/dev/null", O_RDONLY), POLLIN, 0}};
    tell("ppoll of two", ppoll(two, 2, &second, &none));
    close(two[1].fd);
    receive_all(fd, bytes, 1);
    tell("ppoll without data", ppoll(&p, 1, &second, &none));
    tell("ppoll that looks, without data", ppoll(&p, 1, &now, &none));
    FD_ZERO(&set);
    FD_SET(fd, &set);
    tell("pselect without data", pselect(fd + 1, &set, NULL, NULL, &second, &none));
    p.events = POLLOUT;
    tell("ppoll for room", ppoll(&p, 1, &second, &none));
    close(fd);
}

static void *a_signal_soon(void *thread) {
    usleep(200000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}
static void *bytes_soon(void *fd) {
    usleep(400000);
    send_all((int)(intptr_t)fd, "b", 1);
    return NULL;
}
/* recv of no bytes waits for some. */
static void no_bytes_and_a_signal(int fd) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    for (int restart = 0; restart < 2; restart++) {
        struct sigaction action = {.sa_handler = handle, .sa_flags = restart ? SA_RESTART : 0};
        sigaction(SIGUSR1, &action, NULL);
        pthread_t own = pthread_self(), first, two;
        handled = 0;
        pthread_create(&first, NULL, a_signal_soon, &own);
        pthread_create(&two, NULL, bytes_soon, (void *)(intptr_t)fd);
        ssize_t got = recv(fd, bytes, 0, 0);
        say("recv of nothing, %s: %s, %d handled", restart ? "SA_RESTART" : "no SA_RESTART", said(got), (int)handled);
        pthread_join(first, NULL), pthread_join(two, NULL);
        receive_all(fd, bytes, 1);
    }
    close(fd);
}

/* A piece that is not there, between two that are: nothing is sent. */
static void a_piece_that_is_not_there(int fd) {
    char *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), back = 0;
    for (size_t n = 1; n <= 10000; n *= 10) {
        struct iovec parts[3] = {{bytes, n}, {nowhere, 10}, {bytes, n}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
        say("writev, %zu bytes before it: %s", n, said(writev(fd, parts, 3)));
        say("sendmsg: %s", said(sendmsg(fd, &message, 0)));
        send_all(fd, "n", 1);
        receive_all(fd, &back, 1);
        if (back != 'n') say("WRONG: %d arrives", back);
    }
    close(fd);
}

/* Of an address with less room than none recvfrom says so, and has received. */
static void no_room_for_an_address(int fd) {
    struct sockaddr_in from;
    socklen_t lengths[] = {0, 1, sizeof from, 0x7fffffff, 0x80000000, (socklen_t)-1};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        socklen_t length = lengths[i];
        char first = 0, second = 0;
        send_all(fd, "12", 2);
        ssize_t got = recvfrom(fd, &first, 1, MSG_WAITALL, (void *)&from, &length);
        say("recvfrom, %x: %s, %x", lengths[i], said(got), length);
        receive_all(fd, &second, 1);
        say("then %c", second);
    }
    close(fd);
}

/* A number that pidfd_getfd makes of a connection is one of its numbers. */
static void a_number_by_pidfd_getfd(int fd) {
    int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    MUST(process >= 0);
    int second = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    MUST(second >= 0);
    for (int i = 0; i < 100; i++) {
        char byte = (char)i, back = 0;
        send_all(i & 1 ? fd : second, &byte, 1);
        receive_all(i & 2 ? fd : second, &back, 1);
        if (back != byte) say("WRONG byte");
    }
    close(fd);
    for (int i = 0; i < 100; i++) {
        send_all(second, "s", 1);
        receive_all(second, bytes, 1);
    }
    int set = (int)syscall(SYS_pidfd_getfd, process, 0, 0);
    say("of another file: %d", set >= 0);
    close(set), close(process), close(second);
}

int main(void) {
    alarm(100);
    run_pair("more than a call moves", sink, more_than_a_call_moves);
    run_pair("more than a call takes", echo, more_than_a_call_takes);
    run_pair("nothing, also after the end", sink, nothing_after_the_end);
    run_pair("several messages", sends_ten_twice, several_messages);
    run_pair("a signal beside data", echo, a_signal_beside_data);
    run_pair("no bytes and a signal", echo, no_bytes_and_a_signal);
    run_pair("a piece that is not there", echo, a_piece_that_is_not_there);
    run_pair("no room for an address", echo, no_room_for_an_address);
    run_pair("a number by pidfd_getfd", echo, a_number_by_pidfd_getfd);
    return 0;
}
