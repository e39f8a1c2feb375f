/* Blocks that the kernel does not promise: malloc and its kin refuse what they refuse plainly, and grant what they grant. */
#include "process.h"
#include <sys/sysinfo.h>

int main(void) {
    struct sysinfo about;
    MUST(sysinfo(&about) == 0);
    size_t all = (about.totalram + about.totalswap) * about.mem_unit;
    char *v = VIEW(1), *grows = malloc(SIZE);
    receive(grows, SIZE, 2);
    for (size_t eighths = 1; eighths <= 16; eighths += 5) {
        size_t n = all / 8 * eighths - (1 << 20);
        void *p = malloc(n), *q = NULL;
        int aligned = posix_memalign(&q, PAGE, n);
        say("%zu eighths of memory: %s, %s", eighths, p ? "granted" : "refused", aligned ? "refused" : "granted");
        free(p);
        free(q);
        p = calloc(8, n / 8);
        say("calloc: %s", p ? "granted" : "refused");
        if (p) EXPECT_FILLED((char *)p + n / 2, PAGE, 0);
        free(p);
        p = realloc(grows, n);
        say("realloc: %s", p ? "granted" : "refused");
        if (p) grows = p;
        EXPECT_INPUT(grows, SIZE, 2);
        if (p) grows = realloc(p, SIZE);
        MUST(grows);
    }
    free(grows);
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
