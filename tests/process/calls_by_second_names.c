/* Functions of a program's own that go on by libc's second name for the same (`__connect` for
 * `connect`): each call comes to the program's function once. */
#include "process.h"
#include <sys/select.h>

extern int __connect(int, const struct sockaddr *, socklen_t), __dup2(int, int);
extern int __fcntl(int, int, ...), __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
extern ssize_t __pwrite64(int, const void *, size_t, off_t), __send(int, const void *, size_t, int);

static int calls;

int connect(int fd, const struct sockaddr *name, socklen_t n) { return calls++, __connect(fd, name, n); }
int dup2(int from, int to) { return calls++, __dup2(from, to); }
int fcntl(int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    long argument = va_arg(list, long);
    va_end(list);
    return calls++, __fcntl(fd, command, argument);
}
int select(int n, fd_set *in, fd_set *out, fd_set *bad, struct timeval *time) {
    return calls++, __select(n, in, out, bad, time);
}
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) { return calls++, __pwrite64(fd, from, n, at); }
ssize_t send(int fd, const void *from, size_t n, int flags) { return calls++, __send(fd, from, n, flags); }

int main(void) {
    char *from = fresh(SIZE), *to = fresh(SIZE);
    int out = memfd_create("out", 0), listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    MUST(!bind(listener, (struct sockaddr *)&name, length) && !listen(listener, 1));
    MUST(!getsockname(listener, (struct sockaddr *)&name, &length));
    receive(from, SIZE, 1);
    ELIDED_COPY(to, from, SIZE);
    calls = 0;
    MUST(!connect(fd, (struct sockaddr *)&name, length));
    MUST(send(fd, to, 100, 0) == 100 && pwrite(out, to, SIZE, 0) == (ssize_t)SIZE);
    int other = fcntl(fd, F_DUPFD, 100);
    MUST(other >= 100 && dup2(out, other) == other && fcntl(other, F_GETFD) == 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(listener, &set);
    MUST(select(listener + 1, &set, NULL, NULL, NULL) == 1);
    say("%d calls", calls);
    EXPECT_INPUT(to, SIZE, 1);
    return finish();
}
