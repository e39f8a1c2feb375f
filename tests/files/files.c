// A program that reads the same files again and again while they are changed. It prints what it found, which must be the same with
// and without uncopy; where bytes are wrong it says so and ends with status 1.
//
//   files changes ROUNDS SEED   another process writes, truncates, replaces, maps the file between a read and the use of its bytes
//   files positions             threads share one descriptor's position
//   files edges                 ends, holes, bad pointers, unusual descriptors, changes by the program itself
//   files locks                 the program's own locks on the file
//   files process               namespaces, closed descriptors, the end of the first thread, other users, daemons, locked memory
//   files forks                 children that inherit the descriptor and the buffers
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, SIZE = PAGE * PAGES };
static uint64_t state;
static uint32_t draw(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
#define DIE(...) (printf("WRONG: " __VA_ARGS__), printf(" (line %d, errno %d)\n", __LINE__, errno), fflush(stdout), _exit(1))
#define MUST(x) ((x) >= 0 ? (void)0 : DIE("%s", #x))

// Every word of page p of version v says so.
static void paint(uint32_t *to, uint32_t version, int page) {
    for (int i = 0; i < PAGE / 4; i++) to[i] = version * 1000003u + (uint32_t)page * 1009u + (uint32_t)i;
}
// The version of page p, times 1000003.
static uint32_t version_of(const uint32_t *at, int page) {
    return at[0] - (uint32_t)page * 1009u;
}
static void expect(const void *at, uint32_t version, size_t bytes, const char *where) {
    const uint32_t *w = at;
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t page = (uint32_t)(i * 4 / PAGE), in = (uint32_t)(i % (PAGE / 4));
        if (w[i] != version * 1000003u + page * 1009u + in) DIE("%s: byte %zu is not version %u's", where, i * 4, version);
    }
}
static void fill_file(const char *path, uint32_t version, int flags) {
    int fd = open(path, O_WRONLY | flags, 0644);
    MUST(fd);
    static uint32_t page[PAGE / 4];
    for (int p = 0; p < PAGES; p++) {
        paint(page, version, p);
        if (pwrite(fd, page, PAGE, (off_t)p * PAGE) != PAGE) DIE("pwrite");
    }
    close(fd);
}
// The library's counter of a name; null without the library.
static uint64_t (*counter(void))(const char *) {
    return (uint64_t (*)(const char *))dlsym(RTLD_DEFAULT, "uncopy_counter");
}
// How many reads were answered from memory.
static uint64_t kept(void) {
    return counter() ? counter()("kept_reads") : 0;
}
// Reads the file until it is kept, or for as long as that should take.
static void heat(int fd, void *buffer, size_t size) {
    uint64_t before = kept();
    for (int i = 0; i < 300 && (kept() == before || i < 4); i++) {
        if (pread(fd, buffer, size, 0) != (ssize_t)size) DIE("pread");
        if (i > 24) usleep(100);
        if (i > 24 && !counter()) break;
    }
}

// ---- changes by another process

static const char *ways[] = {"writes", "truncates", "replaces", "maps", "empties"};
enum { WAYS = 5 };
struct order { uint32_t way, version, delay; };
struct report { double opened; };

static void changer(const char *path, int in, int out) {
    struct order o;
    char other[300];
    snprintf(other, sizeof other, "%s.new", path);
    while (read(in, &o, sizeof o) == sizeof o) {
        double until = now() + o.delay / 1e6;
        while (now() < until) sched_yield();
        double from = now();
        struct report r = {0};
        if (o.way == 1) {
            MUST(truncate(path, 0));
            r.opened = now() - from;
            fill_file(path, o.version, 0);
        } else if (o.way == 2) {
            fill_file(other, o.version, O_CREAT | O_TRUNC);
            MUST(rename(other, path));
        } else {
            int fd = open(path, (o.way == 3 ? O_RDWR : O_WRONLY) | (o.way == 4 ? O_TRUNC : 0));
            MUST(fd);
            r.opened = now() - from;
            if (o.way == 3) {
                uint32_t *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                if (m == MAP_FAILED) DIE("mmap");
                close(fd);
                for (int p = 0; p < PAGES; p++) paint(m + p * (PAGE / 4), o.version, p);
                munmap(m, SIZE);
            } else {
                close(fd);
                fill_file(path, o.version, 0);
            }
        }
        if (write(out, &r, sizeof r) != sizeof r) _exit(2);
    }
    _exit(0);
}

