/* The structures that a call names lie in views themselves: lists of buffers (across the edge of a resident page), message headers,
 * addresses, ancillary data, lengths; and a list whose page another thread's copies keep moving. The buffers are views too. */
#define MAP_CHANGES_MEANWHILE
#include "process.h"
#include <stddef.h>
#include <sys/un.h>

#define EDGE (32 * PAGE)
struct letter {
    struct iovec iov[3]; /* the first is the last of a page */
    struct mmsghdr msg;
    struct sockaddr_un name;
    socklen_t room;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
};

/* A letter as a program finds it in a copy of its own memory: all of it in views, but for the first page. */
static struct letter *posted(const struct letter *what) {
    char *from = fresh(SIZE), *to = fresh(SIZE);
    receive(from, SIZE, 1);
    struct letter *l = (struct letter *)(from + EDGE - sizeof(struct iovec));
    *l = *what;
    l->msg.msg_hdr.msg_iov = (struct iovec *)(to + EDGE - sizeof(struct iovec));
    ELIDED_COPY(to, from, SIZE);
    munmap(from, SIZE);
    l = (struct letter *)(to + EDGE - sizeof(struct iovec));
    ((volatile char *)l)[0] = ((volatile char *)l)[0];
    return l;
}

static char *target;
static struct letter blank(void) {
    struct letter l;
    memset(&l, 0, sizeof l);
    l.iov[0] = (struct iovec){target, 100};
    l.iov[1] = (struct iovec){target + SIZE / 2, 150};
    l.iov[2] = (struct iovec){target + SIZE / 2 + 200, 50};
    l.msg.msg_hdr.msg_iovlen = 3;
    return l;
}
static void arrived(const char *what, long n) {
    say("%s: %ld", what, n);
    if (is_input(target, 100, 9, 0) && is_input(target + SIZE / 2, 150, 9, 100)) is_input(target + SIZE / 2 + 200, 50, 9, 250);
    target = VIEW(5);
}

static void lists(void) {
    char chunk[300], got[300];
    int pair[2], file = memfd_create("x", MFD_CLOEXEC);
    fill(chunk, 300, 9, 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pwrite(file, chunk, 300, 0) == 300);
    for (int call = 0; call < 12; call++) {
        struct letter l = blank(), *p = posted(&l);
        long n = 0;
        if (call < 3 || call == 6) MUST(RAW(SYS_write, pair[0], chunk, 300) == 300);
        switch (call) {
        case 0: n = readv(pair[1], p->iov, 3); break;
        case 1: n = recvmsg(pair[1], &p->msg.msg_hdr, 0); break;
        case 2: n = recvmmsg(pair[1], &p->msg, 1, 0, NULL); break;
        case 3: n = preadv(file, p->iov, 3, 0); break;
        case 4: n = preadv2(file, p->iov, 3, 0, 0); break;
        case 5: MUST(lseek(file, 0, SEEK_SET) == 0); n = syscall(SYS_readv, file, p->iov, 3); break;
        case 6: n = syscall(SYS_recvmsg, pair[1], &p->msg.msg_hdr, 0); break;
        case 7: n = writev(pair[0], p->iov, 3); break;
        case 8: n = sendmsg(pair[0], &p->msg.msg_hdr, MSG_NOSIGNAL); break;
        case 9: n = sendmmsg(pair[0], &p->msg, 1, 0) == 1 ? (long)p->msg.msg_len : -1; break;
        case 10: n = pwritev(file, p->iov, 3, 0); break;
        case 11: n = pwritev2(file, p->iov, 3, 0, 0); break;
        }
        if (call < 7) {
            char what[20];
            snprintf(what, sizeof what, "call %d", call);
            arrived(what, n);
            continue;
        }
        say("call %d: %ld", call, n);
        long r = call < 10 ? RAW(SYS_read, pair[1], got, 300) : raw(SYS_pread64, file, (long)got, 300, 0, 0, 0);
        MUST(r == 300 && is_input(got, 100, 5, 0) && is_input(got + 100, 150, 5, SIZE / 2) && is_input(got + 250, 50, 5, SIZE / 2 + 200));
        MUST(raw(SYS_pwrite64, file, (long)chunk, 300, 0, 0, 0) == 300);
    }
    close(pair[0]), close(pair[1]), close(file);
}

