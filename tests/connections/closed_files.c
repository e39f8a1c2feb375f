/* While a thread waits in sendfile another closes the file, and opens one that gets its number. The call holds what it began with: bytes of
 * the other file never go, and its position stays. (Where files are kept the call may end early.) */
#include "connection.h"
#include <sys/mman.h>

enum { SIZE = 24 << 20, MB = 1 << 20, WORDS = SIZE / 4, ROUNDS = 12, HEATS = 60 };

static char directory[] = "/tmp/uncopy-closed-XXXXXX";
static char first_path[64], other_path[64];
/* Rounds in which the receiver has begun, and in which the number is another's. */
struct turns { volatile int begun, taken; };
static struct turns *turns;
static void waits_for(volatile int *turn, int round) {
    for (int i = 0; *turn < round; i++) {
        MUST(i < 30000);
        usleep(1000);
    }
}

static void make(const char *path, uint32_t value) {
    uint32_t *all = malloc(SIZE);
    MUST(all != NULL);
    for (size_t i = 0; i < WORDS; i++) all[i] = value;
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    MUST(fd >= 0 && write(fd, all, SIZE) == SIZE && close(fd) == 0);
    free(all);
}

struct job { int fd, file, by_position; off_t at; ssize_t sent; };
static void *sends(void *of) {
    struct job *job = of;
    job->sent = sendfile(job->fd, job->file, job->by_position ? NULL : &job->at, SIZE);
    return NULL;
}
static void sends_rest(int fd, int file, off_t at) {
    while (at < SIZE) MUST(sendfile(fd, file, &at, (size_t)(SIZE - at)) > 0);
}

static void server(int fd) {
    MUST(mkdtemp(directory) != NULL);
    snprintf(first_path, sizeof first_path, "%s/first", directory);
    snprintf(other_path, sizeof other_path, "%s/other", directory);
    make(first_path, 1), make(other_path, 2);
    int file = open(first_path, O_RDONLY), keeps = getenv("UNCOPY_FILE_MEMORY") != NULL;
    MUST(file >= 0);
    char more = 'm', byte;
    for (int i = 0; i < HEATS && (i < 3 || (keeps && counter("kept_sends") < 60)); i++) {
        send_all(fd, &more, 1);
        sends_rest(fd, file, 0);
        receive_all(fd, &byte, 1);
    }
    if (keeps && counter("kept_sends") < 60) say("WRONG: %lu parts from memory", counter("kept_sends"));
    send_all(fd, "e", 1);
    for (int round = 1; round <= ROUNDS; round++) {
        struct job job = {fd, file, round % 2, 0, 0};
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, sends, &job) == 0);
        waits_for(&turns->begun, round);
        MUST(close(file) == 0 && open(other_path, O_RDONLY) == file);
        turns->taken = round;
        MUST(pthread_join(thread, NULL) == 0);
        MUST(job.sent > 0 && job.sent <= SIZE);
        if (!keeps) MUST(job.sent == SIZE);
        if (!job.by_position) MUST(job.at == job.sent);
        off_t at = lseek(file, 0, SEEK_CUR);
        if (at != 0) say("WRONG: the other file is at %ld", (long)at);
        MUST(close(file) == 0 && open(first_path, O_RDONLY) == file);
        sends_rest(fd, file, job.sent);
        receive_all(fd, &byte, 1);
    }
    for (int i = 0; i < 10; i++) {
        sends_rest(fd, file, 0);
        receive_all(fd, &byte, 1);
    }
    off_t at = SIZE - MB;
    ssize_t n = sendfile(fd, file, &at, (size_t)-1);
    say("of SIZE_MAX bytes: %zd %s, at %ld", n, n < 0 ? strerror(errno) : "", (long)at);
    close(file);
    unlink(first_path), unlink(other_path);
    MUST(rmdir(directory) == 0);
}
static void client(int fd) {
    char *room = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(room != MAP_FAILED);
    char more;
    for (receive_all(fd, &more, 1); more == 'm'; receive_all(fd, &more, 1)) {
        for (size_t at = 0; at < SIZE; at += MB) receive_all(fd, room + at, MB);
        send_all(fd, "n", 1);
    }
    for (int round = 1; round <= ROUNDS; round++) {
        for (size_t at = 0; at < SIZE; at += MB) {
            receive_all(fd, room + at, MB);
            if (at == 0) {
                turns->begun = round;
                waits_for(&turns->taken, round);
            }
        }
        for (size_t i = 0; i < WORDS; i++) {
            uint32_t word;
            memcpy(&word, room + 4 * i, 4);
            if (word != 1) {
                say("WRONG: the word at %zu is of file %u", 4 * i, word);
                break;
            }
        }
        send_all(fd, "n", 1);
    }
    for (int i = 0; i < 10; i++) {
        for (size_t at = 0; at < SIZE; at += MB) receive_all(fd, room + at, MB);
        send_all(fd, "n", 1);
    }
}

int main(void) {
    turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(turns != MAP_FAILED);
    run_pair("closed", server, client);
    return 0;
}