static void changes(const char *dir, int rounds, uint64_t seed) {
    enum { ROUNDS_BACK = 200 };
    char path[256], gone[256];
    int order[2], done[2], sockets[2];
    state = seed;
    snprintf(path, sizeof path, "%s/changed", dir);
    MUST(pipe(order));
    MUST(pipe(done));
    pid_t child = fork();
    if (child == 0) {
        close(order[1]);
        changer(path, order[0], done[1]);
    }
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    int big = 4 * SIZE;
    setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &big, sizeof big);
    char *a = malloc(SIZE), *b = malloc(SIZE), *c = malloc(SIZE);
    double longest[WAYS] = {0}, sum[WAYS] = {0};
    int count[WAYS] = {0};
    for (int round = 0; round < rounds; round++) {
        uint32_t v = 1 + (uint32_t)round * 2;
        // Another file each time: one that was changed is not kept again soon. (Nor is one that has the number of one that was.)
        snprintf(gone, sizeof gone, "%s/changed-%d", dir, round - ROUNDS_BACK);
        unlink(gone);
        snprintf(gone, sizeof gone, "%s/changed-%d", dir, round);
        if (round > 0) MUST(rename(path, gone));
        fill_file(path, v, O_CREAT | O_TRUNC);
        int fd = open(path, O_RDONLY);
        MUST(fd);
        heat(fd, a, SIZE);
        expect(a, v, SIZE, "before");
        if (pread(fd, a, SIZE, 0) != SIZE) DIE("pread");
        struct order o = {draw(WAYS), v + 1, draw(2) ? draw(300) : 0};
        if (draw(2)) { // use the bytes while they are being changed
            if (write(order[1], &o, sizeof o) != sizeof o) DIE("pipe");
            double until = now() + (double)draw(400) / 1e6;
            while (now() < until) sched_yield();
        }
        else { // or read again at the same time: each page is one or the other, and what was read stays
            if (write(order[1], &o, sizeof o) != sizeof o) DIE("pipe");
            for (int i = 0; i < 6; i++) {
                ssize_t n = pread(fd, c, SIZE, 0);
                if (n < 0) DIE("pread");
                memcpy(b, c, SIZE);
                usleep(draw(100));
                if (memcmp(b, c, (size_t)n)) DIE("what was read changed, by one who %s", ways[o.way]);
                for (int p = 0; p < n / PAGE; p++) {
                    uint32_t is = version_of((uint32_t *)(b + p * PAGE), p), old = v * 1000003u, new = (v + 1) * 1000003u;
                    if (is != old && is != new && is != 0u - (uint32_t)p * 1009u) DIE("page %d is of no version", p);
                }
            }
        }
        switch (draw(3)) {
        case 0: expect(a, v, SIZE, "touched"); break;
        case 1:
            memcpy(b, a, SIZE);
            expect(b, v, SIZE, "copied");
            break;
        default: {
            size_t got = 0;
            if (write(sockets[0], a, SIZE) != SIZE) DIE("write");
            if (draw(2)) usleep(draw(300)); // it lies in the queue meanwhile
            while (got < SIZE) {
                ssize_t n = read(sockets[1], b + got, SIZE - got);
                if (n <= 0) DIE("read");
                got += (size_t)n;
            }
            expect(b, v, SIZE, "sent");
        }
        }
        struct report r;
        if (read(done[0], &r, sizeof r) != sizeof r) DIE("the other process failed");
        count[o.way]++;
        sum[o.way] += r.opened;
        if (r.opened > longest[o.way]) longest[o.way] = r.opened;
        if (pread(fd, c, SIZE, 0) != SIZE) DIE("pread");
        expect(c, o.way == 2 ? v : v + 1, SIZE, "after, same descriptor");
        close(fd);
        fd = open(path, O_RDONLY);
        MUST(fd);
        if (read(fd, c, SIZE) != SIZE) DIE("read");
        expect(c, v + 1, SIZE, "after, opened again");
        close(fd);
    }
    close(order[1]);
    waitpid(child, NULL, 0);
    printf("changes: %d rounds, every byte right\n", rounds);
    for (int w = 0; w < WAYS; w++)
        if (count[w] && w != 2)
            fprintf(stderr, "who %s waited: mean %.0f us, longest %.0f us, of %d\n", ways[w], sum[w] / count[w] * 1e6, longest[w] * 1e6, count[w]);
}

