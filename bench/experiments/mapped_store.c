/* Whether `stat` tells of a store to a file that is mapped for writing: of the first one to a page, and of those that follow while the page is
 * dirty. (So whether a file that somebody has mapped can be known to be unchanged, without a lease.)
 *
 *   cc -O2 mapped_store.c && ./a.out DIRECTORY */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int same(const struct statx *a, const struct statx *b) {
    return memcmp(&a->stx_mtime, &b->stx_mtime, sizeof a->stx_mtime) == 0 && memcmp(&a->stx_ctime, &b->stx_ctime, sizeof a->stx_ctime) == 0 &&
           a->stx_size == b->stx_size;
}

int main(int argc, char **argv) {
    char name[500];
    snprintf(name, sizeof name, "%s/mapped-store", argc > 1 ? argv[1] : "/tmp");
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) return perror(name), 1;
    volatile char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return perror("mmap"), 1;
    struct statx before, now;
    int told[2] = {0, 0};
    for (int i = 0; i <= 1000; i++) {
        usleep(i ? 2000 : 20000);
        statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &before);
        at[0] = (char)(i + 1);
        statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &now);
        told[i > 0] += !same(&before, &now);
    }
    unlink(name);
    printf("first store: told %d of 1; later ones: told %d of 1000\n", told[0], told[1]);
    return 0;
}
