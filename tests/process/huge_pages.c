/* Huge pages: transparent ones (madvise, aligned), and of hugetlbfs where the machine has some. */
#include "process.h"

#define HUGE (2ul << 20)

int main(void) {
    char *place = mmap(NULL, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(place != MAP_FAILED);
    char *a = (char *)(((uintptr_t)place + HUGE - 1) & ~(HUGE - 1)), *b = a + HUGE;
    MUST(madvise(a, 2 * HUGE, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    for (unsigned round = 0; round < 3; round++) {
        memset(a, 1, 2 * HUGE);
        receive(a, HUGE, round);
        ELIDED_COPY(b, a, HUGE); /* a whole huge page to another */
        send_on("huge", b, HUGE);
        b[HUGE / 2] ^= 0;
        EXPECT_INPUT(b, HUGE, round);
        receive(a + PAGE, SIZE, 10 + round); /* parts of huge pages */
        ELIDED_COPY(b + PAGE * 7, a + PAGE, SIZE);
        EXPECT_INPUT(b + PAGE * 7, SIZE, 10 + round);
        EXPECT_INPUT(b, PAGE * 7, round);
        EXPECT_INPUT_FROM(b + PAGE * 7 + SIZE, HUGE - PAGE * 7 - SIZE, round, PAGE * 7 + SIZE);
        if (round == 1) madvise(a, 2 * HUGE, 25 /* MADV_COLLAPSE */);
        EXPECT_INPUT(a, PAGE, round);
        EXPECT_INPUT(a + PAGE, SIZE, 10 + round);
        pid_t child = fork();
        if (child == 0) _exit(is_input(b + PAGE * 7, SIZE, 10 + round, 0) ? 0 : 1);
        wait_for("child", child);
    }
    char *large = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (large == MAP_FAILED) {
        say("no pages of hugetlbfs here");
        return finish();
    }
    receive(large, HUGE, 20);
    memcpy(a, large, HUGE);
    EXPECT_INPUT(a, HUGE, 20);
    memcpy(large, VIEW(21), SIZE);
    EXPECT_INPUT(large, SIZE, 21);
    return finish();
}
