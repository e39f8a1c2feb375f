/* Core dumps, however they come about: what was copied and not touched is in them, with the registers and the details of the
 * signal, and nothing of ours makes them larger. A program that goes on after a fork dumps its own. */
#include "process.h"
#include <elf.h>
#include <sys/prctl.h>
#include <sys/procfs.h>
#include <sys/resource.h>
#include <ucontext.h>

static char *v, *resident, *nowhere;

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

static const void *note(const char *core, unsigned type) {
    const Elf64_Ehdr *e = (const void *)core;
    const Elf64_Phdr *p = (const void *)(core + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++)
        for (size_t at = p[i].p_offset; p[i].p_type == PT_NOTE && at < p[i].p_offset + p[i].p_filesz;) {
            const Elf64_Nhdr *n = (const void *)(core + at);
            const char *text = core + at + sizeof *n + ((n->n_namesz + 3u) & ~3u);
            if (n->n_type == type) return text;
            at = (size_t)(text - core) + ((n->n_descsz + 3u) & ~3u);
        }
    return NULL;
}

static void aborts(void) { abort(); }
__attribute__((noinline)) static void faults(void) { *(volatile char *)nowhere = 1; }
static void traps(void) { __asm__ volatile("int3"); }
static void divides(void) {
    __asm__ volatile("xorl %%ecx, %%ecx; movl $1, %%eax; cltd; idivl %%ecx" ::: "eax", "ecx", "edx");
}
static void is_sent(void) {
    union sigval seven = {.sival_int = 7};
    sigqueue(getpid(), SIGQUIT, seven);
}
static void in_a_pause(void) {
    sigset_t all, none;
    sigfillset(&all), sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &all, NULL);
    raise(SIGQUIT);
    sigsuspend(&none);
}
static void on_a_small_stack(void) {
    static ucontext_t here, there;
    getcontext(&there);
    there.uc_stack.ss_sp = fresh(4 * PAGE), there.uc_stack.ss_size = 4 * PAGE;
    makecontext(&there, aborts, 0);
    swapcontext(&here, &there);
}
static void after_once(void) {
    struct sigaction act = {.sa_handler = SIG_DFL};
    act.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGSEGV, &act, NULL);
    faults();
}
static void *thread_faults(void *unused) {
    faults();
    return unused;
}
static void in_a_thread(void) {
    pthread_t t;
    pthread_create(&t, NULL, thread_faults, NULL);
    pthread_join(t, NULL);
}

static void dumps(const char *what, void (*how)(void), int to_be_written) {
    say("%s", what);
    int ours[2];
    MUST(pipe(ours) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}, none = {0, RLIM_INFINITY};
        if (setrlimit(RLIMIT_CORE, to_be_written ? &all : &none) != 0) _exit(9);
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        char *w = fresh(SIZE); /* (elided in the child) */
        memcpy(w, v, SIZE);
        MUST(write(ours[1], &w, sizeof w) == sizeof w);
        how();
        _exit(8);
    }
    char *w;
    wait_for(what, child);
    MUST(read(ours[0], &w, sizeof w) == sizeof w);
    close(ours[0]), close(ours[1]);
    if (!to_be_written) return;
    char name[60] = "core";
    if (access(name, R_OK) != 0) snprintf(name, sizeof name, "core.%d", child);
    int fd = open(name, O_RDONLY);
    if (fd < 0) {
        say("core dumps are not written to a file here: not looked at");
        return;
    }
    struct stat s;
    MUST(fstat(fd, &s) == 0);
    char *core = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0), page[PAGE], *bytes = malloc(SIZE);
    MUST(core != MAP_FAILED);
    MUST(in_core(core, resident, page, PAGE));
    MUST(is_input(page, PAGE, 2, 0));
    MUST(in_core(core, v, bytes, SIZE));
    MUST(is_input(bytes, SIZE, 1, 0));
    MUST(in_core(core, w, bytes, SIZE));
    MUST(is_input(bytes, SIZE, 1, 0));
    free(bytes);
    const struct elf_prstatus *status = note(core, NT_PRSTATUS);
    const siginfo_t *info = note(core, 0x53494749 /* NT_SIGINFO */);
    MUST(status && info);
    say("signal %d %d, code %d, in its place %d", status->pr_cursig, info->si_signo, info->si_code,
        how != faults || (info->si_addr == nowhere && status->pr_reg[16] - (uintptr_t)faults < 40));
    /* (Plainly it is 3 MB, with a thread's heap 64 more that are not there.) */
    say("small: %d, little on disk: %d", s.st_size < 100l << 20, s.st_blocks * 512l < 12l << 20);
    if (getenv("SIZES")) say("%ld KB, %ld on disk", (long)s.st_size >> 10, (long)s.st_blocks / 2);
    munmap(core, (size_t)s.st_size);
    close(fd);
    unlink(name);
}

int main(void) {
    nowhere = fresh(PAGE);
    MUST(mprotect(nowhere, PAGE, PROT_NONE) == 0);
    v = VIEW(1);
    resident = fresh(PAGE);
    fill(resident, PAGE, 2, 0);
    dumps("abort", aborts, 1);
    dumps("a fault", faults, 1);
    dumps("a trap", traps, 1);
    dumps("a division", divides, 1);
    dumps("a signal that is sent", is_sent, 1);
    dumps("a signal in a pause", in_a_pause, 1);
    dumps("on a small stack", on_a_small_stack, 1);
    dumps("without its handler", after_once, 1);
    dumps("in a thread", in_a_thread, 1);
    dumps("no core", faults, 0);
    EXPECT_INPUT(v, SIZE, 1);
    return finish();
}
