/* Buffers that are mappings of files, shared or private, memfd, POSIX and System V shared memory: received into, copied out of and into
 * views, sent, and seen by whoever shares them. */
#include "process.h"
#include <sys/shm.h>

static void works(const char *what, char *m, unsigned number, const char *other) {
    char *to = fresh(SIZE);
    receive(m, SIZE, number); /* input, but not memory that may be moved */
    memcpy(to, m, SIZE);
    EXPECT_INPUT(to, SIZE, number);
    char *v = VIEW(number + 1);
    memcpy(m, v, SIZE); /* out of views */
    if (other) EXPECT_INPUT(other, SIZE, number + 1);
    send_on(what, m, SIZE);
    memcpy(v + PAGE, m + PAGE * 4, SIZE / 2); /* into views */
    memmove(m + 100, m, SIZE - 100);
    EXPECT_INPUT(m + 100, SIZE - 100, number + 1);
    EXPECT_INPUT_FROM(v + PAGE, SIZE / 2, number + 1, PAGE * 4);
    show(what, v, SIZE);
    if (other) show("the other side", other, SIZE);
}

int main(void) {
    int file = input_file(SIZE, 99), protect = PROT_READ | PROT_WRITE;
    char *shared = mmap(NULL, SIZE, protect, MAP_SHARED, file, 0);
    char *other = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
    MUST(shared != MAP_FAILED && other != MAP_FAILED);
    EXPECT_INPUT(shared, SIZE, 99);
    works("shared file", shared, 1, other);
    show("the file has it", other, SIZE);

    int second = input_file(SIZE, 98);
    char *own = mmap(NULL, SIZE, protect, MAP_PRIVATE, second, 0);
    MUST(own != MAP_FAILED);
    own[5] = own[5];
    char *to = fresh(SIZE);
    memcpy(to, own, SIZE);
    EXPECT_INPUT(to, SIZE, 98);
    works("private file", own, 3, NULL);
    char *read_back = fresh(SIZE);
    MUST(pread(second, read_back, SIZE, 0) == (ssize_t)SIZE);
    ELIDED_COPY(to, read_back, SIZE);
    EXPECT_INPUT(to, SIZE, 98); /* the file has not changed */

    int memory = memfd_create("memory", 0);
    MUST(ftruncate(memory, SIZE) == 0);
    works("memfd", mmap(NULL, SIZE, protect, MAP_SHARED, memory, 0), 5, mmap(NULL, SIZE, PROT_READ, MAP_SHARED, memory, 0));
    works("private memfd", mmap(NULL, SIZE, protect, MAP_PRIVATE, memory, 0), 7, NULL);

    char name[40];
    snprintf(name, sizeof name, "/uncopy-process-%d", getpid());
    int posix = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(posix >= 0 && shm_unlink(name) == 0 && ftruncate(posix, SIZE) == 0);
    works("posix", mmap(NULL, SIZE, protect, MAP_SHARED, posix, 0), 9, mmap(NULL, SIZE, PROT_READ, MAP_SHARED, posix, 0));

    int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
    char *segment = shmat(id, NULL, 0), *again = shmat(id, NULL, SHM_RDONLY);
    MUST(segment != (void *)-1 && again != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    works("system v", segment, 11, again);
    /* Over memory that holds views. */
    char *v = VIEW(13);
    MUST(shmat(id, v, SHM_REMAP) == v);
    char *w = fresh(SIZE);
    memcpy(w, v, SIZE);
    show("segment in place of views", w, SIZE);

    /* Anonymous shared memory: parent and child. */
    char *both = mmap(NULL, SIZE, protect, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *x = VIEW(14);
    pid_t child = fork();
    if (child == 0) {
        memcpy(both, x, SIZE);
        _exit(0);
    }
    wait_for("child", child);
    EXPECT_INPUT(both, SIZE, 14);
    return finish();
}
