/* Calls that are not input calls but write to the program's memory, or read it: ioctl, getsockopt, readlink, getdents, stat, poll, epoll,
 * futex, getrandom, clock_gettime, sysinfo, path names, socket addresses, all with pointers into unmapped pages. */
#include "process.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <time.h>

static char *v;
/* The place in a new view: a page of its own, across a page's end. */
static char *place(unsigned number) {
    v = VIEW(number);
    return v + SIZE / 2 + PAGE - 2;
}
static void rest_is_right(unsigned number, size_t n) {
    EXPECT_INPUT(v, SIZE / 2 + PAGE - 2, number);
    EXPECT_INPUT_FROM(v + SIZE / 2 + PAGE - 2 + n, SIZE / 2 - PAGE + 2 - n, number, SIZE / 2 + PAGE - 2 + n);
}

int main(void) {
    int pair[2], n;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && write(pair[1], "12345", 5) == 5);
    char *p = place(1);
    MUST(ioctl(pair[0], FIONREAD, p) == 0);
    memcpy(&n, p, 4);
    say("FIONREAD: %d", n);
    rest_is_right(1, 4);

    p = place(2);
    char *length = VIEW(3) + SIZE / 2;
    socklen_t four = 4;
    raw(SYS_gettid, 0, 0, 0, 0, 0, 0);
    MUST(RAW(SYS_lseek, -1, 0, 0) < 0);
    memcpy(length, &four, 4);
    MUST(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, p, (socklen_t *)length) == 0);
    memcpy(&n, p, 4);
    say("SO_TYPE: %d", n);
    rest_is_right(2, 4);

    p = place(4);
    MUST(symlink("a symbolic link's target", "link") == 0);
    n = (int)readlink("link", p, 100);
    say("readlink: %.*s", n, p);
    rest_is_right(4, (size_t)n);
    unlink("link");

    /* A path name in a view: made by the kernel there, never touched by us. */
    int names = memfd_create("names", 0);
    MUST(ftruncate(names, SIZE) == 0);
    MUST(raw(SYS_pwrite64, names, (long)"file in a view", 14, SIZE / 2, 0, 0) == 14);
    char *from = fresh(SIZE), *name = fresh(SIZE);
    MUST(read(names, from, SIZE) == (ssize_t)SIZE);
    ELIDED_COPY(name, from, SIZE);
    MUST_BE_UNMAPPED(name + SIZE / 2);
    int fd = open(name + SIZE / 2, O_RDWR | O_CREAT, 0600);
    MUST(fd >= 0 && access("file in a view", R_OK) == 0);

    int directory = open(".", O_RDONLY | O_DIRECTORY);
    p = place(5) + 2;
    n = (int)syscall(SYS_getdents64, directory, p, 4 * PAGE);
    int found = memmem(p, (size_t)n, "file in a view", 14) != NULL;
    say("getdents: %d, found %d", n > 0, found);
    EXPECT_INPUT(v, SIZE / 2 + PAGE, 5);
    unlink("file in a view");

    MUST(fchmod(fd, 0640) == 0 && pwrite(fd, "xyz", 3, 0) == 3);
    p = place(6) + 2 - 64;
    MUST(fstat(fd, (struct stat *)p) == 0);
    say("size %ld, mode %o", (long)((struct stat *)p)->st_size, ((struct stat *)p)->st_mode);

    p = place(7) + 2 - 8;
    struct pollfd list[2] = {{.fd = pair[0], .events = POLLIN}, {.fd = pair[1], .events = POLLIN}};
    int lists = memfd_create("lists", 0); /* a list for poll that came as input */
    MUST(ftruncate(lists, SIZE) == 0);
    MUST(raw(SYS_pwrite64, lists, (long)list, sizeof list, SIZE / 2 - 8, 0, 0) == sizeof list);
    MUST(pread(lists, from, SIZE, 0) == (ssize_t)SIZE);
    char *polled = fresh(SIZE);
    ELIDED_COPY(polled, from, SIZE);
    struct pollfd *both = (struct pollfd *)(polled + SIZE / 2 - 8);
    n = poll(both, 2, 0);
    say("poll: %d, %x %x", n, both[0].revents, both[1].revents);

    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x1234567890};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event) == 0);
    p = place(8) + 2 - 4;
    n = epoll_wait(epoll, (struct epoll_event *)p, 4, 0);
    memcpy(&event, p, sizeof event);
    say("epoll: %d, %x %llx", n, event.events, (unsigned long long)event.data.u64);

    /* A futex in a view: waits while the word is what the view says, wakes another thread's wait there. */
    p = place(9) + 2;
    uint32_t word;
    char bytes[4];
    fill(bytes, 4, 9, SIZE / 2 + PAGE);
    memcpy(&word, bytes, 4);
    struct timespec soon = {0, 1000000};
    long result = syscall(SYS_futex, p, FUTEX_WAIT, word + 1, &soon, NULL, 0);
    say("futex, other value: %ld %s", result, strerror(errno));
    result = syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, word, &soon, NULL, 0);
    say("futex, this value: %ld %s", result, strerror(errno));
    say("futex, wake: %ld", syscall(SYS_futex, p + PAGE, FUTEX_WAKE, 1, NULL, NULL, 0));
    result = syscall(SYS_futex, p + 2 * PAGE, FUTEX_WAKE_OP_PRIVATE, 1, 1, p + 3 * PAGE,
                     FUTEX_OP(FUTEX_OP_SET, 5, FUTEX_OP_CMP_EQ, 0));
    memcpy(&word, p + 3 * PAGE, 4);
    say("futex, operation: %ld %u", result, word);

    p = place(10);
    MUST(getrandom(p, 1000, 0) == 1000);
    rest_is_right(10, 1000);
    p = place(11) + 2 - 8;
    MUST(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, p) == 0);
    EXPECT_INPUT(v, SIZE / 2, 11);
    p = place(12);
    MUST(uname((struct utsname *)p) == 0 && !strncmp(p, "Linux", 5));
    rest_is_right(12, sizeof(struct utsname));
    p = place(13) + 2 - 8;
    MUST(sysinfo((struct sysinfo *)p) == 0);
    p = place(14) + 2 - 8;
    MUST(pipe((int *)p) == 0 && write(((int *)p)[1], "p", 1) == 1);
    p = place(15);
    say("getcwd: %d", getcwd(p, PAGE) == p && p[0] == '/');
    /* Addresses of datagrams, and ancillary data. */
    int a = socket(AF_UNIX, SOCK_DGRAM, 0), b = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un me = {.sun_family = AF_UNIX, .sun_path = "\0uncopy-process"};
    snprintf(me.sun_path + 1, 60, "uncopy-process-%d", getpid());
    MUST(bind(a, (struct sockaddr *)&me, sizeof me) == 0 && connect(b, (struct sockaddr *)&me, sizeof me) == 0);
    MUST(bind(b, (struct sockaddr *)&(struct sockaddr_un){.sun_family = AF_UNIX}, sizeof(sa_family_t)) == 0);
    char *data = VIEW(16), *got = VIEW(17);
    MUST(send(b, data, SIZE / 4, 0) == (ssize_t)SIZE / 4);
    p = place(18) + 2 - 8;
    struct iovec part = {got + 5, SIZE};
    struct msghdr msg = {.msg_name = p, .msg_namelen = sizeof me, .msg_iov = &part, .msg_iovlen = 1};
    MUST(recvmsg(a, &msg, 0) == (ssize_t)SIZE / 4);
    say("family %d, flags %x", ((struct sockaddr *)p)->sa_family, msg.msg_flags);
    EXPECT_INPUT(got + 5, SIZE / 4, 16);
    EXPECT_INPUT(got, 5, 17);
    EXPECT_INPUT_FROM(got + 5 + SIZE / 4, SIZE - 5 - SIZE / 4, 17, 5 + SIZE / 4);
    /* Vectors that lie in views themselves. */
    char *lists_of_parts = fresh(SIZE);
    struct iovec two[2] = {{data, 1000}, {data + PAGE, 2000}};
    MUST(raw(SYS_pwrite64, lists, (long)two, sizeof two, SIZE / 2 - 8, 0, 0) == sizeof two);
    MUST(pread(lists, from, SIZE, 0) == (ssize_t)SIZE);
    ELIDED_COPY(lists_of_parts, from, SIZE);
    int out = memfd_create("out", 0);
    MUST(writev(out, (struct iovec *)(lists_of_parts + SIZE / 2 - 8), 2) == 3000);
    show("written", mmap(NULL, 3000, PROT_READ, MAP_SHARED, out, 0), 3000);
    return finish();
}
