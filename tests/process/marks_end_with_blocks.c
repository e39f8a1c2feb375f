/* Settings that a program makes of a large block's memory (madvise, mprotect, mappings put over it or taken out of it) end when it
 * frees the block: the next one is plain memory. */
#include "process.h"
#include <malloc.h>
#include <sys/ioctl.h>

#define BLOCK (1ul << 20)
#define PART (BLOCK / 4)

static char *block(void) {
    void *p;
    MUST(posix_memalign(&p, PAGE, BLOCK) == 0);
    return p;
}

static int file;
static int wiped(char *p) { return madvise(p, BLOCK, MADV_WIPEONFORK); }
static int wiped_by_number(char *p) { return (int)syscall(SYS_madvise, p + PART, PART, MADV_WIPEONFORK); }
static int absent(char *p) { return madvise(p + PART, PART, MADV_DONTFORK); }
static int absent_by_another_call(char *p) { /* (of this process, since Linux 6.13) */
    struct iovec part = {p + PART, PART};
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    MUST(self >= 0);
    if (syscall(SYS_process_madvise, self, &part, 1, MADV_DONTFORK, 0) != (long)PART) say("refused");
    close(self);
    return 0;
}
static int not_dumped(char *p) { return madvise(p, PART, MADV_DONTDUMP); }
static int locked(char *p) { return mlock(p + PART, PART); }
static int read_only(char *p) { return mprotect(p + PART, PART, PROT_READ); }
static int no_access(char *p) { return mprotect(p + PART, PART, PROT_NONE); }
static int no_access_by_key(char *p) { return pkey_mprotect(p + PART, PART, PROT_NONE, -1); }
static int by_policy(char *p) { return (int)syscall(SYS_mbind, p + PART, PART, 0, NULL, 0, 0); }
static int of_file(char *p) {
    return mmap(p + PART, PART, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED;
}
static int hole(char *p) { return munmap(p + PART, PART); }
static int moved_away(char *p) {
    char *to = mremap(p + PART, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED,
                      mmap(NULL, PART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return to == MAP_FAILED || munmap(to, PART) != 0;
}
static int moved_into(char *p) {
    char *from = mmap(NULL, PART, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return mremap(from, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, p + PART) == MAP_FAILED;
}

static const struct {
    const char *name;
    int (*mark)(char *);
} marks[] = {{"wiped in children", wiped},     {"the same by number", wiped_by_number},
             {"absent in children", absent},   {"absent by another call", absent_by_another_call},
             {"not dumped", not_dumped},
             {"locked", locked},               {"read only", read_only},
             {"no access", no_access},         {"no access, by key", no_access_by_key},
             {"policy", by_policy},            {"a file's", of_file},
             {"hole", hole},                   {"moved away", moved_away},
             {"moved into", moved_into}};

/* The flags of the mapping at `p`, as far as a program might mean them. */
static void flags(const char *p, char *into) {
    char line[300];
    int here = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    MUST(f);
    *into = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) here = start <= (unsigned long)p && (unsigned long)p < end;
        if (!here || strncmp(line, "VmFlags:", 8)) continue;
        static const char *meant[] = {" rd", " wr", " sh", " lo", " dc", " dd", " wf"};
        for (unsigned i = 0; i < sizeof meant / sizeof *meant; i++)
            if (strstr(line, meant[i])) strcat(into, meant[i]);
    }
    fclose(f);
}

int main(void) {
    /* (Large blocks are mappings of their own plainly, whatever came before.) */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    char *v = VIEW(1);
    file = memfd_create("put over blocks", MFD_CLOEXEC);
    MUST(file >= 0 && ftruncate(file, PART) == 0);
    for (unsigned i = 0; i < sizeof marks / sizeof *marks; i++) {
        char *p = block();
        memset(p, 1, BLOCK);
        if (i % 2) { /* with views in it */
            char *from = fresh(BLOCK);
            receive(from, BLOCK, 2);
            ELIDED_COPY(p, from, BLOCK);
            munmap(from, BLOCK);
        }
        MUST(marks[i].mark(p) == 0);
        free(p);
        char *q = block(), words[64];
        flags(q + PART, words);
        say("%s: the next block's flags:%s", marks[i].name, words);
        memset(q, 7, BLOCK);
        char *from = fresh(BLOCK);
        receive(from, BLOCK, 3);
        ELIDED_COPY(q + PART, from, BLOCK - PART); /* (also where children were not to see what was here) */
        pid_t child = fork();
        if (child == 0) {
            EXPECT_FILLED(q, PART, 7);
            EXPECT_INPUT(q + PART, BLOCK - PART, 3);
            _exit(0);
        }
        wait_for(marks[i].name, child);
        EXPECT_INPUT(q + PART, BLOCK - PART, 3);
        munmap(from, BLOCK);
        free(q);
    }
    char first[8] = {0};
    MUST(pread(file, first, 8, 0) == 8);
    say("the file's first byte: %d", first[0]);
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
