/* Memory that children must not see (MADV_WIPEONFORK, MADV_DONTFORK), asked for before the first copy of all, and receiving
 * copies afterwards. */
#include "process.h"

int main(void) {
    char *wiped = fresh(SIZE), *absent = fresh(SIZE);
    MUST(madvise(wiped, SIZE, MADV_WIPEONFORK) == 0 && madvise(absent, SIZE, MADV_DONTFORK) == 0);
    char *v = VIEW(1), *origin = fresh(SIZE), *to = fresh(SIZE);
    memcpy(wiped, VIEW(2), SIZE);  /* a secret, received and copied */
    memcpy(absent, VIEW(3), SIZE);
    receive(origin, SIZE, 4);
    memcpy(wiped + PAGE, origin, SIZE / 2);
    memcpy(to, wiped, SIZE);
    pid_t child = fork();
    if (child == 0) {
        EXPECT_FILLED(wiped, SIZE, 0);
        say("absent: %s", RAW(SYS_access, absent, 0, 0) == -EFAULT ? "yes" : "no");
        EXPECT_INPUT(v, SIZE, 1);
        EXPECT_INPUT(to + PAGE, SIZE / 2, 4);
        _exit(0);
    }
    wait_for("child", child);
    EXPECT_INPUT(wiped, PAGE, 2);
    EXPECT_INPUT(wiped + PAGE, SIZE / 2, 4);
    EXPECT_INPUT(absent, SIZE, 3);
    return finish();
}
