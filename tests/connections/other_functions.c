/* Functions by which libc, or another program, reads and writes a connection where rings are not looked at: stdio, positions that mean none, splice,
 * programs that are executed. Bytes lie in the ring when they are called; some of them were sent by who cannot take them back any more. */
#include "connection.h"
#include <aio.h>

enum { MANY = 5000 };
static char bytes[1 << 20];

static void echo(int fd) {
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) send_all(fd, bytes, (size_t)got);
}
/* Lines there and back. */
static void talks(int fd, int rounds) {
    for (int i = 0; i < rounds; i++) {
        char line[64], back[64];
        int n = snprintf(line, sizeof line, "line %d\n", i);
        send_all(fd, line, (size_t)n);
        receive_all(fd, back, (size_t)n);
        if (memcmp(line, back, (size_t)n) != 0) say("WRONG: %.*s", n, back);
    }
}
static void talks_to_the_end(int fd) {
    talks(fd, 30);
    MUST(shutdown(fd, SHUT_WR) == 0);
    char byte;
    say("the end: %zd", recv(fd, &byte, 1, 0));
    close(fd);
}

/* preadv2 and pwritev2 take a connection, at position -1. */
static void at_no_position(int fd) {
    for (int i = 0; i < 30; i++) {
        char back[11] = "";
        struct iovec out[2] = {{"one", 3}, {"two", 3}}, in[2] = {{back, 4}, {back + 4, 6}};
        MUST(send(fd, "(", 1, 0) == 1 && pwritev2(fd, out, 2, -1, 0) == 6 && write(fd, ")..", 3) == 3);
        size_t got = 0;
        while (got < 10) {
            struct iovec rest[2] = {{back + got, 10 - got}, {NULL, 0}};
            ssize_t more = got ? preadv2(fd, rest, 1, -1, 0) : preadv2(fd, in, 2, -1, 0);
            MUST(more > 0);
            got += (size_t)more;
        }
        if (strcmp(back, "(onetwo)..") != 0) say("WRONG: %s", back);
    }
    char byte;
    struct iovec part = {&byte, 1};
    ssize_t got = preadv(fd, &part, 1, 0);
    say("preadv: %zd %s", got, strerror(errno));
    got = pwrite(fd, "x", 1, 0);
    say("pwrite: %zd %s", got, strerror(errno));
    close(fd);
}