/* Datagrams with an address and a descriptor: all that the kernel reads and writes of them lies in views. */
static void letters(void) {
    struct sockaddr_un here = {.sun_family = AF_UNIX}, there = here;
    int n = snprintf(here.sun_path + 1, 90, "uncopy-here-%d", getpid());
    snprintf(there.sun_path + 1, 90, "uncopy-ther-%d", getpid());
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int a = socket(AF_UNIX, SOCK_DGRAM, 0), b = socket(AF_UNIX, SOCK_DGRAM, 0);
    MUST(bind(a, (struct sockaddr *)&here, len) == 0 && bind(b, (struct sockaddr *)&there, len) == 0);
    for (int round = 0; round < 3; round++) {
        char chunk[300];
        fill(chunk, 300, 9, 0);
        struct letter l = blank();
        l.iov[0] = (struct iovec){chunk, 100};
        l.iov[1] = (struct iovec){chunk + 100, 150};
        l.iov[2] = (struct iovec){chunk + 250, 50};
        l.name = there;
        struct msghdr *h = &l.msg.msg_hdr;
        h->msg_namelen = len;
        h->msg_control = l.control;
        h->msg_controllen = sizeof l.control;
        struct cmsghdr *c = CMSG_FIRSTHDR(h);
        *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        int zero = 0;
        memcpy(CMSG_DATA(c), &zero, sizeof zero);
        struct letter *p = posted(&l);
        struct msghdr out = *h;
        out.msg_iov = p->iov;
        out.msg_name = &p->name;
        out.msg_control = p->control;
        say("sent: %zd", sendmsg(a, &out, 0));
        l = blank();
        l.room = sizeof l.name;
        p = posted(&l);
        if (round == 2) {
            say("received from: %zd", recvfrom(b, target + PAGE, SIZE - PAGE, 0, (struct sockaddr *)&p->name, &p->room));
            say("length of the address: %u, right: %d", p->room - len, !memcmp(&p->name, &here, len));
            is_input(target + PAGE, 300, 9, 0);
            continue;
        }
        char *room = VIEW(7);
        l.msg.msg_hdr = (struct msghdr){room + PAGE * 8, sizeof there, NULL, 3, room + PAGE * 24, sizeof l.control, 0};
        p = posted(&l);
        long got = round == 0 ? recvmsg(b, &p->msg.msg_hdr, MSG_CMSG_CLOEXEC) : recvmmsg(b, &p->msg, 1, MSG_CMSG_CLOEXEC, NULL);
        h = &p->msg.msg_hdr;
        c = CMSG_FIRSTHDR(h);
        say("address of %u bytes, right: %d; flags %x, control %zu, type %d", h->msg_namelen - len, !memcmp(room + PAGE * 8, &here, len),
            (unsigned)h->msg_flags, h->msg_controllen, c ? c->cmsg_type : -1);
        int fd = -1;
        if (c) memcpy(&fd, CMSG_DATA(c), sizeof fd);
        MUST(fcntl(fd, F_GETFD) == FD_CLOEXEC);
        close(fd);
        arrived("received", got);
    }
    close(a), close(b);
}

static char *moving, *copy;
static volatile int stop;
static void *copies(void *arg) {
    void *(*volatile make)(void *, const void *, size_t) = memcpy;
    while (!stop) make(copy, moving, SIZE);
    return arg;
}

/* Another thread's copies move the page of the list at any moment. */
static void moving_list(void) {
    moving = fresh(SIZE), copy = fresh(SIZE);
    receive(moving, SIZE, 1);
    struct iovec *iov = (struct iovec *)(moving + SIZE / 2);
    iov[0] = (struct iovec){target, 100};
    iov[1] = (struct iovec){target + SIZE / 2, 100};
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pthread_t t;
    MUST(pthread_create(&t, NULL, copies, NULL) == 0);
    char chunk[200];
    fill(chunk, 200, 9, 0);
    for (int i = 0; i < 10000; i++) {
        MUST(RAW(SYS_write, pair[0], chunk, 200) == 200);
        MUST(readv(pair[1], iov, 2) == 200);
        MUST(writev(pair[0], iov, 2) == 200);
        MUST(RAW(SYS_read, pair[1], chunk, 200) == 200 && chunk[0] == (char)input_byte(9, 0));
    }
    stop = 1;
    pthread_join(t, NULL);
    MUST(is_input(chunk, 200, 9, 0));
    say("the moving list was followed");
}

int main(void) {
    alarm(20); /* a call that never returns */
    target = VIEW(5);
    lists();
    letters();
    moving_list();
    return finish();
}
