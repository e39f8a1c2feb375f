// Drives several servers in short slices, in turns: the load of small.py.
//
//     small_load REQUEST BODY CONNECTIONS MILLISECONDS ROUNDS PID:PORT...
//
// In a slice each connection to one server has one request (the file REQUEST) under way. Every answer must be as long as the server's first and have what is in
// the file BODY in it. The order is another one in each round: what a server leaves behind (in the caches, to be done later) is another one's loss. Prints a line for each
// round: NANOSECONDS/ANSWERS of each server, processor time.
#define _GNU_SOURCE
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SERVERS = 64, CONNECTIONS = 1024, ROOM = 2 << 20 };

struct connection {
    int fd;
    size_t have;
    char *answer;
};

struct server {
    int pid, epoll;
    size_t size, body_at; // of an answer, and where the body begins in it
    struct connection *connections;
};

static char *request, *body;
static size_t request_size, body_size;

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    exit(1);
}

static char *content(const char *path, size_t *size) {
    FILE *file = fopen(path, "r");
    char *bytes = malloc(ROOM);
    if (!file || !bytes || !(*size = fread(bytes, 1, ROOM, file))) fail("%s cannot be read", path);
    fclose(file);
    return bytes;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double cpu(int pid) {
    char path[300];
    double sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks) fail("process %d is gone", pid);
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, task->d_name);
        FILE *file = fopen(path, "r");
        double ns = 0;
        if (file && fscanf(file, "%lf", &ns) == 1) sum += ns;
        if (file) fclose(file);
    }
    closedir(tasks);
    return sum;
}

static void ask(struct connection *c) {
    if (write(c->fd, request, request_size) != (ssize_t)request_size) fail("a request of %zu bytes was not taken", request_size);
    c->have = 0;
}

static void begin(struct server *s, int pid, int port, int connections) {
    s->pid = pid;
    s->epoll = epoll_create1(0);
    s->connections = calloc(connections, sizeof *s->connections);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0, one = 1; i < connections; i++) {
        struct connection *c = &s->connections[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->fd, (struct sockaddr *)&at, sizeof at)) fail("nothing answers on port %d", port);
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {EPOLLIN, {.ptr = c}};
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, c->fd, &event);
    }
    // The first answer says how long all are: whatever comes until a tenth of a second brings nothing more. (The first byte may take longer.)
    static char answer[ROOM];
    ask(s->connections);
    poll(&(struct pollfd){.fd = s->connections->fd, .events = POLLIN}, 1, 10000);
    for (ssize_t n = 1; n > 0; s->size += n > 0 ? n : 0) {
        usleep(100000);
        n = recv(s->connections->fd, answer + s->size, ROOM - s->size, MSG_DONTWAIT);
    }
    if (!s->size) fail("no answer on port %d", port);
    // (Looked for once: looking for 64 KB takes longer than a server takes for the answer.)
    char *found = memmem(answer, s->size, body, body_size);
    if (!found) fail("the first answer on port %d is wrong", port);
    s->body_at = found - answer;
    for (int i = 0; i < connections; i++)
        if (!(s->connections[i].answer = malloc(s->size))) fail("no memory for answers");
}

// Nanoseconds of processor time, and answers.
static double slice(struct server *s, int connections, double length, long *answers) {
    double before = cpu(s->pid), end = now() + length;
    int open = connections;
    *answers = 0;
    for (int i = 0; i < connections; i++) ask(&s->connections[i]);
    while (open > 0) {
        struct epoll_event events[256];
        int count = epoll_wait(s->epoll, events, 256, 5000);
        if (count <= 0) fail("no answer for five seconds");
        int ends = now() >= end;
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            ssize_t n = read(c->fd, c->answer + c->have, s->size - c->have);
            if (n <= 0) fail("a connection has ended");
            c->have += n;
            if (c->have < s->size) continue;
            if (memcmp(c->answer + s->body_at, body, body_size)) fail("an answer is wrong");
            ++*answers;
            if (ends)
                open--;
            else
                ask(c);
        }
    }
    usleep(300); // The server has done what comes after its last answer.
    return cpu(s->pid) - before;
}

int main(int argc, char **argv) {
    static struct server servers[SERVERS];
    int count = argc - 6;
    if (count < 1 || count > SERVERS) fail("small_load REQUEST BODY CONNECTIONS MILLISECONDS ROUNDS PID:PORT... of 1 to %d servers", SERVERS);
    request = content(argv[1], &request_size), body = content(argv[2], &body_size);
    int connections = atoi(argv[3]), rounds = atoi(argv[5]);
    if (connections < 1 || connections > CONNECTIONS) fail("1 to %d connections", CONNECTIONS);
    for (int i = 0; i < count; i++) {
        int pid, port;
        if (sscanf(argv[6 + i], "%d:%d", &pid, &port) != 2) fail("%s is not PID:PORT", argv[6 + i]);
        begin(&servers[i], pid, port, connections);
    }
    for (int round = 0; round < rounds; round++) {
        double took[SERVERS];
        long answers[SERVERS];
        int order[SERVERS];
        for (int i = 0; i < count; i++) {
            int other = rand() % (i + 1);
            order[i] = order[other], order[other] = i;
        }
        for (int i = 0, at; i < count; i++) {
            at = order[i];
            took[at] = slice(&servers[at], connections, atof(argv[4]) * 1e6, &answers[at]);
        }
        for (int i = 0; i < count; i++) printf("%.0f/%ld%c", took[i], answers[i], i + 1 < count ? ' ' : '\n');
    }
}
