/* A listener on the loopback device, and what connects there, are not left to BBR, which would pace them by timers: they are Reno's. A
 * listener on all addresses is as it was, and what the program sets afterwards is what it gets. */
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

int main(void) {
    struct sockaddr_in here, all;
    int out = socket(AF_INET, SOCK_STREAM, 0);
    if (!has_bbr(out)) {
        say("the kernel has no BBR");
        return 0;
    }
    int local = listens(INADDR_LOOPBACK, &here), everywhere = listens(INADDR_ANY, &all);
    is("a listener on the loopback device", local, "reno");
    is("a listener on all addresses", everywhere, "bbr");
    MUST(connect(out, (struct sockaddr *)&here, sizeof here) == 0);
    int in = accept(local, NULL, NULL);
    MUST(in >= 0);
    is("what connected there", out, "reno");
    is("what was accepted", in, "reno");
    MUST(has_bbr(out));
    is("what the program set since", out, "bbr");
    /* As the kernel refuses them plainly. */
    MUST(connect(out, (struct sockaddr *)8, sizeof here) == -1 && errno == EFAULT);
    MUST(connect(out, (struct sockaddr *)&here, sizeof here) == -1 && errno == EISCONN);
    MUST(listen(-1, 1) == -1 && errno == EBADF);
    say("connected");
    return 0;
}
