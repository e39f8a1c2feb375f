/* A program of one thread, bound to no core, that receives 256 KB, copies them to a new block and touches some pages of the copy, again and
 * again: what a round takes, plainly and under uncopy (--backoff=no, so that it goes on eliding).
 *
 *   cc -O2 -fno-builtin -o /tmp/faults_in_a_loop bench/experiments/faults_in_a_loop.c
 *   for every in 64 8; do for way in "" "target/release/uncopy run --backoff=no --"; do $way /tmp/faults_in_a_loop 4000 $every; done; done
 *
 * The second number is how many pages there are from one touch to the next: 64 is one fault a round, 8 are eight. (tests/inject runs it too.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 256 << 10, PAGE = 4096, BLOCKS = 64 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: %s ROUNDS EVERY\n", words[0]);
        return 2;
    }
    int rounds = atoi(words[1]), every = atoi(words[2]), pair[2], room = 1 << 20;
    if (every < 1 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 2;
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (fork() == 0) {
        close(pair[0]);
        char *message = malloc(MESSAGE);
        memset(message, 1, MESSAGE);
        while (write(pair[1], message, MESSAGE) > 0) {}
        _exit(0);
    }
    close(pair[1]);
    char *in = malloc(MESSAGE), *blocks[BLOCKS] = {0};
    long touched = 0;
    double start = now();
    for (int i = 0; i < rounds; i++) {
        for (size_t got = 0; got < MESSAGE;) {
            ssize_t n = recv(pair[0], in + got, MESSAGE - got, 0);
            if (n <= 0) return 1;
            got += (size_t)n;
        }
        char *copy = malloc(MESSAGE);
        memcpy(copy, in, MESSAGE);
        for (size_t page = (size_t)i * 7 % (MESSAGE / PAGE); page < MESSAGE / PAGE; page += (size_t)every)
            touched += ((volatile char *)copy)[page * PAGE];
        free(blocks[i % BLOCKS]);
        blocks[i % BLOCKS] = copy;
    }
    fprintf(stderr, "%.1f us a round\n", (now() - start) / rounds);
    printf("%ld pages touched\n", touched);
    return 0;
}
