/* memfd_secret: memory that not even the kernel may read; copied into from views and out of. */
#include "process.h"

int main(void) {
    int fd = (int)syscall(SYS_memfd_secret, 0);
    if (fd < 0) {
        say("no memfd_secret here: %s", strerror(errno));
        VIEW(1);
        return finish();
    }
    MUST(ftruncate(fd, SIZE) == 0);
    char *secret = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (secret == MAP_FAILED) {
        say("cannot be mapped: %s", strerror(errno));
        VIEW(1);
        return finish();
    }
    memcpy(secret, VIEW(1), SIZE);
    EXPECT_INPUT(secret, SIZE, 1);
    char *to = fresh(SIZE), *v = VIEW(2);
    memcpy(to, secret, SIZE);
    memcpy(v + 7, secret, SIZE / 2);
    EXPECT_INPUT(to, SIZE, 1);
    EXPECT_INPUT(v + 7, SIZE / 2, 1);
    EXPECT_INPUT(v, 7, 2);
    receive(secret, SIZE, 3);
    memcpy(to, secret, SIZE);
    EXPECT_INPUT(to, SIZE, 3);
    return finish();
}
