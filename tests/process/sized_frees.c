/* C23's free_sized and free_aligned_sized: a block of ours, with views in it, goes back as with free. (A libc before 2.43 has neither:
 * there the plain run frees as always.) */
#include "process.h"

typedef void (*sized)(void *, size_t);
typedef void (*aligned_sized)(void *, size_t, size_t);

static long resident_pages(void) {
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    MUST(f && fscanf(f, "%ld %ld", &size, &resident) == 2);
    fclose(f);
    return resident;
}

int main(void) {
    sized free_sized = (sized)dlsym(RTLD_DEFAULT, "free_sized");
    aligned_sized free_aligned = (aligned_sized)dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (counters() && (!free_sized || !free_aligned)) say("WRONG: not there");
    char *source = malloc(SIZE);
    long before = 0;
    for (int i = 0; i < 400; i++) {
        receive(source, SIZE, (unsigned)i);
        char *copy = malloc(SIZE), *other = aligned_alloc(PAGE, SIZE);
        ELIDED_COPY(copy, source, SIZE);
        ELIDED_COPY(other, source, SIZE);
        if (!is_input(copy, SIZE, (unsigned)i, 0) || !is_input(other, SIZE, (unsigned)i, 0)) return 1;
        if (free_sized) free_sized(copy, SIZE); else free(copy);
        if (free_aligned) free_aligned(other, PAGE, SIZE); else free(other);
        if (i == 50) before = resident_pages();
    }
    long more = resident_pages() - before;
    say("grown by less than 20 MB: %d", more < (20l << 20) / (long)PAGE);
    return finish();
}
