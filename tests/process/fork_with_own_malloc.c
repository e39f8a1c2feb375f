/* A program that brings its own malloc, whose lock its own fork handlers take (as jemalloc and tcmalloc do), forks with views:
 * nothing of ours may allocate before the child's handler has given the lock back. */
#include "process.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char pool[64 << 20] __attribute__((aligned(16)));
static size_t used;

static void *take(size_t n) {
    pthread_mutex_lock(&lock);
    size_t at = used + 16;
    used = (at + n + 15) & ~15ul;
    pthread_mutex_unlock(&lock);
    if (used > sizeof pool) return NULL;
    ((size_t *)(void *)(pool + at))[-1] = n;
    return pool + at;
}
void *malloc(size_t n) { return take(n); }
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t each) { return take(n * each); }
void *realloc(void *p, size_t n) {
    char *to = take(n), *from = p;
    for (size_t i = 0; p && i < ((size_t *)p)[-1] && i < n; i++) to[i] = from[i];
    return to;
}
void *memalign(size_t align, size_t n) {
    char *p = take(n + align);
    return (void *)(((size_t)p + align - 1) / align * align);
}
void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }
int posix_memalign(void **to, size_t align, size_t n) { return (*to = memalign(align, n)) ? 0 : ENOMEM; }

static void take_lock(void) { pthread_mutex_lock(&lock); }
static void give_lock(void) { pthread_mutex_unlock(&lock); }

int main(void) {
    pthread_atfork(take_lock, give_lock, give_lock);
    char *from = fresh(SIZE), *view = fresh(SIZE);
    receive(from, SIZE, 1);
    ELIDED_COPY(view, from, SIZE);
    for (int round = 0; round < 20; round++) {
        int status, pid = fork();
        if (pid == 0) {
            alarm(10);
            EXPECT_INPUT(view, SIZE, 1);
            char *more = fresh(SIZE);
            memcpy(more, from, SIZE);
            EXPECT_INPUT(more, SIZE, 1);
            _exit(0);
        }
        MUST(waitpid(pid, &status, 0) == pid);
        MUST(status == 0);
    }
    say("twenty children");
    return 0;
}
