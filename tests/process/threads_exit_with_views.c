/* Threads that end while their heaps and stacks hold views: joined, detached, by pthread_exit; others use what they left. */
#define MAP_CHANGES_MEANWHILE
#include "process.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static char *left[8];
static int count, waiting, go;

static void receives_for(char *stack_buffer) {
    pthread_mutex_lock(&lock);
    waiting++;
    left[count++] = stack_buffer;
    pthread_cond_broadcast(&change);
    while (!go) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

/* Its stack is another thread's destination, and its arena holds views when it ends. */
static void *leaves_views(void *arg) {
    unsigned number = (unsigned)(uintptr_t)arg;
    char on_stack[SIZE] __attribute__((aligned(4096)));
    memset(on_stack, 0, SIZE);
    receives_for(on_stack);
    if (!is_input(on_stack, SIZE, 1, 0)) return (void *)1;
    char *heap = malloc(SIZE);
    receive(heap, SIZE, number);
    char *copy = malloc(SIZE);
    memcpy(copy, heap, SIZE);
    free(heap);
    if (number % 2 && number < 20) pthread_exit(copy);
    return copy;
}

static void *detached(void *arg) {
    char *copy = leaves_views(arg);
    pthread_mutex_lock(&lock);
    int ok = is_input(copy, SIZE, (unsigned)(uintptr_t)arg, 0);
    free(copy);
    waiting -= ok;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(void) {
    for (int round = 0; round < 3; round++) {
        char *v = VIEW(1);
        pthread_t threads[4];
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        count = waiting = go = 0;
        for (uintptr_t i = 0; i < 4; i++) {
            MUST(pthread_create(&threads[i], NULL, leaves_views, (void *)(10 + i)) == 0);
            pthread_t gone;
            MUST(pthread_create(&gone, &attributes, detached, (void *)(20 + i)) == 0);
        }
        pthread_mutex_lock(&lock);
        while (waiting < 8) pthread_cond_wait(&change, &lock);
        for (int i = 0; i < 8; i++) ELIDED_COPY(left[i], v, SIZE); /* to the other threads' stacks */
        MUST_BE_UNMAPPED(left[3] + SIZE / 2);
        go = 1;
        pthread_cond_broadcast(&change);
        while (waiting > 4) pthread_cond_wait(&change, &lock);
        pthread_mutex_unlock(&lock);
        for (unsigned i = 0; i < 4; i++) {
            void *copy;
            MUST(pthread_join(threads[i], &copy) == 0);
            EXPECT_INPUT(copy, SIZE, 10 + i);
            free(copy); /* of an arena whose thread is gone */
        }
        EXPECT_INPUT(v, SIZE, 1);
    }
    return finish();
}
