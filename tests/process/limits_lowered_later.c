/* Limits lowered (setrlimit, prlimit) after the start: descriptors, address space, data, locked memory, threads, file size, stack. A
 * program can still do the same. */
#include "process.h"
#include <sys/resource.h>

static int works_on(unsigned number) {
    char *from = malloc(SIZE), *to = malloc(SIZE);
    if (!from || !to) return 0;
    /* (No descriptor may be left: input by a file that is open already.) */
    static int file = -1;
    if (file < 0) file = input_file(SIZE * 2, 77);
    if (pread(file, from, SIZE, number) != (ssize_t)SIZE) return 0;
    memcpy(to, from, SIZE);
    int ok = is_input(to, SIZE, 77, number);
    free(from);
    free(to);
    return ok;
}

int main(void) {
    char *v = VIEW(1);
    MUST(works_on(0));
    static const struct {
        const char *name;
        int what;
        rlim_t to;
    } limits[] = {{"descriptors", RLIMIT_NOFILE, 4},      {"no descriptors", RLIMIT_NOFILE, 0}, {"file size", RLIMIT_FSIZE, PAGE * 16},
                  {"locked", RLIMIT_MEMLOCK, 0},          {"stack", RLIMIT_STACK, 1 << 20},     {"pending signals", RLIMIT_SIGPENDING, 1},
                  {"address space", RLIMIT_AS, 64 << 20}, {"data", RLIMIT_DATA, 64 << 20},      {"cpu", RLIMIT_CPU, 100},
                  {"processes", RLIMIT_NPROC, 1}};
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
        pid_t child = fork();
        if (child == 0) {
            char *w = VIEW(2), *origin = fresh(SIZE), *to = fresh(SIZE);
            receive(origin, SIZE, 3);
            struct rlimit r = {limits[i].to, limits[i].to};
            signal(SIGXFSZ, SIG_IGN);
            MUST((i % 2 ? prlimit(0, (enum __rlimit_resource)limits[i].what, &r, NULL)
                        : setrlimit((enum __rlimit_resource)limits[i].what, &r)) == 0);
            memcpy(to, origin, SIZE);
            if (limits[i].what != RLIMIT_AS && limits[i].what != RLIMIT_DATA) say("%s: works on: %d", limits[i].name, works_on(100));
            EXPECT_INPUT(w, SIZE, 2);
            EXPECT_INPUT(to, SIZE, 3);
            EXPECT_INPUT(origin, SIZE, 3);
            if (limits[i].what == RLIMIT_FSIZE) {
                char *x = VIEW(4);
                int fd = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600);
                say("written up to the limit: %zd", write(fd, x, SIZE));
                say("beyond it: %zd %s", write(fd, x, SIZE), strerror(errno));
                show("limited", mmap(NULL, PAGE * 16, PROT_READ, MAP_SHARED, fd, 0), PAGE * 16);
                unlink("limited");
            }
            fflush(NULL);
            _exit(0);
        }
        wait_for(limits[i].name, child);
    }
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
