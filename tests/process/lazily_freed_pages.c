/* Pages that MADV_FREE has left to the kernel to take are copied, and so moved away; then memory runs short. The copied bytes stay, and
 * a thread that touches them goes on. */
#include "process.h"

/* Takes what may be taken of all private memory of this process. (Past the library: pages of its own are meant, too.) */
static void memory_runs_short(void) {
    static char text[1 << 20];
    int fd = open("/proc/self/maps", O_RDONLY);
    MUST(fd >= 0);
    size_t n = 0;
    for (ssize_t r; (r = RAW(SYS_read, fd, text + n, sizeof text - 1 - n)) > 0;) n += (size_t)r;
    close(fd);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long from, to, inode;
        char mode[5];
        if (sscanf(line, "%lx-%lx %4s %*x %*s %lu", &from, &to, mode, &inode) < 4) continue;
        if (mode[0] == 'r' && mode[3] == 'p' && !inode) RAW(SYS_madvise, from, to - from, MADV_PAGEOUT);
    }
}

int main(void) {
    char *from = fresh(SIZE), *to = fresh(SIZE);
    receive(from, SIZE, 9);
    /* (Pages that were freed lazily are taken once other pages have come.) */
    for (int i = 0; i < 64; i++) fresh(64 * PAGE);
    MUST(madvise(from + SIZE / 4 * 3, SIZE / 4, MADV_FREE) == 0);
    ELIDED_COPY(to, from, SIZE);
    memory_runs_short();
    alarm(60);
    EXPECT_INPUT(to, SIZE / 4 * 3, 9);
    /* Each page of what was freed is as it was or zeros, and stays that. */
    for (size_t i = SIZE / 4 * 3; i < SIZE; i += PAGE)
        if (to[i + 5] && (unsigned char)to[i + 5] != input_byte(9, i + 5)) say("WRONG: page %zu", i / PAGE), exit(1);
    return finish();
}
