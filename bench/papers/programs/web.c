// A server that sends one file for each request of 16 bytes, by threads that share its connections evenly;
// prints its port.
//
//   web FILE METHOD PIECE THREADS CONTROL
//
// METHOD, as zIO (OSDI '22), 5.3.1 has them:
//   read           open, read PIECE bytes into the thread's buffer and send them, close
//   prefault       the same, but each piece has a buffer of its own, mapped with its memory and munmapped
//   mmap           open, map the file, send it, munmap, close
//   sendfile       open, read the head, sendfile, close
//   mmapsendfile   open, map the file, look at its head, sendfile, munmap, close
// Another program's file can be received instead: "take" reads what FILE's length says, PIECE bytes at a
// time, writes it to /dev/null, and answers with 16 bytes. The first eight of each thread are compared with FILE.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 4096, MOST = 64, COMPARED = 8 };
static const char *path, *method;
static size_t piece;
static int sets[MOST];

static int all(int fd, const char *from, size_t n) {
    for (size_t sent = 0; sent < n;) {
        ssize_t more = send(fd, from + sent, n - sent, MSG_NOSIGNAL);
        if (more <= 0) return 0;
        sent += more;
    }
    return 1;
}

static int by_sendfile(int fd, int file, size_t length) {
    off_t at = 0;
    while ((size_t)at < length)
        if (sendfile(fd, file, &at, length - at) <= 0) return 0;
    return 1;
}

static int is(const char *name) { return !strcmp(method, name); }

static int serve(int fd, char *buffer) {
    int file = open(path, O_RDONLY), good = 1;
    struct stat st;
    if (file < 0 || fstat(file, &st)) err(1, "%s", path);
    size_t length = st.st_size;
    char *map = NULL;
    if (is("mmap") || is("mmapsendfile")) {
        map = mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0);
        if (map == MAP_FAILED) err(1, "mmap");
    }
    if (is("mmap")) {
        good = all(fd, map, length);
    } else if (is("sendfile")) {
        if (pread(file, buffer, HEAD, 0) < 0) err(1, "%s", path);
        good = by_sendfile(fd, file, length);
    } else if (is("mmapsendfile")) {
        if (*(volatile char *)map == 1 && length == 1) err(1, "head");
        good = by_sendfile(fd, file, length);
    } else {
        for (size_t at = 0; good && at < length;) {
            if (is("prefault")) {
                buffer = mmap(NULL, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
                if (buffer == MAP_FAILED) err(1, "mmap");
            }
            ssize_t n = read(file, buffer, piece);
            if (n <= 0) errx(1, "%s is shorter than it was", path);
            good = all(fd, buffer, n);
            at += n;
            if (is("prefault")) munmap(buffer, piece);
        }
    }
    if (map) munmap(map, length);
    close(file);
    return good;
}

static int take(int fd, char *buffer, int sink, size_t length, const char *must) {
    for (size_t got = 0; got < length;) {
        ssize_t n = read(fd, buffer, piece < length - got ? piece : length - got);
        if (n <= 0) return 0;
        if (write(sink, buffer, n) != n) err(1, "/dev/null");
        if (must && memcmp(buffer, must + got, n)) errx(1, "what was received is wrong within %zd bytes from byte %zu on", n, got);
        got += n;
    }
    return all(fd, "has been received", 16);
}

static void *thread(void *of) {
    int set = (intptr_t)of, sink = open("/dev/null", O_WRONLY), file = open(path, O_RDONLY), taken = 0;
    char request[16], *buffer, *must = NULL;
    struct stat st;
    if (posix_memalign((void **)&buffer, 4096, piece < HEAD ? HEAD : piece) || fstat(file, &st)) errx(1, "no memory, or no file");
    if (is("take")) {
        must = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, file, 0);
        if (must == MAP_FAILED) err(1, "%s", path);
    }
    close(file);
    for (;;) {
        struct epoll_event events[16];
        int n = epoll_wait(set, events, 16, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd, good;
            if (is("take"))
                good = take(fd, buffer, sink, st.st_size, taken++ < COMPARED ? must : NULL);
            else
                good = recv(fd, request, sizeof request, MSG_WAITALL) == sizeof request && serve(fd, buffer);
            if (!good) close(fd);
        }
    }
    return NULL;
}

int main(int count, char **words) {
    if (count != 6 || atoi(words[4]) > MOST) errx(2, "FILE METHOD PIECE THREADS CONTROL");
    path = words[1], method = words[2], piece = strtoul(words[3], NULL, 10);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, words[5], strlen(words[5]))) err(1, "congestion control %s", words[5]);
    if (bind(listener, (void *)&at, size) || listen(listener, 64)) err(1, "listen");
    getsockname(listener, (void *)&at, &size);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    int threads = atoi(words[4]);
    for (int i = 0; i < threads; i++) {
        pthread_t id;
        sets[i] = epoll_create1(EPOLL_CLOEXEC);
        if (pthread_create(&id, NULL, thread, (void *)(intptr_t)sets[i])) errx(1, "no thread");
    }
    for (int i = 0;; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) err(1, "accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(sets[i % threads], EPOLL_CTL_ADD, fd, &e)) err(1, "epoll");
    }
}
