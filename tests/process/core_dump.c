/* A core dump: what is resident is in it; pages that are unmapped are zeros there, and their bytes are found in the extents. */
#include "process.h"
#include <elf.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static char *v, *resident;

/* Finds `n` bytes of memory at `addr` in the core file. */
static int in_core(const char *core, const void *addr, void *to, size_t n) {
    const Elf64_Ehdr *e = (const void *)core;
    const Elf64_Phdr *p = (const void *)(core + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && (uintptr_t)addr >= p[i].p_vaddr && (uintptr_t)addr + n <= p[i].p_vaddr + p[i].p_filesz) {
            memcpy(to, core + p[i].p_offset + ((uintptr_t)addr - p[i].p_vaddr), n);
            return 1;
        }
    return 0;
}

int main(void) {
    char pattern[100] = "";
    int f = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    MUST(f >= 0 && read(f, pattern, sizeof pattern - 1) > 0);
    v = VIEW(1);
    resident = fresh(PAGE);
    fill(resident, PAGE, 2, 0);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
        if (setrlimit(RLIMIT_CORE, &all) != 0) _exit(9);
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        abort();
    }
    wait_for("aborted", child);
    char name[60] = "core";
    if (access(name, R_OK) != 0) snprintf(name, sizeof name, "core.%d", child);
    int fd = open(name, O_RDONLY);
    if (strncmp(pattern, "core", 4) != 0 || fd < 0) {
        say("core dumps are not written to a file here: not looked at");
        documented("Core dumps hold zeros for unmapped pages", !counters() || !eager());
        return finish();
    }
    struct stat s;
    MUST(fstat(fd, &s) == 0);
    char *core = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0), page[PAGE], zeros[PAGE] = {0};
    MUST(core != MAP_FAILED);
    MUST(in_core(core, resident, page, PAGE));
    EXPECT_INPUT(page, PAGE, 2);
    int there = in_core(core, v + SIZE / 2, page, PAGE);
    if (!there || memcmp(page, zeros, PAGE) == 0) {
        documented("Core dumps hold zeros for unmapped pages", 0);
        /* The extents are in the dump: the bytes are found. */
        fill(page, PAGE, 1, SIZE / 2);
        say("bytes found: %d", memmem(core, (size_t)s.st_size, page, PAGE) != NULL);
    } else {
        MUST(is_input(page, PAGE, 1, SIZE / 2));
        documented("Core dumps hold zeros for unmapped pages", 1);
        say("bytes found: 1");
    }
    unlink(name);
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
