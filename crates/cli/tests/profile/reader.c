// Reads messages of 1 MB from the file IN, COUNT times. Each is copied into a block, and from there into another, of
// which every byte is looked at.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

__attribute__((noinline)) static void first_copy(char *to, const char *from) {
    memcpy(to, from, SIZE);
    __asm__ volatile("" ::"r"(to) : "memory");
}

__attribute__((noinline)) static void second_copy(char *to, const char *from) {
    memmove(to, from, SIZE);
    __asm__ volatile("" ::"r"(to) : "memory");
}

int main(int argc, char **argv) {
    int in = open(argv[1], O_RDONLY), count = atoi(argv[2]);
    char *buffer = aligned_alloc(4096, SIZE), *one = aligned_alloc(4096, SIZE), *two = aligned_alloc(4096, SIZE);
    unsigned long sum = 0;
    if (in < 0 || argc != 3)
        return 1;
    for (int i = 0; i < count; i++) {
        if (pread(in, buffer, SIZE, 0) != SIZE)
            return 2;
        first_copy(one, buffer);
        second_copy(two, one);
        for (int at = 0; at < SIZE; at++)
            sum += (unsigned char)two[at];
    }
    printf("%lu\n", sum);
    return 0;
}
