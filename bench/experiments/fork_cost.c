/* The cost of fork to a program whose copies are elided: fork and _exit in the child, fork and exec, with so many views in the
 * parent.
 *
 *   cc -O2 -fno-builtin -o fork_cost fork_cost.c
 *   ./fork_cost VIEWS [ROUNDS]; uncopy run --backoff=no -- ./fork_cost VIEWS [ROUNDS]
 *
 * Prints the median and the least of each, in us, from before fork until the parent has waited for the child. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const size_t SIZE = 32 << 10;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}
static int ascending(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

static void measure(const char *name, int rounds, char *const *program, char *touch) {
    double *took = malloc((size_t)rounds * sizeof *took);
    for (int i = 0; i < rounds; i++) {
        double start = now();
        int status, pid = fork();
        if (pid == 0) {
            if (program) execv(program[0], program);
            if (touch) ((volatile char *)touch)[SIZE / 2];
            _exit(0);
        }
        if (waitpid(pid, &status, 0) != pid || status) exit(1);
        took[i] = now() - start;
    }
    qsort(took, (size_t)rounds, sizeof *took, ascending);
    printf("%-22s %8.0f us (least %.0f)\n", name, took[rounds / 2], took[0]);
    free(took);
}

int main(int count, char **arguments) {
    size_t views = count > 1 ? (size_t)atol(arguments[1]) : 10;
    int rounds = count > 2 ? atoi(arguments[2]) : 200;
    int zero = open("/dev/zero", O_RDONLY);
    char *from = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *to = mmap(NULL, (views + 1) * 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (zero < 0 || from == MAP_FAILED || to == MAP_FAILED) return 1;
    memset(to, 1, (views + 1) * 2 * SIZE);
    /* At least one, so that uncopy has begun; that one is unmapped again. */
    for (size_t i = 0; i <= views; i++) {
        if (read(zero, from, SIZE) != (ssize_t)SIZE) return 1;
        memcpy(to + i * 2 * SIZE, from, SIZE);
    }
    munmap(to + views * 2 * SIZE, SIZE);
    munmap(from, SIZE);
    char *program[] = {"/bin/true", NULL};
    measure("fork, _exit", rounds, NULL, NULL);
    if (views) measure("fork, touch, _exit", rounds, NULL, to);
    measure("fork, exec", rounds / 2, program, NULL);
    return 0;
}
