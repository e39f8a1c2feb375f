/* RLIMIT_AS and RLIMIT_DATA, lowered by the program itself in several ways, with views, with blocks, while another thread waits for input: its
 * own allocations succeed as ever. */
#include "process.h"
#include <malloc.h>
#include <sys/personality.h>
#include <sys/resource.h>

#define LIMIT (2ul << 30)

static int with_setrlimit(int what, struct rlimit *r) { return setrlimit((enum __rlimit_resource)what, r); }
static int with_prlimit(int what, struct rlimit *r) { return prlimit(getpid(), (enum __rlimit_resource)what, r, NULL); }
static int with_number(int what, struct rlimit *r) { return (int)syscall(SYS_prlimit64, 0, what, r, NULL); }
static int with_old_number(int what, struct rlimit *r) { return (int)syscall(SYS_setrlimit, what, r); }
static int (*const ways[])(int, struct rlimit *) = {with_setrlimit, with_prlimit, with_number, with_old_number};

static void *nothing(void *x) { return x; }

static int waiting_on[2];
static void *waits(void *buf) {
    ssize_t n = recv(waiting_on[0], buf, SIZE, MSG_WAITALL);
    MUST(n == (ssize_t)SIZE);
    return buf;
}

static void works_as_ever(void) {
    char *large = malloc(64 << 20), *zeros = calloc(1, 32 << 20);
    say("large blocks: %s %s", large ? "yes" : "no", zeros ? "yes" : "no");
    if (!large || !zeros) return;
    memset(large, 3, 64 << 20);
    MUST(is_filled(zeros, 32 << 20, 0));
    void *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("mapping: %s", mapped != MAP_FAILED ? "yes" : "no");
    pthread_t thread;
    int error = pthread_create(&thread, NULL, nothing, NULL);
    say("thread: %s", strerror(error));
    if (!error) pthread_join(thread, NULL);
    large = realloc(large, 100 << 20);
    say("grown: %s", large && large[(64 << 20) - 1] == 3 ? "yes" : "no");
    /* Many blocks, some of which lie where blocks lay before. */
    static char *some[4000];
    int refused = 0, wrong = 0;
    for (int i = 0; i < 4000; i++) {
        size_t n = 4000 + (size_t)(i % 97) * 3000;
        refused += !(some[i] = malloc(n));
        if (some[i]) memset(some[i], i & 63, n);
    }
    for (int i = 0; i < 4000; i++) {
        size_t n = 4000 + (size_t)(i % 97) * 3000;
        if (some[i] && (some[i][0] != (i & 63) || some[i][n - 1] != (i & 63))) wrong++;
        if (some[i] && i % 3 == 0) some[i] = realloc(some[i], n * 2);
        if (some[i] && some[i][n - 1] != (i & 63)) wrong++;
        free(some[i]);
    }
    say("small blocks refused: %d, wrong: %d", refused, wrong);
    free(large);
    free(zeros);
}

int main(int count, char **words) {
    /* With mappings from the lowest place on that is free, so that the program's come to lie where ours were. */
    int layout = personality(0xffffffff);
    MUST(count == 1 && layout != -1);
    if (!(layout & ADDR_COMPAT_LAYOUT)) {
        MUST(personality((unsigned long)layout | ADDR_COMPAT_LAYOUT) != -1);
        execv("/proc/self/exe", words);
    }
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* (Large blocks go where there is room.) */
    char *v = VIEW(1);
    for (int way = 0; way < 8; way++) {
        int what = way % 2 ? RLIMIT_DATA : RLIMIT_AS, waiter = way % 4 / 2;
        pid_t child = fork();
        if (child == 0) {
            char *blocks[16], *from = fresh(SIZE), *waited_for = malloc(SIZE);
            receive(from, SIZE, 2);
            for (int i = 0; i < 16; i++) {
                MUST((blocks[i] = malloc(SIZE + (size_t)i * 4096)));
                ELIDED_COPY(blocks[i], from, SIZE);
            }
            for (int i = 0; i < 16; i += 2) free(blocks[i]);
            char *grown = NULL; /* and one with much room */
            for (size_t n = 1; n <= 16; n++) MUST((grown = realloc(grown, n << 20)));
            pthread_t thread;
            if (waiter) {
                MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, waiting_on) == 0);
                ELIDED_COPY(waited_for, from, SIZE); /* (so that it is received into an extent) */
                MUST(pthread_create(&thread, NULL, waits, waited_for) == 0);
                usleep(50000);
            }
            struct rlimit r = {LIMIT, LIMIT};
            MUST(ways[way / 2](what, &r) == 0);
            works_as_ever();
            if (waiter) {
                char *sent = fresh(SIZE);
                fill(sent, SIZE, 5, 0);
                for (size_t at = 0; at < SIZE;) {
                    ssize_t n = write(waiting_on[1], sent + at, SIZE - at);
                    MUST(n > 0);
                    at += (size_t)n;
                }
                pthread_join(thread, NULL);
                EXPECT_INPUT(waited_for, SIZE, 5);
            }
            EXPECT_INPUT(v, SIZE, 1);
            for (int i = 1; i < 16; i += 2) {
                MUST(is_input(blocks[i], SIZE, 2, 0));
                free(blocks[i]);
            }
            free(grown);
            works_as_ever();
            _exit(0);
        }
        wait_for(what == RLIMIT_AS ? "address space" : "data", child);
    }
    /* Of another process, and raised: nothing happens here. */
    pid_t other = fork();
    if (other == 0) {
        pause();
        _exit(1);
    }
    struct rlimit r = {LIMIT, LIMIT};
    MUST(prlimit(other, RLIMIT_AS, &r, NULL) == 0);
    struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &none) == 0);
    kill(other, SIGKILL);
    wait_for("another", other);
    char *w = VIEW(6);
    EXPECT_INPUT(w, SIZE, 6);
    /* And where nothing was copied yet. */
    pid_t early = fork();
    if (early == 0) {
        execl("/proc/self/exe", "limited", NULL);
        _exit(1);
    }
    wait_for("early", early);
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}

/* Runs before main. */
__attribute__((constructor)) static void begins(int count, char **words) {
    if (count < 1 || strcmp(words[0], "limited")) return;
    struct rlimit r = {LIMIT, LIMIT};
    MUST(setrlimit(RLIMIT_AS, &r) == 0);
    works_as_ever();
    char *from = malloc(SIZE), *to = malloc(SIZE);
    receive(from, SIZE, 9);
    memcpy(to, from, SIZE);
    EXPECT_INPUT(to, SIZE, 9);
    _exit(0);
}
