/* libc's second names: a program built against older headers calls __mempcpy, __read, __write, __send, cfree, and a wrapper around
 * malloc calls __libc_free and __libc_realloc for what it got from malloc. They mean the same, and what they do is elided too. */
#include "process.h"

extern void *__mempcpy(void *, const void *, size_t);
extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t), __send(int, const void *, size_t, int);
extern ssize_t __pread64(int, void *, size_t, off_t), __pwrite64(int, const void *, size_t, off_t);
extern int __close(int), __dup2(int, int);
extern void __libc_free(void *), *__libc_realloc(void *, size_t);
extern void old_cfree(void *);
__asm__(".symver old_cfree, cfree@GLIBC_2.2.5");

static void blocks(void) {
    for (unsigned i = 0; i < 20; i++) {
        char *source = malloc(SIZE), *copy = malloc(SIZE), *other = malloc(SIZE);
        receive(source, SIZE, i);
        ELIDED_COPY(copy, source, SIZE);
        ELIDED_COPY(other, copy, SIZE);
        copy = __libc_realloc(copy, SIZE * 2);
        MUST(copy);
        if (!is_input(copy, SIZE, i, 0) || !is_input(other, SIZE, i, 0)) exit(1);
        copy = __libc_realloc(copy, SIZE / 2);
        if (!is_input(copy, SIZE / 2, i, 0)) exit(1);
        __libc_free(source);
        __libc_free(copy);
        old_cfree(other);
        __libc_free(NULL);
        __libc_free(__libc_realloc(NULL, 100));
    }
    say("blocks are freed");
}

/* Copies `n` bytes by another name; under uncopy it must be elided, as by the usual one. */
static void copy_by_another_name(void *to, const void *from, size_t n) {
    uint64_t before = elided_copies();
    MUST(__mempcpy(to, from, n) == (char *)to + n);
    if (must_be_elided() && elided_copies() == before) say("NOT ELIDED by __mempcpy");
    elided_here += elided_copies() != before;
}

int main(void) {
    int file = input_file(SIZE, 1), out = memfd_create("out", 0), pair[2];
    char *buffer = fresh(SIZE), *copy = fresh(SIZE), *again = fresh(SIZE);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (int i = 0; i < 4; i++) {
        MUST(lseek(file, 0, SEEK_SET) == 0 && lseek(out, 0, SEEK_SET) == 0);
        if (i % 2)
            MUST(__pread64(file, buffer, SIZE, 0) == (ssize_t)SIZE);
        else
            MUST(__read(file, buffer, SIZE) == (ssize_t)SIZE);
        copy_by_another_name(copy, buffer, SIZE);
        copy_by_another_name(again, copy, SIZE);
        uint64_t gathered = counter("output_bytes");
        if (i % 2)
            MUST(__pwrite64(out, again, SIZE, 0) == (ssize_t)SIZE);
        else
            MUST(__write(out, again, SIZE) == (ssize_t)SIZE);
        if (must_be_elided() && counter("output_bytes") == gathered) say("NOT ELIDED: output %d", i);
        gathered = counter("output_bytes");
        MUST(__send(pair[0], again, 64 << 10, 0) == 64 << 10);
        if (must_be_elided() && counter("output_bytes") == gathered) say("NOT ELIDED: send");
        MUST(recv(pair[1], copy, 64 << 10, MSG_WAITALL) == 64 << 10);
        EXPECT_INPUT(copy, 64 << 10, 1);
        char *written = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0);
        MUST(written != MAP_FAILED);
        EXPECT_INPUT(written, SIZE, 1);
        EXPECT_INPUT(again, SIZE, 1);
        munmap(written, SIZE);
    }

    /* Every descriptor that it does not need is closed, or taken, by the other names. */
    for (int fd = 3; fd < 1024; fd++)
        if (fd != file && fd != out && fd != pair[0] && fd != pair[1]) {
            if (fd % 2) {
                __close(fd);
            } else {
                MUST(__dup2(file, fd) == fd);
                MUST(__close(fd) == 0);
            }
        }
    blocks();
    EXPECT_INPUT(VIEW(7), SIZE, 7);
    return finish();
}
