// A file to a TCP connection of the loopback device, so many times, by the calls that "Zero-copy: Principle and
// Implementation" compares, and by nothing else.
//
//   transfer FILE TIMES read|mmap|sendfile
//
// A child reads what comes, and compares the first and last that it gets with the file.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void sink(int fd, int file, size_t length, int times) {
    char *buffer = malloc(length), *must = malloc(length);
    if (pread(file, must, length, 0) != (ssize_t)length) err(1, "file");
    for (int i = 0; i < times; i++) {
        if (recv(fd, buffer, length, MSG_WAITALL) != (ssize_t)length) errx(1, "the sender is gone");
        if ((i == 0 || i == times - 1) && memcmp(buffer, must, length)) errx(1, "transfer %d is wrong", i);
    }
}

int main(int count, char **words) {
    if (count != 4) errx(2, "FILE TIMES read|mmap|sendfile");
    int file = open(words[1], O_RDONLY), times = atoi(words[2]), status, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct stat st;
    if (file < 0 || fstat(file, &st)) err(1, "%s", words[1]);
    size_t length = st.st_size;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    if (bind(listener, (void *)&at, size) || listen(listener, 1)) err(1, "listen");
    getsockname(listener, (void *)&at, &size);
    pid_t child = fork();
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&at, sizeof at)) err(1, "connect");
        sink(fd, file, length, times);
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    char *buffer = aligned_alloc(4096, length);
    for (int i = 0; i < times; i++) {
        ssize_t n;
        if (!strcmp(words[3], "read")) {
            if (pread(file, buffer, length, 0) != (ssize_t)length) err(1, "read");
            n = send(fd, buffer, length, 0);
        } else if (!strcmp(words[3], "mmap")) {
            char *map = mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0);
            n = map == MAP_FAILED ? -1 : send(fd, map, length, 0);
            munmap(map, length);
        } else {
            off_t from = 0;
            n = sendfile(fd, file, &from, length);
        }
        if (n != (ssize_t)length) err(1, "%s: %zd of %zu bytes", words[3], n, length);
    }
    if (waitpid(child, &status, 0) != child || status) errx(1, "what came was wrong");
}
