/* A program with a userfaultfd of its own: on memory that also gets input and copies, in missing and in write-protect mode. */
#include "process.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>

static int uffd;
static char *lazy;
static volatile int served, protected_writes;

static void *serves(void *unused) {
    (void)unused;
    char *page = fresh(PAGE);
    for (;;) {
        struct uffd_msg msg;
        ssize_t n = read(uffd, &msg, sizeof msg);
        if (n != sizeof msg) return NULL;
        if (msg.event != UFFD_EVENT_PAGEFAULT) continue;
        uint64_t at = msg.arg.pagefault.address & ~(PAGE - 1);
        if (msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
            struct uffdio_writeprotect wp = {.range = {at, PAGE}, .mode = 0};
            protected_writes++;
            MUST(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp) == 0);
            continue;
        }
        fill(page, PAGE, 7, at - (uintptr_t)lazy);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        served++;
        if (ioctl(uffd, UFFDIO_COPY, &copy) != 0) MUST(errno == EEXIST);
    }
}

int main(void) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (uffd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        MUST(device >= 0 && (uffd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC)) >= 0);
    }
    struct uffdio_api api = {.api = UFFD_API};
    MUST(ioctl(uffd, UFFDIO_API, &api) == 0);
    char *v = VIEW(1);
    lazy = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register reg = {.range = {(uintptr_t)lazy, SIZE},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    MUST(ioctl(uffd, UFFDIO_REGISTER, &reg) == 0);
    pthread_t server;
    MUST(pthread_create(&server, NULL, serves, NULL) == 0);

    send_on("sent out of lazy memory", lazy, SIZE / 2); /* the kernel faults */
    say("pages served: %d", served);
    receive(lazy, SIZE / 4, 2);                /* input over served pages */
    receive(lazy + SIZE / 2, SIZE / 4, 3);     /* and over missing ones */
    char *copy = fresh(SIZE);
    memcpy(copy, lazy, SIZE); /* out of it: input, lazy pages, input, lazy pages */
    EXPECT_INPUT(copy, SIZE / 4, 2);
    EXPECT_INPUT_FROM(copy + SIZE / 4, SIZE / 4, 7, SIZE / 4);
    EXPECT_INPUT(copy + SIZE / 2, SIZE / 4, 3);
    EXPECT_INPUT_FROM(copy + SIZE / 4 * 3, SIZE / 4, 7, SIZE / 4 * 3);
    memcpy(lazy + 100, v, SIZE - 200); /* into it */
    EXPECT_INPUT(lazy + 100, SIZE - 200, 1);
    say("pages served: %d", served);

    struct uffdio_writeprotect wp = {.range = {(uintptr_t)lazy, SIZE}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    MUST(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp) == 0);
    memcpy(copy, lazy, SIZE);
    say("writes seen after reading: %d", protected_writes);
    memcpy(lazy, v, SIZE);
    say("writes seen after writing: %d", protected_writes);
    EXPECT_INPUT(lazy, SIZE, 1);

    /* The program takes memory over that holds views: the kernel allows one owner only. */
    char *held = VIEW(4);
    struct uffdio_register again = {.range = {(uintptr_t)held, SIZE},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    MUST(ioctl(uffd, UFFDIO_REGISTER, &again) == 0);
    int before = served;
    EXPECT_INPUT(held, SIZE, 4);
    wp.range = again.range;
    protected_writes = 0;
    MUST(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp) == 0);
    receive(held, SIZE, 5);
    memcpy(lazy, held, SIZE);
    EXPECT_INPUT(lazy, SIZE, 5);
    say("taken over: %d pages served, %d writes seen", served - before, protected_writes);
    return finish();
}
