/* mincore, by function and by number, and UFFDIO_MOVE of the program's own userfaultfd: memory that is unmapped only because a copy was
 * elided is there; memory that was dropped is not. */
#include "process.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

struct move { uint64_t dst, src, len, mode; int64_t moved; };

static void ask(const char *what, char *at, size_t n) {
    unsigned char pages[2 * SIZE / PAGE + 1];
    int there = 0, same;
    memset(pages, 0xff, sizeof pages);
    int one = mincore(at, n, pages);
    for (size_t i = 0; i < (n + PAGE - 1) / PAGE; i++) there += pages[i] & 1;
    memset(pages, 0, sizeof pages);
    int two = (int)syscall(SYS_mincore, at, n, pages);
    same = there;
    for (size_t i = 0; i < (n + PAGE - 1) / PAGE; i++) same -= pages[i] & 1;
    say("%s: %d, %d pages; by number %d, %d more", what, one, there, two, -same);
}

int main(void) {
    char *v = VIEW(1);
    ask("a view", v, SIZE);
    ask("a part", v + SIZE / 4, SIZE / 2 - 17);
    ask("not at a page", v + 1, SIZE);
    MUST(madvise(v, SIZE / 2, MADV_DONTNEED) == 0);
    ask("half dropped", v, SIZE);
    EXPECT_INPUT_FROM(v + SIZE / 2, SIZE / 2, 1, SIZE / 2);
    char *never = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ask("never touched", never, SIZE);
    char *unaligned = fresh(2 * SIZE), *from = fresh(SIZE);
    receive(from, SIZE, 2);
    ELIDED_COPY(unaligned + 1234, from, SIZE);
    ask("with resident ends", unaligned, 2 * SIZE);

    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (uffd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        MUST(device >= 0 && (uffd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK)) >= 0);
    }
    struct uffdio_api api = {.api = UFFD_API, .features = 1 << 16};
    MUST(ioctl(uffd, UFFDIO_API, &api) == 0);
    for (int by_number = 0; by_number < 2; by_number++) {
        char *to = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct uffdio_register reg = {.range = {(uintptr_t)to, SIZE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        MUST(ioctl(uffd, UFFDIO_REGISTER, &reg) == 0);
        char *source = VIEW(3);
        struct move m = {(uintptr_t)to, (uintptr_t)source, SIZE, 0, 0};
        int done = by_number ? (int)syscall(SYS_ioctl, uffd, 0xc028aa05, &m) : ioctl(uffd, 0xc028aa05, &m);
        say("moved: %d, %ld bytes", done, (long)m.moved);
        EXPECT_INPUT(to, SIZE, 3);
        EXPECT_FILLED(source, SIZE, 0);
        receive(source, SIZE, 4);
        ELIDED_COPY(fresh(SIZE), source, SIZE);
        EXPECT_INPUT(source, SIZE, 4);
    }
    return finish();
}
