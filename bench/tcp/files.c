/* A server that sends a file by sendfile again and again, and its client, which looks at what it receives or does not. Each says what processor
 * time it took for a message.
 *
 *   files serve FILE PORT
 *   files get PORT BYTES COUNT PART LOOK      receives PART bytes at most at once, and reads all of them where LOOK is 1 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 300, HEADER = 200 };

static void must(int right, const char *what) {
    if (right) return;
    perror(what);
    exit(1);
}
static double spent(void) {
    struct rusage all;
    must(getrusage(RUSAGE_SELF, &all) == 0, "getrusage");
    return all.ru_utime.tv_sec + all.ru_stime.tv_sec + (all.ru_utime.tv_usec + all.ru_stime.tv_usec) / 1e6;
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static int all(int fd, char *at, size_t n, size_t part) {
    for (size_t got = 0; got < n;) {
        ssize_t more = recv(fd, at + got, n - got < part ? n - got : part, 0);
        must(more >= 0, "recv");
        if (more == 0) return 0;
        got += (size_t)more;
    }
    return 1;
}
static struct sockaddr_in loopback(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return at;
}
static int socket_of(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    must(fd >= 0, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return fd;
}
static void no_delay(int fd) {
    int one = 1;
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
}

static void serves(const char *name, int port) {
    struct sockaddr_in at = loopback(port);
    int l = socket_of(), file = open(name, O_RDONLY);
    struct stat stat;
    must(file >= 0 && fstat(file, &stat) == 0, name);
    must(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 9) == 0, "listen");
    int fd = accept(l, NULL, NULL);
    must(fd >= 0, "accept");
    no_delay(fd);
    char byte, header[HEADER] = {0};
    double from = 0;
    size_t n = 0;
    for (; all(fd, &byte, 1, 1); n++) {
        if (n == WARM) from = spent();
        must(send(fd, header, HEADER, 0) == HEADER, "send");
        off_t place = 0;
        while (place < stat.st_size) must(sendfile(fd, file, &place, (size_t)(stat.st_size - place)) > 0, "sendfile");
    }
    printf("server %.2f\n", (spent() - from) * 1e6 / (double)(n - WARM));
}

static void gets_it(int port, size_t bytes, size_t count, size_t part, int looks) {
    struct sockaddr_in at = loopback(port);
    int fd = -1;
    for (int i = 0; i < 500 && fd < 0; i++) {
        fd = socket_of();
        if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) close(fd), fd = -1, usleep(10000);
    }
    must(fd >= 0, "connect");
    no_delay(fd);
    char header[HEADER], *room = malloc(bytes);
    must(room != NULL, "malloc");
    uint64_t sum = 0;
    double from = 0, begun = 0;
    for (size_t i = 0; i < count + WARM; i++) {
        if (i == WARM) from = spent(), begun = now();
        must(send(fd, "g", 1, 0) == 1, "send");
        must(all(fd, header, HEADER, HEADER) && all(fd, room, bytes, part), "the server has ended");
        if (looks)
            for (size_t k = 0; k + 8 <= bytes; k += 8) {
                uint64_t word;
                memcpy(&word, room + k, 8);
                sum += word;
            }
    }
    printf("client %.2f\nrate %.1f\nsum %llx\n", (spent() - from) * 1e6 / (double)count, (double)count / (now() - begun), (unsigned long long)sum);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "serve") == 0) serves(argv[2], atoi(argv[3]));
    else if (argc == 7 && strcmp(argv[1], "get") == 0)
        gets_it(atoi(argv[2]), (size_t)atol(argv[3]), (size_t)atol(argv[4]), (size_t)atol(argv[5]), atoi(argv[6]));
    else return 2;
    return 0;
}