// ---- threads that share a position

enum { THREADS = 4, PIECE = 64 << 10, PIECES = 64 };
static int shared_fd;
static uint8_t seen[PIECES];
static pthread_barrier_t barrier;

static void *reader(void *unused) {
    (void)unused;
    char *b = malloc(PIECE);
    for (int pass = 0; pass < 60; pass++) {
        pthread_barrier_wait(&barrier);
        for (;;) {
            ssize_t n = read(shared_fd, b, PIECE);
            if (n == 0) break;
            if (n != PIECE) DIE("a read of %zd", n);
            uint32_t number;
            memcpy(&number, b + PIECE / 2, 4);
            if (number >= PIECES) DIE("piece %u", number);
            __atomic_add_fetch(&seen[number], 1, __ATOMIC_RELAXED);
        }
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            for (int i = 0; i < PIECES; i++)
                if (seen[i] != 1) DIE("pass %d: piece %d was read %d times", pass, i, seen[i]);
            memset(seen, 0, sizeof seen);
            if (lseek(shared_fd, 0, SEEK_CUR) != (off_t)PIECE * PIECES) DIE("the position is elsewhere");
            MUST(lseek(shared_fd, 0, SEEK_SET));
        }
    }
    free(b);
    return NULL;
}

static void positions(const char *dir) {
    char path[256];
    snprintf(path, sizeof path, "%s/shared", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    char *b = calloc(1, PIECE);
    for (uint32_t i = 0; i < PIECES; i++) {
        memcpy(b + PIECE / 2, &i, 4);
        if (write(fd, b, PIECE) != PIECE) DIE("write");
    }
    close(fd);
    shared_fd = open(path, O_RDONLY);
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, reader, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    printf("positions: every piece once in each pass\n");
}

// ---- edges

static void say(const char *what, long n) { printf("%s: %ld, errno %d\n", what, n, n < 0 ? errno : 0); }
#define SAY(x) (errno = 0, say(#x, (long)(x)))

static void edges(const char *dir) {
    char path[256];
    snprintf(path, sizeof path, "%s/edges", dir);
    fill_file(path, 5, O_CREAT | O_TRUNC);
    char *b = malloc(2 * SIZE);
    int fd = open(path, O_RDONLY);
    heat(fd, b, SIZE);
    expect(b, 5, SIZE, "kept");
    SAY(pread(fd, b, 2 * SIZE, 0));
    SAY(pread(fd, b, SIZE, SIZE - 40000));
    SAY(pread(fd, b, SIZE, SIZE));
    SAY(pread(fd, b, SIZE, SIZE + 1));
    SAY(pread(fd, b, SIZE, -1));
    SAY(pread(fd, b, SIZE, 1L << 62));
    SAY(pread(fd, (void *)8, SIZE, 0));
    SAY(pread(-1, b, SIZE, 0));
    SAY(lseek(fd, 1000, SEEK_SET));
    SAY(read(fd, b, 100000));
    if (*(uint32_t *)(b + PAGE - 1000) != 5u * 1000003u + 1009u) DIE("an offset is wrong");
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(read(fd, (void *)8, 100000));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(read(fd, b, 2 * SIZE));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(read(fd, b, SIZE));
    SAY(lseek(fd, -1000000, SEEK_CUR));
    SAY(lseek(fd, 5L * SIZE, SEEK_SET));
    SAY(read(fd, b, SIZE));
    SAY(lseek(fd, 0, SEEK_CUR));
    int twin = dup(fd);
    SAY(lseek(twin, 0, SEEK_SET));
    SAY(read(fd, b, SIZE / 2));
    SAY(read(twin, b + SIZE / 2, SIZE));
    expect(b, 5, SIZE, "by two descriptors");
    // A buffer that ends at a page that may not be written.
    char *guarded = mmap(NULL, SIZE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY(pread(fd, guarded, SIZE, 0));
    mprotect(guarded + SIZE - 8 * PAGE, 8 * PAGE, PROT_READ);
    SAY(pread(fd, guarded, SIZE, 0));
    expect(guarded, 5, SIZE, "guarded");
    munmap(guarded + SIZE / 2, SIZE / 2);
    SAY(pread(fd, guarded, SIZE, 0));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(read(fd, guarded, SIZE));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pread(fd, guarded + SIZE / 2, SIZE / 2, 0));
    // Memory that cannot be moved.
    char *common = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 5; i++) SAY(pread(fd, common, SIZE, 0));
    expect(common, 5, SIZE, "shared memory");
    char *unaligned = malloc(SIZE + 100);
    for (int i = 0; i < 5; i++) {
        memset(unaligned, i, SIZE + 100);
        SAY(pread(fd, unaligned + 33, SIZE, 0));
        memmove(b, unaligned + 33, SIZE);
        expect(b, 5, SIZE, "unaligned");
        if (unaligned[32] != i || unaligned[SIZE + 33] != i) DIE("beside the buffer");
    }
    // Unusual descriptors.
    int direct = open(path, O_RDONLY | O_DIRECT);
    if (direct >= 0) {
        SAY(pread(direct, b + 1, SIZE, 0) < 0 || 1);
        close(direct);
    }
    int by_path = open(path, O_PATH);
    SAY(pread(by_path, b, SIZE, 0));
    SAY(read(by_path, b, SIZE));
    close(by_path);
    // The program itself changes the file.
    int w = open(path, O_WRONLY);
    SAY(w >= 0);
    SAY(pread(w, b, SIZE, 0));
    fill_file(path, 6, 0);
    SAY(pread(fd, b, SIZE, 0));
    expect(b, 6, SIZE, "changed by ourselves");
    SAY(ftruncate(w, 50000));
    SAY(pread(fd, b, SIZE, 0));
    close(w);
    for (uint32_t v = 7; v < 13; v++) {
        snprintf(path, sizeof path, "%s/edges%u", dir, v);
        fill_file(path, v, O_CREAT | O_TRUNC);
        int f = open(path, O_RDONLY);
        heat(f, b, SIZE);
        struct stat before, after;
        fstat(f, &before);
        char *keep = malloc(SIZE);
        SAY(pread(f, keep, SIZE, 0));
        switch (v) {
        case 7: SAY(truncate(path, 0)); break;
        case 8: SAY(unlink(path)); break;
        case 9: SAY(chmod(path, 0600)); break;
        case 12: SAY(close(open(path, O_RDONLY | O_TRUNC))); break; // no lease stands in its way
        case 10: {
            int m = open(path, O_RDWR);
            uint32_t *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, m, 0);
            close(m);
            for (int i = 0; i < PAGES; i++) paint(p + i * (PAGE / 4), v + 100, i);
            SAY(pread(f, b, SIZE, 0));
            expect(b, v + 100, SIZE, "mapped by ourselves");
            munmap(p, SIZE);
            break;
        }
        default: {
            struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
            SAY(utimensat(AT_FDCWD, path, t, 0));
        }
        }
        expect(keep, v, SIZE, "from before");
        SAY(pread(f, b, SIZE, 0));
        fstat(f, &after);
        SAY(after.st_nlink);
        SAY(after.st_size);
        SAY(after.st_atime >= before.st_atime);
        SAY(after.st_mtime == 1000000000);
        free(keep);
        close(f);
    }
}

