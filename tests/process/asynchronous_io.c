/* Asynchronous input and output: the kernel's (io_submit, by system calls) and POSIX's (threads of libc), on origins and views, while
 * the program copies. */
#include "process.h"
#include <aio.h>
#include <linux/aio_abi.h>

static aio_context_t context;

static void submit(int op, int fd, void *buf, size_t n) {
    struct iocb cb, *list = &cb;
    memset(&cb, 0, sizeof cb);
    cb.aio_lio_opcode = (uint16_t)op;
    cb.aio_fildes = (uint32_t)fd;
    cb.aio_buf = (uintptr_t)buf;
    cb.aio_nbytes = n;
    MUST(syscall(SYS_io_submit, context, 1, &list) == 1);
}
static long result(void) {
    struct io_event event;
    MUST(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1);
    return (long)event.res;
}

int main(void) {
    char *to = fresh(SIZE);
    MUST(syscall(SYS_io_setup, 8, &context) == 0);
    int file = input_file(SIZE, 1);
    for (unsigned round = 0; round < 3; round++) {
        char *v = VIEW(10 + round);
        int out = memfd_create("out", 0);
        submit(IOCB_CMD_PWRITE, out, v, SIZE); /* out of views */
        say("written %ld", result());
        EXPECT_INPUT(mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0), SIZE, 10 + round);
        submit(IOCB_CMD_PREAD, file, v + PAGE + 3, SIZE / 2); /* into views */
        say("read %ld", result());
        EXPECT_INPUT(v, PAGE + 3, 10 + round);
        EXPECT_INPUT(v + PAGE + 3, SIZE / 2, 1);
        memcpy(to, v, SIZE);
        EXPECT_INPUT(to + PAGE + 3, SIZE / 2, 1);

        /* POSIX: a thread of libc reads into what becomes views and reads out of views. */
        char *origin = fresh(SIZE), *copy = fresh(SIZE);
        receive(origin, SIZE, 20 + round);
        ELIDED_COPY(copy, origin, SIZE);
        struct aiocb a[2];
        memset(a, 0, sizeof a);
        a[0] = (struct aiocb){.aio_fildes = file, .aio_buf = origin, .aio_nbytes = SIZE};
        a[1] = (struct aiocb){.aio_fildes = out, .aio_buf = copy, .aio_nbytes = SIZE};
        MUST(aio_read(&a[0]) == 0 && aio_write(&a[1]) == 0);
        ELIDED_COPY(to, VIEW(40), SIZE);
        for (int i = 0; i < 2; i++) {
            const struct aiocb *wait[1] = {&a[i]};
            while (aio_error(&a[i]) == EINPROGRESS) aio_suspend(wait, 1, NULL);
            say("aio: %zd", aio_return(&a[i]));
        }
        EXPECT_INPUT(origin, SIZE, 1);
        EXPECT_INPUT(copy, SIZE, 20 + round);
        EXPECT_INPUT(mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0), SIZE, 20 + round);
        struct aiocb *both[2] = {&a[0], &a[1]};
        a[0].aio_lio_opcode = LIO_READ, a[1].aio_lio_opcode = LIO_WRITE;
        MUST(lio_listio(LIO_WAIT, both, 2, NULL) == 0);
        say("list: %zd %zd", aio_return(&a[0]), aio_return(&a[1]));
        memcpy(to, origin, SIZE);
        EXPECT_INPUT(to, SIZE, 1);
        close(out);
    }
    return finish();
}