/* Much is sent, and the stream is ended. */
static void sends_and_closes(int fd) {
    fill(bytes, MANY, 7, 0);
    send_all(fd, bytes, MANY);
    close(fd);
}
static void sends_and_dies(int fd) {
    fill(bytes, MANY, 7, 0);
    send_all(fd, bytes, MANY);
    raise(SIGKILL);
}
static void sends_and_stops(int fd) {
    fill(bytes, MANY, 7, 0);
    send_all(fd, bytes, MANY);
    raise(SIGSTOP);
    pause();
}
static void all_is_there(int fd) {
    for (int i = 0, there = 0; i < 1000 && there < MANY; i++) {
        MUST(ioctl(fd, FIONREAD, &there) == 0);
        usleep(5000);
    }
    usleep(20000);
}
static void by_splice(int fd) {
    int pipes[2];
    MUST(pipe(pipes) == 0);
    all_is_there(fd);
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    size_t got = 0;
    ssize_t more = 1;
    while (got < MANY && (more = splice(fd, NULL, pipes[1], NULL, MANY - got, 0)) > 0) {
        MUST(read(pipes[0], bytes + got, (size_t)more) == more);
        got += (size_t)more;
    }
    /* (Nobody is waited for who does not answer.) */
    clock_gettime(CLOCK_MONOTONIC, &now);
    long took = (now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000;
    if (took > 800) say("WRONG: it took %ld ms", took);
    say("spliced: %zu, %s", got, is(bytes, got, 7, 0) && more > 0 ? "right" : "WRONG");
    close(pipes[0]), close(pipes[1]);
    close(fd);
    kill(other, SIGKILL);
}
/* A pipe that has less room than there are bytes. */
static void by_splice_to_a_full_pipe(int fd) {
    int pipes[2];
    MUST(pipe2(pipes, O_NONBLOCK) == 0);
    all_is_there(fd);
    static char filling[65536 - 4096];
    MUST(write(pipes[1], filling, sizeof filling) == (ssize_t)sizeof filling);
    size_t got = 0;
    ssize_t more = splice(fd, NULL, pipes[1], NULL, MANY, SPLICE_F_NONBLOCK);
    MUST(more > 0);
    MUST(read(pipes[0], filling, sizeof filling) == (ssize_t)sizeof filling);
    MUST(read(pipes[0], bytes, (size_t)more) == more);
    got = (size_t)more;
    while (got < MANY && (more = recv(fd, bytes + got, MANY - got, 0)) > 0) got += (size_t)more;
    say("the rest: %zu, %s", got, is(bytes, got, 7, 0) ? "right" : "WRONG");
    close(pipes[0]), close(pipes[1]);
    close(fd);
}
/* A thread waits for room in a pipe, while another one takes what it was to be given; then it waits for bytes: it can be cancelled there, and it hears the end. */
static int splices[2], from, cleaned;
static void cleans(void *unused) { (void)unused, cleaned = 1; }
static void *splices_once(void *unused) {
    pthread_cleanup_push(cleans, NULL);
    ssize_t more = splice(from, NULL, splices[1], NULL, MANY, 0);
    say("spliced to the end: %zd", more);
    pthread_cleanup_pop(0);
    return unused;
}
static void by_splice_in_a_thread(int fd, int cancels) {
    enum { FULL = 65536 };
    static char filling[FULL];
    MUST(pipe(splices) == 0 && write(splices[1], filling, FULL) == FULL);
    all_is_there(fd);
    from = fd, cleaned = 0;
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, splices_once, NULL) == 0);
    usleep(under_tcp() ? 2000000 : 200000); /* (As long as it waits for who is stopped, and some more.) */
    receive_all(fd, bytes, MANY);
    MUST(is(bytes, MANY, 7, 0));
    MUST(read(splices[0], filling, FULL) == FULL);
    usleep(200000);
    if (cancels) MUST(pthread_cancel(thread) == 0);
    else kill(other, SIGKILL);
    struct timespec patience;
    clock_gettime(CLOCK_REALTIME, &patience);
    patience.tv_sec += 10;
    int failed = pthread_timedjoin_np(thread, NULL, &patience);
    if (failed) say("WRONG: it goes on: %s", strerror(failed));
    say("cleaned: %d", cleaned);
    kill(other, SIGKILL);
    if (failed) _exit(1);
    close(splices[0]), close(splices[1]), close(fd);
}
static void cancelled_in_splice(int fd) { by_splice_in_a_thread(fd, 1); }
static void ended_in_splice(int fd) { by_splice_in_a_thread(fd, 0); }
static void by_a_stream(int fd) {
    all_is_there(fd);
    FILE *stream = fdopen(fd, "r");
    MUST(stream);
    size_t got = fread(bytes, 1, MANY, stream);
    say("by stdio: %zu, %s", got, is(bytes, got, 7, 0) ? "right" : "WRONG");
    fclose(stream);
    kill(other, SIGKILL);
}

