// Reads messages of 1 MB from the file IN, COUNT times. Each is copied into a new block and from there into another;
// of that half is written to OUT. All that was allocated for a message is given back to the kernel after it.
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

__attribute__((noinline)) static char *first_copy(const char *from) {
    char *to = malloc(SIZE);
    memcpy(to, from, SIZE);
    __asm__ volatile("" ::"r"(to) : "memory");
    return to;
}

__attribute__((noinline)) static char *second_copy(const char *from) {
    char *to = malloc(SIZE);
    memmove(to, from, SIZE);
    __asm__ volatile("" ::"r"(to) : "memory");
    return to;
}

int main(int argc, char **argv) {
    int in = open(argv[1], O_RDONLY), out = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600), count = atoi(argv[3]);
    if (in < 0 || out < 0 || argc != 4)
        return 1;
    // (Each block is a mapping of its own.)
    mallopt(M_MMAP_THRESHOLD, SIZE / 2);
    char *buffer = aligned_alloc(4096, SIZE);
    for (int i = 0; i < count; i++) {
        if (pread(in, buffer, SIZE, 0) != SIZE)
            return 2;
        char *one = first_copy(buffer), *two = second_copy(one);
        if (write(out, two, SIZE / 2) != SIZE / 2)
            return 3;
        free(one);
        free(two);
    }
    return 0;
}
