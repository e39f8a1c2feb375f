/* Programs for answers.py that Python cannot have without making code at run time (ctypes): each syncs until a sync returns early,
 * then does what its first argument says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int file, other;

static void promised(void) {
    if (write(file, "x", 1) != 1 || fdatasync(file)) _exit(9);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* A directory is made at once where nothing waits. */
static int waits(const char *name) {
    double begun = now();
    mkdir(name, 0700);
    return now() - begun > 0.2;
}

static int does(const char *what) {
    static char page[4096] __attribute__((aligned(4096)));
    if (!strcmp(what, "lends")) {
        int ends[2];
        struct iovec all = {page, sizeof page};
        return pipe(ends) || vmsplice(ends[1], &all, 1, 0) != sizeof page;
    }
    if (!strcmp(what, "zero copy")) {
        int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
        return setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
    }
    if (!strcmp(what, "shares")) return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0) == MAP_FAILED;
    if (!strcmp(what, "may share")) return mmap(NULL, 4096, PROT_READ, MAP_SHARED, other, 0) == MAP_FAILED;
    if (!strcmp(what, "shares with children")) return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
    if (!strcmp(what, "attaches")) {
        int id = shmget(IPC_PRIVATE, 4096, 0600);
        void *at = shmat(id, NULL, 0);
        shmctl(id, IPC_RMID, NULL);
        return at == (void *)-1;
    }
    if (!strcmp(what, "makes code")) return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
    if (!strcmp(what, "makes it code")) return mprotect(page, sizeof page, PROT_READ | PROT_EXEC);
    if (!strcmp(what, "filters")) {
        struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {1, all};
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    }
    /* (The kernel may refuse it; who asks has said enough.) */
    if (!strcmp(what, "ring")) return syscall(SYS_io_uring_setup, 8, page), 0;
    if (!strcmp(what, "requests")) {
        unsigned long all = 0;
        return syscall(SYS_io_setup, 8, &all), 0;
    }
    if (!strcmp(what, "has its faults told")) return syscall(SYS_userfaultfd, O_CLOEXEC), 0;
    if (!strcmp(what, "has them told by a device")) {
        int device = open("/dev/userfaultfd", O_RDWR);
        if (device < 0) return fputs("/dev/userfaultfd cannot be opened here\n", stderr), 5;
        return ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC) < 0;
    }
    /* (Of a child that has the same memory.) */
    if (!strcmp(what, "ring of a child")) {
        pid_t child = vfork();
        if (child == 0) {
            syscall(SYS_io_uring_setup, 8, page);
            _exit(0);
        }
        return child < 0;
    }
    if (!strcmp(what, "asks a device")) {
        int device = open("/dev/fuse", O_RDWR);
        if (device < 0) device = open("/dev/loop-control", O_RDWR);
        if (device < 0) device = open("/dev/net/tun", O_RDWR);
        return device < 0 || !ioctl(device, 0x1234, 0);
    }
    if (!strcmp(what, "executes what it reads")) return personality(READ_IMPLIES_EXEC) < 0;
    if (!strcmp(what, "other numbers")) return syscall(SYS_getpid | 1 << 30), 0;
    if (!strcmp(what, "own descriptors")) return unshare(CLONE_FILES);
    if (!strcmp(what, "rights")) return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return 1;
}

static _Atomic int shared = -1;

/* Syncs whatever the number is of, while it is closed and opened. */
static void *syncs(void *unused) {
    (void)unused;
    while (shared != -2) fdatasync(shared);
    return NULL;
}

/* Files are closed while another thread syncs them. */
static int races(void) {
    pthread_t thread;
    int early = 0;
    if (pthread_create(&thread, NULL, syncs, NULL)) return 7;
    for (double end = now() + 5; now() < end;) {
        char name[32];
        snprintf(name, sizeof name, "raced%d", early % 8);
        int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (fd < 0) return 9;
        shared = fd;
        for (int i = 0; i < 6; i++)
            if (write(fd, "x", 1) != 1 || fdatasync(fd)) return 9;
        if (close(fd)) return 9;
        shared = -1;
        unlink(name);
        early++;
    }
    shared = -2;
    return pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    char name[32];
    void *mapped = NULL;
    if (argc > 1 && !strcmp(argv[1], "races")) return races();
    other = open("other", O_RDWR | O_CREAT, 0600);
    file = open("journal", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (argc < 2 || ftruncate(other, 4096)) return 9;
    /* (Without root's rights a filter needs this; and it is no answer that is waited for.) */
    if (!strcmp(argv[1], "filters")) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!strcmp(argv[1], "unmaps")) {
        int lock = open("other", O_RDONLY);
        mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, lock, 0);
        if (flock(lock, LOCK_EX) || mapped == MAP_FAILED || close(lock)) return 9;
        /* (A mapping on overlayfs has the description of the file below, so the lock is gone.) */
        lock = open("other", O_RDONLY);
        if (!flock(lock, LOCK_EX | LOCK_NB)) return fputs("a mapping keeps no lock here\n", stderr), 5;
        close(lock);
    }
    for (int i = 0;; i++) {
        promised();
        snprintf(name, sizeof name, "early%d", i);
        if (waits(name)) break;
        if (i == 800) return fputs("no sync returns early\n", stderr), 8;
        usleep(50000);
    }
    if (!strcmp(argv[1], "stdio")) {
        fputs("now it begins\n", stderr);
        promised();
        puts("x");
        return fflush(stdout);
    }
    if (mapped) {
        fputs("now it begins\n", stderr);
        promised();
        munmap(mapped, 4096);
        return sleep(1);
    }
    promised();
    int cannot = does(argv[1]);
    if (cannot) return fputs("it cannot be done\n", stderr), cannot == 5 ? 5 : 7;
    fputs("done\n", stderr);
    promised();
    if (waits("last")) return fputs("syncs return early still\n", stderr), 6;
    /* (It is asked why.) */
    fputs("last\n", stderr);
    return read(0, name, 1);
}