/* A socket that stands in for a connection is in the sets that had the connection. */
static int modes;
static void by_a_stream_and_a_set(int fd) {
    int set = epoll_create1(0), told = 0;
    struct epoll_event event = {.events = EPOLLIN | (unsigned)modes, .data.u64 = 77};
    MUST(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    all_is_there(fd);
    nonblocking(fd, 1);
    FILE *stream = fdopen(fd, "r");
    MUST(stream);
    size_t got = 0;
    for (ssize_t more = 1; more != 0;) {
        if (epoll_wait(set, &event, 1, 3000) != 1 || event.data.u64 != 77) {
            say("WRONG: nothing is told after %zu", got);
            break;
        }
        told++;
        while ((more = read(fd, bytes + got, sizeof bytes - got)) > 0) got += (size_t)more;
        if (modes & EPOLLONESHOT) {
            event.events = EPOLLIN | (unsigned)modes;
            MUST(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
        }
    }
    say("by a set: %zu, %s, %s", got, is(bytes, got, 7, 0) ? "right" : "WRONG", told ? "told" : "not told");
    MUST(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
    fclose(stream);
    say("and then: %d", epoll_wait(set, &event, 1, 0));
    close(set);
}

/* stdio closes a number, which then is another file's. */
static void closed_by_a_stream(int fd) {
    FILE *stream = fdopen(fd, "r+");
    MUST(stream);
    fputs("hello\n", stream);
    fflush(stream);
    char line[64] = "";
    MUST(fgets(line, sizeof line, stream));
    say("by stdio: %s", strtok(line, "\n"));
    MUST(fclose(stream) == 0);
    int file = open("/dev/zero", O_RDWR);
    say("the same number: %d", file == fd);
    say("read: %zd", read(file, line, 10));
    say("write: %zd", write(file, line, 10));
    close(file);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from = {0};
    socklen_t len = sizeof at;
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    MUST(bind(udp, (struct sockaddr *)&at, len) == 0 && getsockname(udp, (struct sockaddr *)&at, &len) == 0);
    ssize_t sent = sendto(udp, "datagram", 8, 0, (struct sockaddr *)&at, sizeof at);
    say("sendto: %zd %s", sent, sent < 0 ? strerror(errno) : "");
    if (sent == 8) {
        len = sizeof from;
        say("recvfrom: %zd", recvfrom(udp, line, sizeof line, 0, (struct sockaddr *)&from, &len));
        say("from: %d %d", len, from.sin_port == at.sin_port);
    }
    close(udp);
}

/* A connection becomes standard input and output, of this very program, or of those that libc executes. */
static void becomes_standard(int fd) {
    MUST(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
    close(fd);
}
static void by_stdin_and_stdout(int fd) {
    becomes_standard(fd);
    char line[100];
    while (fgets(line, sizeof line, stdin)) printf("%s", line), fflush(stdout);
    fclose(stdin), fclose(stdout);
}
static void by_a_command(int fd) {
    becomes_standard(fd);
    MUST(system("exec cat") == 0);
}
static void takes_number_zero(int fd) {
    close(0);
    MUST(dup(fd) == 0);
    close(fd);
    char line[100];
    while (fgets(line, sizeof line, stdin)) MUST(write(0, line, strlen(line)) > 0);
}
/* As CPython's subprocess does it: the number is close-on-exec, and duplicated after vfork. */
static void by_a_child_of_vfork(int fd) {
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
    pid_t child = vfork();
    if (child == 0) {
        dup2(fd, 0), dup2(fd, 1);
        execlp("cat", "cat", NULL);
        _exit(5);
    }
    close(fd);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

/* printf to a number, between other calls that send. */
static void prints(int fd) {
    for (int i = 0; i < 200; i++) {
        MUST(send(fd, "send ", 5, 0) == 5);
        MUST(dprintf(fd, "%s %d %.1f ", "dprintf", i, i / 2.0) > 0);
        MUST(write(fd, "write ", 6) == 6);
    }
    close(fd);
}
static void gets_printed(int fd) {
    char expected[64];
    for (int i = 0; i < 200; i++) {
        int n = snprintf(expected, sizeof expected, "send dprintf %d %.1f write ", i, i / 2.0);
        receive_all(fd, bytes, (size_t)n);
        if (memcmp(bytes, expected, (size_t)n) != 0) {
            say("WRONG: %.*s", n, bytes);
            return;
        }
        if (i % 10 == 0) usleep(1000);
    }
    say("printed in order: %zd", recv(fd, bytes, 1, 0));
    close(fd);
}

static void asynchronously(int fd) {
    char answer[6] = "";
    struct aiocb out = {.aio_fildes = fd, .aio_buf = "async", .aio_nbytes = 5}, in = {.aio_fildes = fd, .aio_buf = answer, .aio_nbytes = 5};
    const struct aiocb *both[1] = {&in};
    struct timespec patience = {.tv_sec = 5};
    MUST(aio_write(&out) == 0 && aio_read(&in) == 0);
    int waited = aio_suspend(both, 1, &patience);
    say("aio: %d, %zd %s", waited, waited == 0 ? aio_return(&in) : -1, answer);
    if (waited != 0) _exit(1);
    close(fd);
}

int main(void) {
    alarm(100);
    run_pair("no position", echo, at_no_position);
    run_pair("splice after the end", sends_and_closes, by_splice);
    run_pair("splice after a death", sends_and_dies, by_splice);
    run_pair("splice beside who is stopped", sends_and_stops, by_splice);
    run_pair("splice to a full pipe", sends_and_closes, by_splice_to_a_full_pipe);
    run_pair("stdio after the end", sends_and_closes, by_a_stream);
    run_pair("stdio beside who is stopped", sends_and_stops, by_a_stream);
    run_pair("cancelled in splice", sends_and_stops, cancelled_in_splice);
    run_pair("the end in splice", sends_and_stops, ended_in_splice);
    const struct { const char *name; int modes; } sets[] = {
        {"a stand-in in a set", 0}, {"a stand-in in a set by edge", EPOLLET}, {"a stand-in in a set, one shot", EPOLLONESHOT},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        modes = sets[i].modes;
        run_pair(sets[i].name, sends_and_closes, by_a_stream_and_a_set);
    }
    run_pair("closed by stdio", echo, closed_by_a_stream);
    run_pair("standard streams", by_stdin_and_stdout, talks_to_the_end);
    run_pair("a command's standard streams", by_a_command, talks_to_the_end);
    run_pair("number 0", takes_number_zero, talks_to_the_end);
    run_pair("a child of vfork", by_a_child_of_vfork, talks_to_the_end);
    run_pair("printf to a number", prints, gets_printed);
    run_pair("aio", echo, asynchronously);
    return 0;
}
