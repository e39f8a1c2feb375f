/* Between the program and libc stands a library that makes calls by number: each is made once, on views and on other memory; the
 * program makes some by number itself. */
#include "process.h"
#include <sys/prctl.h>

extern int calls_by_number;

int main(void) {
    alarm(20);
    char *view = VIEW(1);
    int before = calls_by_number, file = input_file(SIZE, 2), out = memfd_create("out", 0);
    MUST(calls_by_number == before);
    MUST(write(out, view, SIZE) == (ssize_t)SIZE);
    char *sent = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0);
    MUST(sent != MAP_FAILED);
    EXPECT_INPUT(sent, SIZE, 1);
    struct iovec parts[2] = {{view, PAGE * 9}, {view + PAGE * 20, PAGE}};
    MUST(writev(out, parts, 2) == (ssize_t)PAGE * 10);
    MUST(pread(file, view, SIZE, 0) == (ssize_t)SIZE);
    EXPECT_INPUT(view, SIZE, 2);
    MUST(read(out, view, SIZE) == 0);

    view = VIEW(3);
    char *moved = mremap(view, SIZE, SIZE * 2, MREMAP_MAYMOVE);
    MUST(moved != MAP_FAILED);
    EXPECT_INPUT(moved, SIZE, 3);
    view = VIEW(4);
    MUST(mprotect(view, SIZE, PROT_READ) == 0);
    EXPECT_INPUT(view, SIZE, 4);
    view = VIEW(5);
    MUST(madvise(view, SIZE, MADV_DONTNEED) == 0);
    EXPECT_FILLED(view, SIZE, 0);
    view = VIEW(6);
    MUST(munmap(view, PAGE * 8) == 0);
    EXPECT_INPUT_FROM(view + PAGE * 8, SIZE - PAGE * 8, 6, PAGE * 8);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    view = VIEW(7);
    int copy = dup2(file, 100);
    MUST(copy == 100 && close(copy) == 0 && close(copy) < 0);
    EXPECT_INPUT(view, SIZE, 7);
    say("calls of the library: %s", calls_by_number > before ? "some" : "none");

    view = VIEW(8);
    MUST(syscall(SYS_pwrite64, out, view, SIZE, 0l) == (ssize_t)SIZE);
    EXPECT_INPUT(sent, SIZE, 8);
    char *own = (char *)syscall(SYS_mmap, 0l, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0l);
    receive(own, SIZE, 9);
    ELIDED_COPY(view, own, SIZE);
    MUST(syscall(SYS_munmap, own, SIZE) == 0);
    EXPECT_INPUT(view, SIZE, 9);
    MUST(syscall(SYS_close, out) == 0 && syscall(SYS_close, out) < 0);
    return finish();
}
