/* MSG_ZEROCOPY by the program itself over TCP: the kernel refers to the pages until it says so in the error queue; meanwhile the
 * program copies out of them; afterwards it uses them again. */
#include "process.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>

static int a, b;
static void connect_both(void) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    MUST(bind(l, (struct sockaddr *)&addr, len) == 0 && listen(l, 1) == 0);
    MUST(getsockname(l, (struct sockaddr *)&addr, &len) == 0);
    a = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(a, (struct sockaddr *)&addr, len) == 0 && (b = accept(l, NULL, NULL)) >= 0);
    int one = 1;
    MUST(setsockopt(a, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0);
    close(l);
}

static void *receives(void *arg) {
    char *buf = arg;
    for (size_t n = 0; n < SIZE;) {
        ssize_t r = recv(b, buf + n, SIZE - n, 0);
        MUST(r > 0);
        n += (size_t)r;
    }
    return NULL;
}

static void completed(unsigned sends) {
    for (unsigned done = 0; done < sends;) {
        char control[200], nothing[8];
        struct iovec part = {nothing, sizeof nothing};
        struct msghdr msg = {.msg_control = control, .msg_controllen = sizeof control, .msg_iov = &part, .msg_iovlen = 1};
        struct pollfd p = {.fd = a, .events = 0};
        poll(&p, 1, 1000);
        if (recvmsg(a, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
            MUST(errno == EAGAIN);
            continue;
        }
        struct sock_extended_err e;
        memcpy(&e, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof e);
        MUST(e.ee_origin == SO_EE_ORIGIN_ZEROCOPY);
        done += e.ee_data - e.ee_info + 1;
    }
}

int main(void) {
    connect_both();
    for (unsigned round = 0; round < 8; round++) {
        char *v = VIEW(round), *got = fresh(SIZE), *to = fresh(SIZE), *origin = fresh(SIZE);
        receive(origin, SIZE, 50 + round);
        char *sent = round % 2 ? v : origin;
        unsigned number = round % 2 ? round : 50 + round, sends = 0;
        pthread_t receiver;
        MUST(pthread_create(&receiver, NULL, receives, got) == 0);
        for (size_t n = 0; n < SIZE; sends++) {
            struct iovec part = {sent + n, SIZE - n};
            struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
            ssize_t w = round % 4 < 2 ? send(a, sent + n, SIZE - n, MSG_ZEROCOPY) : sendmsg(a, &msg, MSG_ZEROCOPY);
            MUST(w > 0);
            n += (size_t)w;
        }
        memcpy(to, sent, SIZE); /* while the kernel may refer to them */
        completed(sends);
        pthread_join(receiver, NULL);
        receive(sent, SIZE, 90);
        EXPECT_INPUT(got, SIZE, number);
        EXPECT_INPUT(to, SIZE, number);
        ELIDED_COPY(to, VIEW(91), SIZE);
        EXPECT_INPUT(sent, SIZE, 90);
    }
    return finish();
}
