/* A program that says something of each mapping that it finds in /proc/self/maps: locks it, has it filled, advises it. Mappings that are not
 * its own are neither filled nor locked. */
#include "process.h"

static long number_in(const char *file, const char *pattern) {
    char line[200];
    long n = -1;
    FILE *f = fopen(file, "r");
    MUST(f);
    while (fgets(line, sizeof line, f)) sscanf(line, pattern, &n);
    fclose(f);
    return n;
}

static int by_mlock(void *p, size_t n) { return mlock(p, n); }
static int by_mlock2(void *p, size_t n) { return mlock2(p, n, 0); }
static int by_number(void *p, size_t n) { return (int)syscall(SYS_mlock, p, n); }
static int filled(void *p, size_t n) { return madvise(p, n, 23 /* MADV_POPULATE_WRITE */); }
static int not_forked_twice(void *p, size_t n) { return madvise(p, n, MADV_NOHUGEPAGE); }

static const struct {
    const char *name;
    int (*call)(void *, size_t);
} calls[] = {{"mlock", by_mlock},
             {"mlock2", by_mlock2},
             {"mlock by number", by_number},
             {"filled", filled},
             {"advised", not_forked_twice}};

/* For each private mapping that can be written and has no file. Returns how many refused. */
static int of_each(int (*call)(void *, size_t)) {
    static char text[1 << 20];
    int fd = open("/proc/self/maps", O_RDONLY), refused = 0;
    size_t got = 0;
    for (ssize_t n; (n = read(fd, text + got, sizeof text - 1 - got)) > 0;) got += (size_t)n;
    text[got] = 0;
    close(fd);
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        unsigned long start, end, inode;
        char mode[8];
        MUST(sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, mode, &inode) == 4);
        if (!strcmp(mode, "rw-p") && inode == 0) refused += call((void *)start, end - start) != 0;
    }
    return refused;
}

int main(void) {
    char *v = VIEW(1);
    char *blocks[64];
    for (int i = 0; i < 64; i++) {
        MUST((blocks[i] = malloc(SIZE)));
        memset(blocks[i], i, SIZE);
    }
    for (int i = 0; i < 64; i += 2) free(blocks[i]);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        pid_t child = fork();
        if (child == 0) {
            char *w = VIEW(2);
            say("%s: refused: %d", calls[i].name, of_each(calls[i].call));
            long resident = number_in("/proc/self/status", "VmRSS: %ld kB");
            say("less than 128 MB resident: %d", resident < 128 << 10);
            EXPECT_INPUT(v, SIZE, 1);
            EXPECT_INPUT(w, SIZE, 2);
            for (int k = 1; k < 64; k += 2) MUST(is_filled(blocks[k], SIZE, (unsigned char)k));
            for (int k = 0; k < 64; k += 2) {
                blocks[k] = calloc(1, SIZE);
                MUST(blocks[k] && is_filled(blocks[k], SIZE, 0));
            }
            ELIDED_COPY(blocks[2], VIEW(3), SIZE);
            EXPECT_INPUT(blocks[2], SIZE, 3);
            _exit(0);
        }
        wait_for(calls[i].name, child);
    }
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
