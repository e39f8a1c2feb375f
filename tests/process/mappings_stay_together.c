/* Mappings that a program makes before and after it allocates, and elides, lie together as they do plainly: reservations of ours of many
 * GB are not between, or each miss of the processor's TLB would take longer. */
#include "process.h"
#include <dlfcn.h>

static void look(const char *what, const void *p) {
    uintptr_t from = (uintptr_t)p, libc = (uintptr_t)&printf;
    size_t apart = from > libc ? from - libc : libc - from;
    say("%s: %s", what, apart < 1ul << 30 ? "near libc" : "WRONG: 1 GB and more from libc");
}

/* (More than fits between libraries.) */
static void *map(void) {
    void *p = mmap(NULL, 200 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}

int main(void) {
    free(malloc(SIZE)); /* (The first one may make a reservation.) */
    look("memory", map());
    void *library = dlopen("libresolv.so.2", RTLD_NOW);
    MUST(library);
    look("a library", dlsym(library, "ns_initparse"));
    char *view = VIEW(1), *copy = fresh(SIZE);
    ELIDED_COPY(copy, view, SIZE);
    look("memory, after an elided copy", map());
    EXPECT_INPUT(copy, SIZE, 1);
    return 0;
}
