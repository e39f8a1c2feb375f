/* siglongjmp out of blocking input and output calls on views, from a handler, again and again; the program goes on. */
#include "process.h"
#include <sys/time.h>

static sigjmp_buf out;
static char *volatile v;

static void alarmed(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

static void soon(void) {
    struct itimerval in = {.it_value = {.tv_usec = 3000}};
    MUST(setitimer(ITIMER_REAL, &in, NULL) == 0);
}

int main(void) {
    signal(SIGALRM, alarmed);
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    v = VIEW(1);
    for (volatile unsigned round = 0; round < 40; round++) {
        if (sigsetjmp(out, 1) == 0) {
            soon();
            switch (round % 4) {
            case 0: say("received %zd", recv(pair[0], v, SIZE, 0)); break;
            case 1: say("read %zd", read(pair[0], v + 9, SIZE - 9)); break;
            case 2: {
                struct iovec parts[2] = {{v, SIZE / 2}, {v + SIZE / 2, SIZE / 2}};
                struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
                say("received %zd", recvmsg(pair[0], &msg, MSG_WAITALL));
                break;
            }
            case 3:
                for (;;) { /* until the socket is full and the call blocks */
                    MUST(write(pair[1], v, SIZE) > 0);
                }
            }
        }
        if (round % 4 == 3) { /* what arrived are whole or cut copies of the views */
            char *got = fresh(SIZE);
            size_t n = 0;
            ssize_t r;
            while ((r = recv(pair[0], got, SIZE - n % SIZE, MSG_DONTWAIT)) > 0) {
                MUST(is_input(got, (size_t)r, 1 + round / 4, n % SIZE));
                n += (size_t)r;
            }
            MUST(n > 0);
            munmap(got, SIZE);
            EXPECT_INPUT(v, SIZE, 1 + round / 4);
            munmap(v, SIZE);
            v = VIEW(2 + round / 4);
        }
    }
    EXPECT_INPUT(v, SIZE, 11);
    return finish();
}