// ---- locks

static void locks(const char *dir) {
    char path[256];
    char *b = malloc(SIZE);
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/locks%u", dir, i);
        fill_file(path, i, O_CREAT | O_TRUNC);
        int fd = open(path, O_RDONLY);
        struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        SAY(fcntl(fd, F_SETLK, &l));
        SAY(flock(fd, LOCK_SH));
        SAY(fcntl(fd, F_GETLEASE));
        SAY(fcntl(fd, F_GETOWN));
        heat(fd, b, SIZE);
        expect(b, i, SIZE, "locked");
        pid_t child = fork();
        if (child == 0) {
            int other = open(path, O_RDWR); // breaks the lease
            struct flock g = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            usleep(2000);
            fcntl(other, F_GETLK, &g);
            int locked = g.l_type == F_RDLCK && g.l_pid == getppid();
            _exit(locked && flock(other, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        SAY(status);
        SAY(fcntl(fd, F_GETLEASE));
        heat(fd, b, SIZE);
        close(fd);
        child = fork();
        if (child == 0) {
            int other = open(path, O_RDWR);
            struct flock s = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            _exit(fcntl(other, F_SETLK, &s) == 0 && flock(other, LOCK_EX | LOCK_NB) == 0 ? 0 : 1);
        }
        waitpid(child, &status, 0);
        SAY(status);
    }
}

// ---- forks

static void forks(const char *dir) {
    char path[256];
    char *b = malloc(SIZE), *c = malloc(SIZE);
    for (uint32_t i = 1; i < 60; i++) {
        snprintf(path, sizeof path, "%s/forks%u", dir, i);
        fill_file(path, i, O_CREAT | O_TRUNC);
        int fd = open(path, O_RDONLY), status;
        heat(fd, b, SIZE);
        if (read(fd, c, SIZE / 2) != SIZE / 2) DIE("read");
        pid_t child = fork();
        if (child == 0) {
            expect(b, i, SIZE, "in the child");
            expect(c, i, SIZE / 2, "in the child");
            if (read(fd, c + SIZE / 2, SIZE) != SIZE / 2) DIE("the child's read");
            expect(c, i, SIZE, "read on in the child");
            fill_file(path, i + 1000, 0); // breaks the parent's lease
            heat(fd, c, SIZE);
            expect(c, i + 1000, SIZE, "what the child wrote");
            expect(b, i, SIZE, "in the child, still");
            if (i % 3 == 0) {
                pid_t grandchild = fork();
                if (grandchild == 0) {
                    fill_file(path, i + 2000, 0);
                    _exit(0);
                }
                waitpid(grandchild, NULL, 0);
                if (pread(fd, c, SIZE, 0) != SIZE) DIE("pread");
                expect(c, i + 2000, SIZE, "what the grandchild wrote");
            }
            _exit(0);
        }
        waitpid(child, &status, 0);
        if (status) DIE("child %u: status %x", i, status);
        expect(b, i, SIZE, "in the parent, still");
        if (pread(fd, b, SIZE, 0) != SIZE) DIE("pread");
        expect(b, i % 3 ? i + 1000 : i + 2000, SIZE, "in the parent, what was written");
        SAY(lseek(fd, 0, SEEK_CUR));
        close(fd);
    }
}

// ---- what programs do to a process, while a file is kept

static char *the_path;
static void *reads_on(void *unused) {
    (void)unused;
    char *b = malloc(SIZE);
    usleep(20000); // the first thread has ended
    int fd = open(the_path, O_RDONLY);
    for (int i = 0; i < 100; i++) {
        if (pread(fd, b, SIZE, 0) != SIZE) DIE("pread");
        expect(b, 3, SIZE, "after the end of the first thread");
    }
    printf("the last thread ends\n");
    return NULL;
}
static void in_child(const char *what, void (*f)(int fd, char *b), const char *path) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char *b = malloc(SIZE);
        int fd = open(path, O_RDONLY);
        heat(fd, b, SIZE);
        expect(b, 3, SIZE, what);
        f(fd, b);
        fflush(stdout);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status) DIE("%s: status %x", what, status);
}
static void alone(int fd, char *b) {
    /* (Refused to a process of several threads: ours are gone meanwhile, and made anew behind it.) */
    SAY(unshare(CLONE_NEWUSER));
    if (pread(fd, b, SIZE, 0) != SIZE) DIE("pread");
    expect(b, 3, SIZE, "in a namespace");
}
static void closes(int fd, char *b) {
    (void)fd;
    SAY(close_range(3, ~0u, 0));
    fd = open(the_path, O_RDONLY);
    heat(fd, b, SIZE);
    expect(b, 3, SIZE, "all closed");
}
static void ends_first(int fd, char *b) {
    (void)fd, (void)b;
    pthread_t t;
    pthread_create(&t, NULL, reads_on, NULL);
    pthread_exit(NULL);
}
static void becomes_nobody(int fd, char *b) {
    SAY(setgid(65534));
    SAY(setuid(65534));
    for (int i = 0; i < 20; i++)
        if (pread(fd, b, SIZE, 0) != SIZE) DIE("pread");
    expect(b, 3, SIZE, "as nobody");
    SAY(open("/proc/self/task", O_RDONLY) >= 0);
}
static void becomes_a_daemon(int fd, char *b) {
    if (daemon(1, 1) != 0) DIE("daemon");
    heat(fd, b, SIZE);
    expect(b, 3, SIZE, "as a daemon");
    printf("the daemon ends\n");
}
static void is_locked(int fd, char *b) {
    SAY(mlockall(MCL_CURRENT));
    if (pread(fd, b, SIZE, 0) != SIZE) DIE("pread");
    expect(b, 3, SIZE, "locked in memory");
}

