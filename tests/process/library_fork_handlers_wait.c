/* A library's fork handler, registered by its constructor, waits for a lock. The holder of that lock meanwhile receives into views,
 * unmaps, protects and sends them, touches more of them than any list of ours holds, and gives them to a pipe: none of that may
 * wait for the fork to end. */
#include "process.h"
extern pthread_mutex_t library_lock;

static volatile int forking;
static void *forker(void *unused) {
    (void)unused;
    forking = 1;
    int status, pid = fork();
    if (pid == 0) _exit(0);
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    return NULL;
}
static char *view(unsigned number) {
    char *from = fresh(SIZE), *to = fresh(SIZE);
    receive(from, SIZE, number);
    ELIDED_COPY(to, from, SIZE);
    return to;
}

int main(void) {
    alarm(20);
    enum { RECEIVE, UNMAP, PROTECT, SEND, FREE, TOUCH, CASES };
    const size_t BIG = 96ul << 20;
    for (int what = 0; what < CASES; what++) {
        int pair[2], zeros = open("/dev/zero", O_RDONLY);
        MUST(zeros >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        char *v = view(3), *chunk = fresh(SIZE), *big = NULL;
        if (what == TOUCH) {
            char *from = fresh(BIG);
            big = fresh(BIG);
            for (size_t i = 0; i < BIG; i += 1 << 20) {
                MUST(read(zeros, from + i, 1 << 20) == 1 << 20);
                memcpy(big + i, from + i, 1 << 20);
            }
        }
        pthread_t thread;
        pthread_mutex_lock(&library_lock);
        forking = 0;
        pthread_create(&thread, NULL, forker, NULL);
        while (!forking) sched_yield();
        usleep(50000);
        switch (what) {
        case RECEIVE:
            fill(chunk, SIZE, 4, 0);
            MUST(RAW(SYS_write, pair[0], chunk, 65536) == 65536);
            MUST(recv(pair[1], v, 65536, 0) == 65536 && is_input(v, 65536, 4, 0));
            break;
        case UNMAP: MUST(munmap(v, SIZE) == 0); break;
        case PROTECT: MUST(mprotect(v, SIZE, PROT_READ) == 0 && is_input(v, SIZE, 3, 0)); break;
        case SEND: MUST(write(pair[0], v, 65536) == 65536); break;
        case FREE: free(malloc(1 << 20)); break;
        default:
            for (size_t i = 0; i < BIG; i += PAGE) MUST(((volatile char *)big)[i] == 0);
        }
        say("%d went on", what);
        pthread_mutex_unlock(&library_lock);
        pthread_join(thread, NULL);
        close(pair[0]), close(pair[1]), close(zeros);
    }
    return 0;
}
