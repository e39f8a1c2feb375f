/* Calls that would end what is mapped at views, which the kernel refuses because a part of the range is sealed (mseal, Linux 6.10): the views are as before. The
 * kernel reports the unmapping all the same. */
#include "process.h"
#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#define SEALED (16 * PAGE)

static char *view;

/* Memory that ends with sealed pages; the rest is a view. */
static char *sealed(void) {
    char *at = (char *)mmap(NULL, SIZE + SEALED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    for (size_t i = 0; i < SIZE + SEALED; i += PAGE) at[i] = 1;
    ELIDED_COPY(at, view, SIZE);
    MUST(RAW(SYS_mseal, at + SIZE, SEALED, 0) == 0 || errno == ENOSYS);
    return at;
}

int main(void) {
    if (RAW(SYS_mseal, NULL, 0, 0) == -ENOSYS) return finish();
    view = VIEW(9);
    char *at = sealed();
    MUST(mmap(at, SIZE + SEALED, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
    EXPECT_INPUT(at, SIZE, 9);
    at = sealed();
    char *other = fresh(SIZE + SEALED);
    MUST(mremap(other, SIZE + SEALED, SIZE + SEALED, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED);
    EXPECT_INPUT(at, SIZE, 9);
    at = sealed();
    MUST(munmap(at, SIZE + SEALED) == -1);
    EXPECT_INPUT(at, SIZE, 9);
    /* What was refused can be done where nothing is sealed. */
    MUST(mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    EXPECT_FILLED(at, SIZE, 0);
    return finish();
}
