/* Files that the kernel makes up (procfs) take each write as a whole, and some answer each read anew: written and read by one call, out
 * of and into memory of which a part is a view. The name of a thread is such a file. */
#include "process.h"

int main(void) {
    alarm(20);
    char got[64];
    int comm = open("/proc/self/comm", O_RDWR);
    MUST(comm >= 0);
    for (int round = 0; round < 4; round++) {
        char *from = fresh(SIZE), *to = fresh(SIZE);
        receive(from, SIZE, 1);
        char *text = from + 32 * PAGE - 7, *copied = to + 32 * PAGE - 7;
        memcpy(text, "uncopy-name!", 12);
        ELIDED_COPY(to, from, SIZE);
        MUST_BE_UNMAPPED(to + 31 * PAGE);
        ((volatile char *)to)[32 * PAGE] = (char)('0' + round); /* the second part of the name is resident */
        long n = 0;
        struct iovec two[2] = {{copied, 5}, {copied + 5, 7}};
        switch (round) {
        case 0: n = write(comm, copied, 12); break;
        case 1: n = pwrite(comm, copied, 12, 0); break;
        case 2: n = syscall(SYS_write, comm, copied, 12); break;
        case 3: n = writev(comm, two, 2); break; /* two writes for the kernel, too */
        }
        long r = raw(SYS_pread64, comm, (long)got, sizeof got, 0, 0, 0);
        say("wrote %ld, the name is %.*s", n, (int)(r > 0 ? r - 1 : 0), got);
        MUST(lseek(comm, 0, SEEK_SET) == 0);
        memset(to + 32 * PAGE, 'x', 100);
        n = read(comm, copied, 100); /* into a view and a resident page */
        say("read %ld: %.*s", n, (int)(n > 0 ? n - 1 : 0), copied);
        munmap(from, SIZE), munmap(to, SIZE);
    }
    /* A larger one, that is read in pieces. */
    int limits = open("/proc/self/limits", O_RDONLY);
    MUST(limits >= 0);
    char *a = VIEW(3), *b = VIEW(4);
    ((volatile char *)a)[32 * PAGE] = 0;
    long n = read(limits, a + 32 * PAGE - 100, SIZE / 2), plain = raw(SYS_pread64, limits, (long)b, SIZE / 2, 0, 0, 0);
    say("limits: %d, %d", n == plain && n > 100, !memcmp(a + 32 * PAGE - 100, b, (size_t)n));
    return finish();
}