static void process(const char *dir) {
    char path[256];
    snprintf(path, sizeof path, "%s/process", dir);
    the_path = path;
    fill_file(path, 3, O_CREAT | O_TRUNC);
    in_child("alone", alone, path);
    in_child("closes", closes, path);
    in_child("ends first", ends_first, path);
    in_child("becomes nobody", becomes_nobody, path);
    int lives[2];
    char end;
    MUST(pipe(lives));
    in_child("becomes a daemon", becomes_a_daemon, path);
    close(lives[1]);
    SAY(read(lives[0], &end, 1)); // the daemon has ended
    in_child("is locked", is_locked, path);
    char *b = malloc(SIZE);
    int fd = open(path, O_RDONLY);
    heat(fd, b, SIZE);
    double from = now();
    fill_file(path, 4, 0);
    if (now() - from > 5) DIE("a lease was not given up for %.1f s", now() - from);
    SAY(pread(fd, b, SIZE, 0));
    expect(b, 4, SIZE, "at last");
}

int main(int n, char **v) {
    if (n < 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = v[1], *dir = v[2];
    if (!strcmp(what, "changes")) changes(dir, n > 3 ? atoi(v[3]) : 100, n > 4 ? strtoull(v[4], NULL, 0) : 1);
    if (!strcmp(what, "positions")) positions(dir);
    if (!strcmp(what, "edges")) edges(dir);
    if (!strcmp(what, "locks")) locks(dir);
    if (!strcmp(what, "forks")) forks(dir);
    if (!strcmp(what, "process")) process(dir);
    printf("end\n");
    return 0;
}
