/* The cost of a touch of a missing page, by who answers it: a thread on the same core, on another core, wherever the scheduler puts
 * it, or the touching thread itself in a SIGBUS handler (UFFD_FEATURE_SIGBUS). One page is filled each time; beside it what a plain
 * first touch costs. The one that answers reads the message, fills the page and sleeps in poll(2) again, as uncopy's monitor
 * does.
 *
 *   cc -O2 -pthread -o /tmp/fault_answers bench/experiments/fault_answers.c && /tmp/fault_answers
 *
 * With SIGBUS the kernel's own accesses fail with EFAULT instead of waiting (the last line shows it): no range can have the one
 * for the program and the other for the kernel, so calls that nobody interposes (io_uring, inline system calls) would fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
enum { PAGES = 2000, ROUNDS = 9 };

static int uffd;
static char *memory, source[PAGE] __attribute__((aligned(4096)));

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void place(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (core < 0)
        for (int i = 0; i < sysconf(_SC_NPROCESSORS_ONLN); i++) CPU_SET(i, &set);
    else
        CPU_SET(core, &set);
    must(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

static void fill(unsigned long address) {
    struct uffdio_copy copy = {.dst = address & -PAGE, .src = (unsigned long)source, .len = PAGE};
    must(ioctl(uffd, UFFDIO_COPY, &copy) == 0 || errno == EEXIST, "UFFDIO_COPY");
}

static void *answers(void *core) {
    place((int)(long)core);
    struct pollfd ready = {.fd = uffd, .events = POLLIN};
    for (;;) {
        poll(&ready, 1, -1);
        struct uffd_msg m;
        while (read(uffd, &m, sizeof m) == sizeof m) {
            if (m.arg.pagefault.address < (unsigned long)memory + PAGE) {
                fill(m.arg.pagefault.address);
                return NULL;
            }
            fill(m.arg.pagefault.address);
        }
    }
}

static void on_sigbus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    fill((unsigned long)info->si_addr);
}

static void open_uffd(unsigned long long features) {
    uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    must(uffd >= 0, "userfaultfd");
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    must(ioctl(uffd, UFFDIO_API, &api) == 0, "UFFDIO_API");
    struct uffdio_register range = {.range = {(unsigned long)memory, (PAGES + 1) * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    must(ioctl(uffd, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
}

static int by_size(const void *a, const void *b) { return *(double *)a < *(double *)b ? -1 : 1; }

static double touch_all(void) {
    double took[PAGES];
    for (int i = 1; i <= PAGES; i++) {
        double start = now();
        *(volatile char *)(memory + i * PAGE);
        took[i - 1] = now() - start;
    }
    qsort(took, PAGES, sizeof *took, by_size);
    return took[PAGES / 2];
}

/* One line: the median over the rounds of each round's median touch. */
static void measure(const char *who, int way) {
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        memory = mmap(NULL, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(memory, (PAGES + 1) * PAGE, MADV_NOHUGEPAGE);
        pthread_t thread;
        place(0);
        if (way == 3) {
            struct sigaction act = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
            sigaction(SIGBUS, &act, NULL);
            open_uffd(UFFD_FEATURE_SIGBUS);
        } else if (way < 3) {
            open_uffd(0);
            must(pthread_create(&thread, NULL, answers, (void *)(long)(way == 2 ? -1 : way)) == 0, "pthread_create");
            usleep(1000);
        }
        rounds[r] = touch_all();
        if (way < 3) {
            *(volatile char *)memory; /* the first page ends the thread */
            pthread_join(thread, NULL);
        }
        if (way == 3 && r == 0) {
            int pipe_ends[2];
            must(pipe(pipe_ends) == 0 && write(pipe_ends[1], "x", 1) == 1, "pipe");
            int n = read(pipe_ends[0], memory, 1);
            printf("%-34s read(2) into a missing page: %s\n", "", n < 0 ? strerror(errno) : "fine");
        }
        if (way < 4) close(uffd);
        munmap(memory, (PAGES + 1) * PAGE);
    }
    qsort(rounds, ROUNDS, sizeof *rounds, by_size);
    printf("%-34s %8.0f ns (%.0f to %.0f)\n", who, rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
}

int main(void) {
    measure("the kernel (no userfaultfd)", 4);
    measure("a thread on the same core", 0);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) measure("a thread on another core", 1);
    measure("a thread anywhere", 2);
    measure("the thread itself, by SIGBUS", 3);
    return 0;
}
