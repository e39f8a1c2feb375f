/* A program with nearly as many mappings of its own as a process may have (vm.max_map_count): those that come of registered memory do not keep
 * it from making the others. */
#include "process.h"

#define ROOM 8000  /* mappings that are left when copies begin */
#define LAST 500   /* so many are not needed */
#define COPIES 3000
#define EACH (16 * PAGE)

int main(void) {
    int limit = 65530;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
    if (f) {
        MUST(fscanf(f, "%d", &limit) == 1);
        fclose(f);
    }
    if (limit > 200000) limit = 200000; /* (More than a test should make.) */
    int own = (limit - ROOM) / 2, more = (ROOM - LAST) / 2;
    int all = limit / 2 + 1;
    char *a = mmap(NULL, (size_t)all * 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(a != MAP_FAILED);
    for (int i = 0; i < own; i++) MUST(mprotect(a + (size_t)i * 2 * PAGE, PAGE, PROT_READ) == 0);
    char *src = fresh(EACH), *big = fresh(2 * EACH * COPIES);
    receive(src, EACH, 1);
    for (size_t i = 0; i < COPIES; i++) ELIDED_COPY(big + i * 2 * EACH, src, EACH);
    int failed = 0;
    for (int i = own; i < own + more; i++) failed += mprotect(a + (size_t)i * 2 * PAGE, PAGE, PROT_READ) != 0;
    say("refused: %d", failed);
    char *block = malloc(64 << 20), *mapped = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    say("block: %s, mapping: %s", block ? "yes" : "no", mapped != MAP_FAILED ? "yes" : "no");
    /* mremap refuses some mappings before the last. */
    for (int i = own + more; counters() && i < all; i++) {
        if (RAW(SYS_mprotect, a + (size_t)i * 2 * PAGE, PAGE, PROT_READ) == 0) continue;
        MUST(RAW(SYS_mprotect, a + (size_t)(i - 1) * 2 * PAGE, PAGE, PROT_NONE) == 0);
        break;
    }
    char *one = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *moved = mremap(one, PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    say("moved: %s", moved != MAP_FAILED ? "yes" : "no");
    for (size_t i = 0; i < COPIES; i++)
        if (!is_input(big + i * 2 * EACH, EACH, 1, 0)) return 1;
    free(block);
    say("all right");
    return finish();
}
