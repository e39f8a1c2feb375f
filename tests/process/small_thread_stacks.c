/* Threads with stacks of 32 KB (docs/limitations.md says what is the least): they receive, copy, send, touch and fork. */
#include "process.h"

static volatile int wrong;
static char *from, *to;

static void *works(void *unused) {
    for (unsigned round = 0; round < 5; round++) {
        receive(from, SIZE, round);
        memcpy(to, from, SIZE);
        memmove(to + 100, to, SIZE / 2);
        wrong |= !is_input(to + 100, SIZE / 2, round, 0);
        int fd = memfd_create("out", 0);
        struct iovec parts[8];
        for (int i = 0; i < 8; i++) parts[i] = (struct iovec){from + (size_t)i * PAGE * 2 + 3, PAGE};
        wrong |= writev(fd, parts, 8) != 8 * (ssize_t)PAGE;
        wrong |= write(fd, from, SIZE) != (ssize_t)SIZE;
        close(fd);
        free(realloc(malloc(SIZE), 2 * SIZE));
        pid_t child = fork();
        if (child == 0) _exit(!is_input(from, SIZE, round, 0));
        int status = -1;
        while (waitpid(child, &status, 0) != child) {}
        wrong |= status != 0;
    }
    return unused;
}

int main(void) {
    from = fresh(SIZE), to = fresh(SIZE);
    VIEW(1);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    MUST(pthread_attr_setstacksize(&attributes, 32 << 10) == 0);
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, &attributes, works, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    say("wrong: %d", wrong);
    if (wrong) return 1;
    return finish();
}
