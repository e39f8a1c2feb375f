/* madvise in all its kinds on memory with views and origins: dropped pages are zeros, the others keep their bytes, also in children. */
#include "process.h"

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif

static const struct {
    const char *name;
    int advice;
} kinds[] = {{"normal", MADV_NORMAL},       {"random", MADV_RANDOM},         {"sequential", MADV_SEQUENTIAL}, {"willneed", MADV_WILLNEED},
             {"cold", MADV_COLD},           {"pageout", MADV_PAGEOUT},       {"hugepage", MADV_HUGEPAGE},     {"nohugepage", MADV_NOHUGEPAGE},
             {"mergeable", MADV_MERGEABLE}, {"unmergeable", MADV_UNMERGEABLE}, {"dontdump", MADV_DONTDUMP},   {"dodump", MADV_DODUMP},
             {"populate for reading", 22},  {"populate for writing", 23},    {"collapse", 25},                {"free", MADV_FREE},
             {"dontneed", MADV_DONTNEED},   {"dontneed locked", 24},         {"remove", MADV_REMOVE},         {"nonsense", 12345}};

int main(void) {
    int zeros = 0;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char *v = VIEW(i), *origin = fresh(SIZE), *to = fresh(SIZE);
        receive(origin, SIZE, 100 + i);
        int result = madvise(v + PAGE * 8, SIZE / 2, kinds[i].advice);
        int error = errno;
        int second = madvise(origin + PAGE * 8, SIZE / 2, kinds[i].advice);
        if (kinds[i].advice != 25) say("%s: %s, %s", kinds[i].name, result ? strerror(error) : "done", second ? strerror(errno) : "done");
        EXPECT_INPUT(v, PAGE * 8, i);
        EXPECT_INPUT_FROM(v + PAGE * 8 + SIZE / 2, SIZE / 2 - PAGE * 8, i, PAGE * 8 + SIZE / 2);
        if (kinds[i].advice == MADV_FREE) {
            for (size_t at = PAGE * 8; at < PAGE * 8 + SIZE / 2; at += PAGE) /* each page: kept or zeros */
                if (v[at + 1] == 0 && v[at + 2] == 0 && v[at + 9] == 0) zeros += !is_filled(v + at, PAGE, 0);
                else MUST(is_input(v + at, PAGE, i, at));
            MUST(zeros == 0);
        } else if (kinds[i].advice == MADV_DONTNEED || kinds[i].advice == 24) {
            EXPECT_FILLED(v + PAGE * 8, SIZE / 2, 0);
            EXPECT_FILLED(origin + PAGE * 8, SIZE / 2, 0);
            fill(origin + PAGE * 8, SIZE / 2, 100 + i, PAGE * 8);
        } else {
            EXPECT_INPUT_FROM(v + PAGE * 8, SIZE / 2, i, PAGE * 8);
        }
        if (kinds[i].advice != MADV_FREE) {
            memcpy(to, origin, SIZE);
            EXPECT_INPUT(to, SIZE, 100 + i);
        }
        posix_madvise(v, SIZE, POSIX_MADV_DONTNEED); /* does nothing, by libc */
    }
    /* Memory that children get. */
    char *wiped = VIEW(50), *absent = VIEW(51), *kept = VIEW(52), *not_wiped = VIEW(53);
    MUST(madvise(wiped, SIZE, MADV_WIPEONFORK) == 0 && madvise(absent + SIZE / 2, SIZE / 2, MADV_DONTFORK) == 0);
    MUST(madvise(not_wiped, SIZE, MADV_WIPEONFORK) == 0 && madvise(not_wiped, SIZE, MADV_KEEPONFORK) == 0);
    /* Used again afterwards: views in memory that has been advised. */
    receive(wiped, SIZE / 2, 54);
    char *to = fresh(SIZE);
    memcpy(to, wiped, SIZE);
    memcpy(wiped + SIZE / 2, VIEW(55), SIZE / 2);
    pid_t child = fork();
    if (child == 0) {
        EXPECT_FILLED(wiped, SIZE, 0);
        EXPECT_INPUT(kept, SIZE, 52);
        EXPECT_INPUT(not_wiped, SIZE, 53);
        EXPECT_INPUT(absent, SIZE / 2, 51);
        say("absent: %zd %s", write(open("/dev/null", O_WRONLY), absent + SIZE / 2, 1), "(written to /dev/null)");
        say("absent: %ld", RAW(SYS_access, absent + SIZE / 2, 0, 0));
        _exit(0);
    }
    wait_for("child", child);
    EXPECT_INPUT(wiped, SIZE / 2, 54);
    EXPECT_INPUT(wiped + SIZE / 2, SIZE / 2, 55);
    EXPECT_INPUT(to, SIZE / 2, 54);
    EXPECT_INPUT_FROM(to + SIZE / 2, SIZE / 2, 50, SIZE / 2);
    EXPECT_INPUT(absent, SIZE, 51);
    return finish();
}
