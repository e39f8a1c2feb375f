/* BBR paces connections over the loopback device by timers, which would cost more than sending by reference saves. So once a program would
 * send so over one, its listeners there, and what it connects there, get Reno: the next connections are not paced. A listener on all
 * addresses is as it was, and what the program sets afterwards is what it gets. Before that, nothing is changed: small sends are cheaper
 * with BBR. */
#include "process.h"

static const char *control(int s) {
    static char name[16];
    socklen_t len = sizeof name;
    memset(name, 0, sizeof name);
    MUST(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0);
    return name;
}

static int has_bbr(int s) { return setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) == 0; }

static int listens(in_addr_t at, struct sockaddr_in *address) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(at)};
    MUST(bind(s, (struct sockaddr *)address, len) == 0);
    has_bbr(s);
    MUST(listen(s, 4) == 0);
    MUST(getsockname(s, (struct sockaddr *)address, &len) == 0);
    return s;
}

static void is(const char *what, int s, const char *wanted) {
    if (counters() && strcmp(control(s), wanted)) say("WRONG: %s has %s, not %s", what, control(s), wanted);
}

#define N (1ul << 20)
#define SENDS 24
static char *value;

static void *reads(void *arg) {
    static unsigned char got[N];
    int in = *(int *)arg;
    for (size_t have = 0; have < N;) {
        long r = RAW(SYS_read, in, got, N - have);
        MUST(r > 0);
        if (!is_input(got, (size_t)r, 9, have)) exit(1);
        have += (size_t)r;
    }
    return NULL;
}

/* Sends the value so often. Returns how many of these sends went by reference. */
static uint64_t lent(int out, int in, int times) {
    uint64_t before = counter("lent_sends");
    for (int i = 0; i < times; i++) {
        pthread_t t;
        MUST(pthread_create(&t, NULL, reads, &in) == 0);
        MUST(send(out, value, N, 0) == (ssize_t)N);
        pthread_join(t, NULL);
    }
    return counter("lent_sends") - before;
}

static void meet(int *out, int *in, int listener, struct sockaddr_in *address) {
    *out = socket(AF_INET, SOCK_STREAM, 0);
    has_bbr(*out);
    MUST(connect(*out, (struct sockaddr *)address, sizeof *address) == 0);
    MUST((*in = accept(listener, NULL, NULL)) >= 0);
}

int main(void) {
    struct sockaddr_in here, all;
    int out, in, next;
    if (!has_bbr(out = socket(AF_INET, SOCK_STREAM, 0))) {
        say("the kernel has no BBR");
        return 0;
    }
    close(out);
    value = malloc(N);
    receive(value, N, 9);
    int local = listens(INADDR_LOOPBACK, &here), everywhere = listens(INADDR_ANY, &all);
    meet(&out, &in, local, &here);
    is("a listener, before anything was to be sent by reference", local, "bbr");
    is("a connection then", out, "bbr");
    if (lent(out, in, SENDS)) say("WRONG: sent by reference over BBR");
    is("what was connected before", out, "bbr");
    is("a listener on the loopback device", local, "reno");
    is("a listener on all addresses", everywhere, "bbr");
    close(in);
    /* (The value was left alone for 128 sends.) */
    meet(&next, &in, local, &here);
    is("what connects there", next, "reno");
    is("what is accepted", in, "reno");
    if (counters() && !lent(next, in, 128 + SENDS)) say("NOTHING ELIDED: nothing was lent over Reno");
    MUST(has_bbr(next));
    is("what the program set since", next, "bbr");
    is("a listener that was made since", listens(INADDR_LOOPBACK, &all), "reno");
    /* As the kernel refuses them plainly. */
    MUST(connect(next, (struct sockaddr *)8, sizeof here) == -1 && errno == EFAULT);
    MUST(connect(next, (struct sockaddr *)&here, sizeof here) == -1 && errno == EISCONN);
    MUST(listen(-1, 1) == -1 && errno == EBADF);
    say("every byte came");
    return 0;
}
