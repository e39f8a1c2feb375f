/* A process that ends, in every way there is, while its threads wait for faults to be answered.
 *
 * Each round a child starts threads that receive, copy and touch without a pause (each touch of a view is a fault, and every byte
 * is verified), and after a random moment the child ends: exit, _exit, the system call itself, a signal, the end of main's thread
 * by pthread_exit, exec. The parent demands the right status within its patience; a hang shows as SIGALRM.
 *
 *   --seed N --rounds N */
#include "stress.h"

#define SIZE (256 << 10)
#define THREADS 4

static uint64_t seed;
static _Atomic int stop, running;

static void *touch(void *number)
{
    Random r = { seed * 31 + (uintptr_t)number };
    Channel c = channel();
    char *a = malloc(SIZE), *b = malloc(SIZE + 64);
    for (size_t i = 0; i < SIZE; i++) a[i] = b[i] = 1;
    uint64_t message = (uintptr_t)number << 32;
    while (!stop) {
        receive(&c, a, SIZE, ++message, (unsigned)next(&r));
        char *to = b + below(&r, 64);
        memcpy(to, a, SIZE);
        running = 1;
        /* From the end: no page is served together with the one before it. */
        for (size_t page = SIZE; page > 0; page -= 4096) {
            size_t i = page - 1 - below(&r, 4096);
            if ((unsigned char)to[i] != byte_of(message, i)) die("WRONG BYTE %zu of a copy; seed %llu", i, (unsigned long long)seed);
            if ((unsigned char)a[i] != byte_of(message, i)) die("WRONG BYTE %zu of an original; seed %llu", i, (unsigned long long)seed);
        }
    }
    close_channel(&c);
    free(a);
    free(b);
    return 0;
}

enum way { EXIT, QUICK, RAW, KILLED, ABORTED, MAIN_FIRST, EXEC, BY_THREAD, WAYS };
static const char *const names[] = { "exit", "_exit", "exit_group", "SIGKILL", "SIGTERM", "pthread_exit of the first thread",
                                     "exec", "exit by another thread" };

static void *end_it(void *unused)
{
    (void)unused;
    exit(7);
}

static void run(enum way way, Random *r, char **argv)
{
    alarm(120);
    pthread_t t[THREADS], other;
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&t[i], 0, touch, (void *)(i + 1));
    while (!running) usleep(100);
    usleep((useconds_t)below(r, 20000));
    switch (way) {
    case EXIT: exit(7);
    case QUICK: _exit(7);
    case RAW: raw(SYS_exit_group, 7, 0, 0); break;
    case KILLED: kill(getpid(), SIGKILL); break;
    case ABORTED: kill(getpid(), SIGTERM); break;
    case MAIN_FIRST:
        stop = 1;
        pthread_exit(0);
    case EXEC: execl(argv[0], argv[0], "--end", "7", (char *)0); break;
    case BY_THREAD: pthread_create(&other, 0, end_it, 0); break;
    default: break;
    }
    for (;;) pause();
}

int main(int argc, char **argv)
{
    if (option(argc, argv, "--end", 0)) return 7;
    seed = (uint64_t)option(argc, argv, "--seed", 1);
    long rounds = option(argc, argv, "--rounds", 40);
    Random r = { seed };
    for (long i = 0; i < rounds; i++) {
        enum way way = (enum way)(i % WAYS);
        seed = next(&r);
        pid_t p = fork();
        if (!p) run(way, &r, argv);
        int status;
        while (waitpid(p, &status, 0) != p)
            if (errno != EINTR) die("waitpid: %s", strerror(errno));
        int expected = way == KILLED ? SIGKILL : way == ABORTED ? SIGTERM : way == MAIN_FIRST ? 0 : 7 << 8;
        if (status != expected) die("%s: status %x, not %x (round %ld)", names[way], status, expected, i);
    }
    printf("ok: %ld processes ended, each of %d ways\n", rounds, WAYS);
    return 0;
}
