/* Owners of tracked memory go away while others work: threads end (libc takes their stacks back and hands them out again), a
 * library with large static arrays is unloaded and loaded again at the same addresses, arenas shrink.
 *
 * A stack or an array that comes back must hold what it holds without us: a library's arrays zeros and its initial bytes.
 *
 *   --seed N --seconds N --library PATH (default: beside this program, libarrays.so) */
#include "stress.h"

#define SIZE (128 << 10)

static uint64_t seed;
static double end;
static _Atomic long threads, loads;
static _Atomic uint64_t messages;
static const char *library;

static void expect(const char *at, size_t n, uint64_t message, const char *where)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)at[i] != byte_of(message, i))
            die("WRONG BYTE %zu in %s: %02x, not %02x; seed %llu", i, where, (unsigned char)at[i], byte_of(message, i), (unsigned long long)seed);
}

/* The whole life of a thread: input, copies between its stack and the heap, and gone. */
static void *brief(void *number)
{
    Random r = { seed + (uintptr_t)number * 7919 };
    Channel c = channel();
    char on_stack[SIZE];
    char *heap = malloc(SIZE + 4096), *other = malloc(SIZE);
    uint64_t message = ++messages;
    size_t n = SIZE - below(&r, 5000);
    char *at = heap + below(&r, 4096);
    receive(&c, at, n, message, (unsigned)next(&r));
    memcpy(on_stack, at, n);
    memcpy(other, on_stack, n);
    if (below(&r, 2)) expect(at, n, message, "an original");
    expect(on_stack, n, message, "a stack");
    receive(&c, on_stack, n, message + (1ull << 40), (unsigned)next(&r));
    memcpy(at, on_stack, n);
    expect(other, n, message, "a copy");
    expect(at, n, message + (1ull << 40), "a copy of a stack");
    free(other);
    free(heap);
    close_channel(&c);
    threads++;
    if (below(&r, 2)) pthread_exit(0);
    return 0;
}

static void *make_threads(void *number)
{
    intptr_t n = (intptr_t)number << 32;
    while (now() < end) {
        pthread_t t[3];
        for (int i = 0; i < 3; i++)
            if (pthread_create(&t[i], 0, brief, (void *)++n)) die("pthread_create");
        for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    }
    return 0;
}

static void *load_and_unload(void *unused)
{
    (void)unused;
    Random r = { seed * 3 };
    Channel c = channel();
    while (now() < end) {
        void *handle = dlopen(library, RTLD_NOW | (below(&r, 2) ? RTLD_DEEPBIND : 0));
        if (!handle) die("dlopen: %s", dlerror());
        char *zeros = dlsym(handle, "zeros"), *sevens = dlsym(handle, "sevens");
        void (*copy)(char *, const char *, size_t) = (void (*)(char *, const char *, size_t))dlsym(handle, "copy");
        for (size_t i = 0; i < SIZE; i++)
            if (zeros[i] || sevens[i] != 7) die("a library's array begins with %d, %d; seed %llu", zeros[i], sevens[i], (unsigned long long)seed);
        uint64_t message = ++messages;
        receive(&c, zeros, SIZE, message, (unsigned)next(&r));
        if (below(&r, 2)) memcpy(sevens, zeros, SIZE);
        else copy(sevens, zeros, SIZE);
        expect(sevens, below(&r, SIZE), message, "a library's array");
        if (dlclose(handle)) die("dlclose");
        loads++;
    }
    close_channel(&c);
    return 0;
}

int main(int argc, char **argv)
{
    seed = (uint64_t)option(argc, argv, "--seed", 1);
    end = now() + (double)option(argc, argv, "--seconds", 5);
    char beside[4096];
    snprintf(beside, sizeof beside, "%.*s/libarrays.so", (int)(strrchr(argv[0], '/') ? strrchr(argv[0], '/') - argv[0] : 1),
             strrchr(argv[0], '/') ? argv[0] : ".");
    library = beside;
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--library")) library = argv[i + 1];
    pthread_t t[4];
    for (intptr_t i = 0; i < 3; i++) pthread_create(&t[i], 0, make_threads, (void *)(i + 1));
    pthread_create(&t[3], 0, load_and_unload, 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    printf("ok: %ld threads came and went, a library %ld times, seed %llu\n", (long)threads, (long)loads, (unsigned long long)seed);
    return 0;
}
