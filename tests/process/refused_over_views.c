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

/* A call that fails once the kernel has unmapped what was there: the addresses are whoever's gets them next. */
static void unmapped_and_refused(void) {
    char *at = fresh(SIZE), *copy = fresh(SIZE);
    ELIDED_COPY(at, view, SIZE);
    int no_file = socket(AF_INET, SOCK_DGRAM, 0);
    MUST(mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, no_file, 0) == MAP_FAILED);
    close(no_file);
    /* (Kernels that ask the file first leave it mapped.) */
    int place = RAW(SYS_msync, at, SIZE, MS_ASYNC) == 0 ? MAP_FIXED : MAP_FIXED_NOREPLACE;
    MUST(raw(SYS_mmap, (long)at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | place, -1, 0) == (long)at);
    for (size_t i = 0; i < SIZE; i++) ((volatile char *)at)[i] = 'N';
    memcpy(copy, at, SIZE);
    EXPECT_FILLED(copy, SIZE, 'N');
    EXPECT_FILLED(at, SIZE, 'N');
}

int main(void) {
    view = VIEW(9);
    unmapped_and_refused();
    if (RAW(SYS_mseal, NULL, 0, 0) == -ENOSYS) return finish();
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
    /* The call that was refused can be made where nothing is sealed. */
    MUST(mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    EXPECT_FILLED(at, SIZE, 0);
    return finish();
}
