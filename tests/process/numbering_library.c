/* A library that makes the calls of which it keeps account by number, as tcmalloc does with those that change the memory map and
 * many a preloaded library with `close`. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

int calls_by_number;
#define BY_NUMBER(...) (calls_by_number++, syscall(__VA_ARGS__))

void *mmap(void *at, size_t n, int access, int flags, int fd, off_t from) {
    return (void *)BY_NUMBER(SYS_mmap, at, n, access, flags, fd, from);
}
int munmap(void *at, size_t n) { return (int)BY_NUMBER(SYS_munmap, at, n); }
void *mremap(void *at, size_t old, size_t n, int flags, ...) {
    va_list list;
    va_start(list, flags);
    void *to = va_arg(list, void *);
    va_end(list);
    return (void *)BY_NUMBER(SYS_mremap, at, old, n, flags, to);
}
int madvise(void *at, size_t n, int advice) { return (int)BY_NUMBER(SYS_madvise, at, n, advice); }
int mprotect(void *at, size_t n, int access) { return (int)BY_NUMBER(SYS_mprotect, at, n, access); }
int close(int fd) { return (int)BY_NUMBER(SYS_close, fd); }
int dup2(int old, int new) { return (int)BY_NUMBER(SYS_dup2, old, new); }
/* In pieces. */
ssize_t write(int fd, const void *from, size_t n) {
    size_t done = 0;
    while (done < n) {
        size_t part = n - done < 50000 ? n - done : 50000;
        ssize_t r = BY_NUMBER(SYS_write, fd, (const char *)from + done, part);
        if (r <= 0) return done ? (ssize_t)done : r;
        done += (size_t)r;
    }
    return (ssize_t)done;
}
ssize_t read(int fd, void *to, size_t n) { return BY_NUMBER(SYS_read, fd, to, n); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { return BY_NUMBER(SYS_pread64, fd, to, n, at); }
ssize_t writev(int fd, const struct iovec *v, int n) { return BY_NUMBER(SYS_writev, fd, v, n); }
int prctl(int what, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    return (int)BY_NUMBER(SYS_prctl, what, a, b, c, d);
}
