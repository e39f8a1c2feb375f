/* A connection that paces itself within the host (BBR) takes no pages: its timers would cost more than the copies. Others do. The price of
 * sending is given in UNCOPY_COSTS. */
#include "process.h"

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

static int has_bbr(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    int has = setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) == 0;
    close(s);
    return has;
}

/* Sends the value again and again. Returns how many of these sends went by reference. */
static uint64_t lent_over(const char *control) {
    int out, in;
    uint64_t before = counter("lent_sends");
    tcp_pair(&out, &in, control);
    for (int i = 0; i < SENDS; i++) {
        pthread_t t;
        MUST(pthread_create(&t, NULL, reads, &in) == 0);
        MUST(send(out, value, N, 0) == (ssize_t)N);
        pthread_join(t, NULL);
    }
    close(out), close(in);
    return counter("lent_sends") - before;
}

int main(void) {
    value = malloc(N);
    receive(value, N, 9);
    /* (In this order: a value that cannot be lent is left alone for 128 sends, whoever asks for it.) */
    uint64_t plain = lent_over("reno"), paced = has_bbr() ? lent_over("bbr") : 0;
    if (counters() && !plain) say("NOTHING ELIDED: nothing was lent over Reno");
    if (paced) say("WRONG: %lu of %d sends were lent over BBR", (unsigned long)paced, SENDS);
    say("every byte came, BBR: %d", has_bbr());
    return 0;
}
