/* The gain of letting the answer wait for a sync, and not the program (external synchrony), and whether all that leaves a process
 * can be seen from one place. A library to preload, for bench/experiments/answers.py, which builds it and lists the places.
 *
 * - `fsync` and `fdatasync` of a regular file return at once. A thread makes them, many as one.
 * - Every `syscall` instruction of libc and the dynamic linker is led through a gate (GATE_SITES: file, address of the first
 *   displaced instruction, of the system call, of the end). The gate costs a compare while nothing waits.
 * - While something waits, bytes for stream sockets go into a queue that leaves in order when the syncs before it are durable.
 *   A call that is known to stay in the process is made as it is. All else waits in its call: files, pipes, signals, children,
 *   the end.
 *
 * ANSWERS_SLOW: so many ms more for each sync, so that what leaves early is seen to. ANSWERS_LEAVE: numbers of system
 * calls that do not wait: that the attacks see it. A prototype: io_uring, shared mappings, pages in pipes, system calls that
 * other objects make themselves, and peers that do not receive are not heeded; what it executes, and its children, sync as ever. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FDS = 4096, FILES = 16, MOST = 64 << 20, AREA = 256 << 10 };

/* The kernel itself, past the gate. */
static long kernel(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return n;
}

struct piece {
    struct piece *next;
    unsigned long number;
    int fd;
    size_t n;
    char bytes[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given_more = PTHREAD_COND_INITIALIZER, done_more = PTHREAD_COND_INITIALIZER;
static unsigned long given, durable;
static size_t queued, waiting[FDS];
static struct piece *first, **last = &first;
static int files[FILES], count, flushing[FILES], flushes_of, begun;
static long slow_ms;
static char leaves_early[512];
static int is_child;
static pthread_t thread;
/* The word that the gate looks at: whether something waits. */
static volatile long *pending;

static int is_file(int fd) {
    struct stat s;
    return !kernel(SYS_fstat, fd, (long)&s, 0, 0, 0, 0) && S_ISREG(s.st_mode);
}

static int is_stream(int fd) {
    int type = 0;
    socklen_t n = sizeof type;
    long got = kernel(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, (long)&type, (long)&n, 0);
    return fd < FDS && !got && type == SOCK_STREAM;
}

/* (With the lock.) */
static void tell(void) { *pending = given != durable || queued; }

/* (With the lock.) Bytes that may leave do; a peer that does not receive makes all others wait, in this
 * prototype. */
static void send_what_may(void) {
    while (first && first->number <= durable) {
        struct piece *p = first;
        for (size_t at = 0; at < p->n;) {
            long n = kernel(SYS_sendto, p->fd, (long)(p->bytes + at), p->n - at, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
            if (n > 0) {
                at += n;
            } else if (n == -EAGAIN) {
                struct pollfd one = {.fd = p->fd, .events = POLLOUT};
                kernel(SYS_poll, (long)&one, 1, 1000, 0, 0, 0);
            } else {
                break;
            }
        }
        queued -= p->n;
        waiting[p->fd] -= p->n;
        if (!(first = p->next)) last = &first;
        free(p);
    }
}

__attribute__((noreturn)) static void *flushes(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (given == durable) pthread_cond_wait(&given_more, &lock);
        unsigned long upto = given;
        flushes_of = count;
        memcpy(flushing, files, sizeof files);
        count = 0;
        pthread_mutex_unlock(&lock);
        struct timespec more = {slow_ms / 1000, slow_ms % 1000 * 1000000};
        if (slow_ms) kernel(SYS_nanosleep, (long)&more, 0, 0, 0, 0, 0);
        for (int i = 0; i < flushes_of; i++)
            /* (The program was told that it is durable.) */
            if (kernel(SYS_fdatasync, flushing[i], 0, 0, 0, 0, 0)) kernel(SYS_kill, getpid(), SIGKILL, 0, 0, 0, 0);
        if (slow_ms) kernel(SYS_write, 2, (long)"durable\n", 8, 0, 0, 0);
        pthread_mutex_lock(&lock);
        durable = upto;
        flushes_of = 0;
        send_what_may();
        tell();
        pthread_cond_broadcast(&done_more);
    }
}

static long later(int fd) {
    pthread_mutex_lock(&lock);
    if (!begun) begun = !pthread_create(&thread, NULL, flushes, NULL);
    int known = 0;
    for (int i = 0; i < count; i++) known |= files[i] == fd;
    while (!known && count == FILES) pthread_cond_wait(&done_more, &lock);
    if (!known) files[count++] = fd;
    given++;
    tell();
    pthread_cond_signal(&given_more);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void wait_for_all(void) {
    if (!begun || pthread_equal(pthread_self(), thread)) return;
    pthread_mutex_lock(&lock);
    while (given != durable || queued) pthread_cond_wait(&done_more, &lock);
    pthread_mutex_unlock(&lock);
}

/* The bytes of a call go into the queue, or it is told to be made. */
static int queue(int fd, const struct iovec *iov, long n, long *result) {
    size_t all = 0;
    for (long i = 0; i < n; i++) all += iov[i].iov_len;
    pthread_mutex_lock(&lock);
    while (queued + all > MOST && queued) pthread_cond_wait(&done_more, &lock);
    /* (Whether it takes bytes at all: a call without any says so.) */
    long takes = kernel(SYS_sendto, fd, 0, 0, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
    if ((given == durable && !waiting[fd]) || takes < 0) {
        pthread_mutex_unlock(&lock);
        return 0;
    }
    struct piece *p = malloc(sizeof *p + all);
    *p = (struct piece){.number = given, .fd = fd, .n = all};
    for (long i = 0, at = 0; i < n; at += iov[i++].iov_len) memcpy(p->bytes + at, iov[i].iov_base, iov[i].iov_len);
    *last = p;
    last = &p->next;
    queued += all;
    waiting[fd] += all;
    tell();
    pthread_mutex_unlock(&lock);
    *result = all;
    return 1;
}

/* Whether others see that this process reads there: it makes room for who writes, or moves a position that is theirs, too.
 * (Numbers up to 2 are the ones that it has from others, in this prototype.) */
static int is_shared(int fd) {
    struct stat s;
    int domain = 0;
    socklen_t n = sizeof domain;
    if (fd <= 2 || kernel(SYS_fstat, fd, (long)&s, 0, 0, 0, 0) || S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode)) return 1;
    return S_ISSOCK(s.st_mode) && (kernel(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, (long)&domain, (long)&n, 0) || domain == AF_UNIX);
}

/* The calls of a process that others cannot see. */
static int stays(long n, long a, long b, long c) {
    switch (n) {
    case SYS_read: case SYS_pread64: case SYS_readv: case SYS_preadv: case SYS_recvfrom: case SYS_recvmsg: case SYS_recvmmsg:
    case SYS_lseek: case SYS_accept: case SYS_accept4:
        return !is_shared(a);
    case SYS_poll: case SYS_ppoll: case SYS_select: case SYS_pselect6: case SYS_epoll_wait: case SYS_epoll_pwait:
    case SYS_epoll_ctl: case SYS_epoll_create1: case SYS_futex: case SYS_munmap: case SYS_mprotect: case SYS_madvise:
    case SYS_brk: case SYS_mremap: case SYS_fstat: case SYS_stat: case SYS_lstat: case SYS_newfstatat: case SYS_statx:
    case SYS_getpid: case SYS_gettid: case SYS_getppid: case SYS_getuid: case SYS_geteuid: case SYS_getgid:
    case SYS_getegid: case SYS_clock_gettime: case SYS_clock_nanosleep: case SYS_nanosleep: case SYS_gettimeofday: case SYS_time:
    case SYS_rt_sigaction: case SYS_rt_sigprocmask: case SYS_rt_sigreturn: case SYS_sigaltstack: case SYS_sched_yield:
    case SYS_getrandom: case SYS_getsockopt: case SYS_getsockname: case SYS_getpeername: case SYS_socket: case SYS_pipe2: case SYS_eventfd2: case SYS_access: case SYS_readlink: case SYS_getdents64:
    case SYS_getcwd: case SYS_uname: case SYS_sysinfo: case SYS_getrusage: case SYS_times: case SYS_membarrier:
    case SYS_set_robust_list: case SYS_exit: case SYS_sched_getaffinity: case SYS_wait4: case SYS_mmap:
    case SYS_rseq:
        return 1;
    case SYS_openat:
        return (c & (O_ACCMODE | O_CREAT | O_TRUNC)) == O_RDONLY;
    case SYS_fcntl:
        return b == F_GETFL || (b == F_SETFL && !is_shared(a)) || b == F_GETFD || b == F_SETFD;
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev: {
        /* The file that is being made durable itself. */
        int is = 0;
        pthread_mutex_lock(&lock);
        for (int i = 0; i < count; i++) is |= files[i] == a;
        for (int i = 0; i < flushes_of; i++) is |= flushing[i] == a;
        pthread_mutex_unlock(&lock);
        return is;
    }
    }
    return 0;
}

struct call {
    long r9, r8, r10, rdx, rsi, rdi, rax;
};

/* A system call while something waits, or a sync. Whether it was made. */
__attribute__((used)) static long gate(struct call *call) {
    long n = call->rax, a = call->rdi, b = call->rsi, c = call->rdx;
    if (n == SYS_fsync || n == SYS_fdatasync) {
        if (is_child || !is_file(a)) return 0;
        call->rax = later(a);
        return 1;
    }
    if (!*pending || (n >= 0 && n < 512 && leaves_early[n]) || stays(n, a, b, c)) return 0;
    long made = 0;
    int usual = !(call->r10 & ~(MSG_NOSIGNAL | MSG_DONTWAIT)) && !call->r8;
    struct iovec one = {(void *)b, c};
    if ((n == SYS_write || (n == SYS_sendto && usual)) && is_stream(a)) made = queue(a, &one, 1, &call->rax);
    else if (n == SYS_writev && is_stream(a)) made = queue(a, (struct iovec *)b, c, &call->rax);
    else if (n == SYS_sendmsg && is_stream(a) && !(c & ~(MSG_NOSIGNAL | MSG_DONTWAIT))) {
        struct msghdr *m = (struct msghdr *)b;
        if (!m->msg_controllen && !m->msg_name) made = queue(a, m->msg_iov, m->msg_iovlen, &call->rax);
    }
    if (!made) wait_for_all();
    return made;
}

/* From a site: all registers stay; CF: the call was made. (rcx and r11 are the system call's to change.) */
void gate_enter(void);
__asm__(".text\n.globl gate_enter\n.hidden gate_enter\ngate_enter:\n"
        "push %rbp\nmov %rsp, %rbp\npush %rax\npush %rdi\npush %rsi\npush %rdx\npush %r10\npush %r8\npush %r9\n"
        "mov %rsp, %rdi\nsub $576, %rsp\nand $-64, %rsp\nfxsave64 (%rsp)\ncld\ncall gate\nfxrstor64 (%rsp)\n"
        "mov %rax, %r11\nlea -56(%rbp), %rsp\npop %r9\npop %r8\npop %r10\npop %rdx\npop %rsi\npop %rdi\npop %rax\npop %rbp\n"
        "neg %r11\nret\n");

static uint8_t *area, *at;

static void put(const void *bytes, size_t n) {
    memcpy(at, bytes, n);
    at += n;
}

static void put_relative(const char *code, size_t n, const uint8_t *to) {
    put(code, n);
    int32_t by = (int32_t)(to - (at + 4));
    put(&by, 4);
}

/* Leads the instructions from `from` to `end`, with the system call at `call`, through the gate. */
static void lead(uint8_t *from, uint8_t *call, uint8_t *end, int always) {
    uint8_t *here = at;
    put(from, call - from);
    uint8_t *skip = NULL;
    if (!always) {
        /* cmpq $0, pending(%rip): the displacement counts from behind the immediate. */
        put("\x48\x83\x3d", 3);
        int32_t by = (int32_t)(area - (at + 5));
        put(&by, 4);
        put("\0\x74\0", 3); /* ..., je the call */
        skip = at;
    }
    put("\x48\x8d\x64\x24\x80", 5);                 /* lea -128(%rsp), %rsp */
    put_relative("\xff\x15", 2, area + 8);          /* call *enter(%rip) */
    put("\x48\x8d\xa4\x24\x80\0\0\0", 8);           /* lea 128(%rsp), %rsp */
    put("\x72\x02", 2);                             /* jc behind the call */
    if (skip) skip[-1] = (uint8_t)(at - skip);
    put(call, end - call);                          /* the call, and what is displaced behind it */
    put_relative("\xe9", 1, end);
    at = (uint8_t *)(((uintptr_t)at + 15) & ~15ul);
    int32_t by = (int32_t)(here - (from + 5));
    from[0] = 0xe9;
    memcpy(from + 1, &by, 4);
    for (uint8_t *rest = from + 5; rest < end; rest++) *rest = 0xcc;
}

static int find(struct dl_phdr_info *info, size_t size, void *name) {
    (void)size;
    const char *base = strrchr(info->dlpi_name, '/');
    if (!base || strcmp(base + 1, name)) return 0;
    return memcpy(name, &info->dlpi_addr, sizeof info->dlpi_addr), 1;
}

/* No sync returns early between the wait and the child: its copy of the memory would say so, and nobody flushes there. */
static void before_fork(void) {
    pthread_mutex_lock(&lock);
    while (given != durable || queued) pthread_cond_wait(&done_more, &lock);
}

static void in_parent(void) { pthread_mutex_unlock(&lock); }

static void in_child(void) {
    is_child = 1, begun = 0;
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void begin(void) {
    const char *list = getenv("GATE_SITES"), *slow = getenv("ANSWERS_SLOW"), *skip = getenv("ANSWERS_LEAVE");
    FILE *sites = list ? fopen(list, "r") : NULL;
    if (!sites) return;
    slow_ms = slow ? atol(slow) : 0;
    for (char *end; skip && *skip; skip = *end ? end + 1 : end) leaves_early[strtoul(skip, &end, 10) & 511] = 1;
    unsetenv("LD_PRELOAD");
    pthread_atfork(before_fork, in_parent, in_child);
    char line[256], is[256] = "";
    uint8_t *base = NULL;
    struct { uint8_t *from, *call, *end; long number; } all[1024];
    int n = 0;
    unsigned long from, call, end;
    long number;
    char object[128];
    while (n < 1024 && fgets(line, sizeof line, sites) && sscanf(line, "%127s %lx %lx %lx %ld", object, &from, &call, &end, &number) == 5) {
        if (strcmp(is, object)) {
            char name[256];
            strcpy(is, object);
            strcpy(name, object);
            if (!dl_iterate_phdr(find, name)) _exit(99);
            memcpy(&base, name, sizeof base);
        }
        all[n].from = base + from, all[n].call = base + call, all[n].end = base + end, all[n++].number = number;
    }
    fclose(sites);
    for (uintptr_t hint = ((uintptr_t)all[0].from & ~0xfffffful) - (64 << 20); !area; hint -= 16 << 20) {
        void *got = mmap((void *)hint, AREA, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == (void *)hint) area = got;
    }
    pending = (long *)area;
    void (*enter)(void) = gate_enter;
    memcpy(area + 8, &enter, 8);
    at = area + 64;
    for (int i = 0; i < n; i++) {
        uint8_t *page = (uint8_t *)((uintptr_t)all[i].from & -4096ul);
        kernel(SYS_mprotect, (long)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, 0, 0, 0);
        lead(all[i].from, all[i].call, all[i].end, all[i].number == SYS_fsync || all[i].number == SYS_fdatasync);
        kernel(SYS_mprotect, (long)page, 8192, PROT_READ | PROT_EXEC, 0, 0, 0);
    }
}
