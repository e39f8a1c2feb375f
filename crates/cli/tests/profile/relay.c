// Reads messages of 1 MB from the file IN, copies each three times, reads the first page of the last copy, writes it to
// OUT, COUNT times; then reads one message that goes nowhere, and writes 100,000 bytes of its own.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };
static char *buffers[4];

__attribute__((noinline)) static void first_copy(void) {
    memcpy(buffers[1], buffers[0], SIZE);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void second_copy(void) {
    memmove(buffers[2], buffers[1], SIZE);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void third_copy(void) {
    memcpy(buffers[3], buffers[2], SIZE);
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
    int in = open(argv[1], O_RDONLY), out = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600), count = atoi(argv[3]);
    volatile unsigned sum = 0;
    if (in < 0 || out < 0 || argc != 4)
        return 1;
    for (int i = 0; i < 4; i++) {
        buffers[i] = aligned_alloc(4096, SIZE);
        memset(buffers[i], i, SIZE);
    }
    for (int i = 0; i < count; i++) {
        if (pread(in, buffers[0], SIZE, 0) != SIZE)
            return 2;
        first_copy();
        second_copy();
        third_copy();
        for (int at = 0; at < 4096; at++)
            sum += (unsigned char)buffers[3][at];
        if (write(out, buffers[3], SIZE) != SIZE)
            return 3;
    }
    if (pread(in, buffers[0], SIZE, 0) != SIZE)
        return 4;
    char *own = calloc(1, 100000);
    if (write(out, own, 100000) != 100000)
        return 5;
    printf("%u\n", sum);
    return 7;
}
