/* mprotect of views: no access, reading, writing, execution; faults and failing calls as ever; protected memory given free again. */
#include "process.h"

static sigjmp_buf out;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    siglongjmp(out, info->si_code == SEGV_ACCERR ? 2 : 1);
}

static void tries(const char *what, char *p, int writes) {
    int how = sigsetjmp(out, 1);
    if (how == 0) {
        if (writes) *(volatile char *)p = *(volatile char *)p;
        else (void)*(volatile char *)p;
    }
    say("%s %s: %s", writes ? "write" : "read", what, how == 0 ? "done" : how == 2 ? "not allowed" : "nothing there");
}
static void calls(char *p) {
    int fds[2];
    MUST(pipe(fds) == 0 && RAW(SYS_write, fds[1], "abcdef", 6) == 6);
    ssize_t n = read(fds[0], p, 3);
    say("read: %zd %s", n, n < 0 ? strerror(errno) : "");
    n = RAW(SYS_read, fds[0], p, 3);
    say("raw read: %zd", n);
    n = write(fds[1], p, 3);
    say("write: %zd %s", n, n < 0 ? strerror(errno) : "");
    struct iovec parts[2] = {{p - PAGE, 2}, {p, 3}};
    n = writev(fds[1], parts, 2);
    say("writev: %zd %s", n, n < 0 ? strerror(errno) : "");
    close(fds[0]), close(fds[1]);
}

int main(void) {
    struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSEGV, &act, NULL) == 0);
    static const int kinds[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_EXEC, PROT_WRITE, PROT_READ | PROT_WRITE};
    static const char *names[] = {"none", "reading", "executing", "writing", "both"};
    for (unsigned i = 0; i < 5; i++) {
        char *v = VIEW(i), *p = v + SIZE / 2;
        MUST(mprotect(p, PAGE * 4, kinds[i]) == 0);
        tries(names[i], p, 0);
        tries(names[i], p + PAGE, 1);
        calls(p + PAGE * 2);
        MUST(mprotect(p, PAGE * 4, PROT_READ | PROT_WRITE) == 0);
        EXPECT_INPUT(v, SIZE / 2 + PAGE * 2, i);
        EXPECT_INPUT_FROM(p + PAGE * 3, SIZE / 2 - PAGE * 3, i, SIZE / 2 + PAGE * 3);
        /* Protected origins. */
        char *origin = fresh(SIZE), *to = fresh(SIZE);
        receive(origin, SIZE, 10 + i);
        MUST(mprotect(origin, SIZE, PROT_READ) == 0);
        memcpy(to, origin, SIZE);
        tries("protected origin", origin + PAGE * 20, 1);
        EXPECT_INPUT(origin, SIZE, 10 + i);
        MUST(mprotect(origin, SIZE, PROT_READ | PROT_WRITE) == 0);
        EXPECT_INPUT(to, SIZE, 10 + i);
        char *fresh_one = VIEW(20);
        memcpy(origin, fresh_one, SIZE);
        EXPECT_INPUT(origin, SIZE, 20);
    }
    /* By key, if the machine has them. */
    int key = pkey_alloc(0, 0);
    char *v = VIEW(30);
    if (key >= 0) {
        MUST(pkey_mprotect(v, SIZE, PROT_READ | PROT_WRITE, key) == 0 && pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
        int how = sigsetjmp(out, 1);
        if (how == 0) (void)*(volatile char *)v;
        MUST(how != 0 && pkey_set(key, 0) == 0);
    }
    EXPECT_INPUT(v, SIZE, 30);
    return finish();
}
