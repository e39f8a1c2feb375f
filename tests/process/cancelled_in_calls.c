/* pthread_cancel of threads that block in input and output calls on views; their cleanup handlers use the views. */
#define MAP_CHANGES_MEANWHILE
#include "process.h"

static int pair[2], nothing[2];
static char *views[6];
static volatile int cleaned;

static void cleanup(void *arg) {
    unsigned i = (unsigned)(uintptr_t)arg;
    if (is_input(views[i], PAGE, 10 + i, 0)) __sync_fetch_and_add(&cleaned, 1);
}

static void *blocks(void *arg) {
    uintptr_t i = (uintptr_t)arg;
    pthread_cleanup_push(cleanup, arg);
    struct iovec part = {views[i] + PAGE, SIZE - PAGE};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
    switch (i) {
    case 0: recv(nothing[0], views[i] + PAGE, SIZE - PAGE, 0); break;
    case 1: recvmsg(nothing[0], &msg, 0); break;
    case 2: MUST(read(nothing[0], views[i] + PAGE, SIZE - PAGE) > 0); break;
    case 3: MUST(readv(nothing[0], &part, 1) > 0); break;
    case 4:
        for (;;) MUST(write(pair[1], views[i], SIZE) > 0);
    default:
        for (;;) MUST(sendmsg(pair[0], &msg, 0) > 0);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, nothing) == 0);
    for (int round = 0; round < 5; round++) {
        pthread_t threads[6];
        for (uintptr_t i = 0; i < 6; i++) {
            views[i] = VIEW(10 + i);
            MUST(pthread_create(&threads[i], NULL, blocks, (void *)i) == 0);
        }
        usleep(20000); /* most block by now; right in any case */
        for (int i = 0; i < 6; i++) {
            void *result;
            MUST(pthread_cancel(threads[i]) == 0 && pthread_join(threads[i], &result) == 0);
            say("thread %d: %s", i, result == PTHREAD_CANCELED ? "cancelled" : "ended");
        }
        for (unsigned i = 0; i < 6; i++) {
            EXPECT_INPUT(views[i], SIZE, 10 + i);
            munmap(views[i], SIZE);
        }
        char *drained = fresh(SIZE);
        while (recv(pair[0], drained, SIZE, MSG_DONTWAIT) > 0) {}
        while (recv(pair[1], drained, SIZE, MSG_DONTWAIT) > 0) {}
        munmap(drained, SIZE);
    }
    say("cleaned up: %d", cleaned);
    return finish();
}
