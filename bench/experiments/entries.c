/* The cost of standing between a server and libc: fourteen functions that only jump on, to be preloaded.
 *
 *   cc -O2 -fPIC -shared -o /tmp/pointers.so bench/experiments/entries.c               through pointers, all in one page
 *   cc -O2 -fPIC -shared -DPAGES -o /tmp/pages.so bench/experiments/entries.c          through pointers, each in a page of its own
 *   cc -O2 -fPIC -shared -DDIRECT -o /tmp/direct.so bench/experiments/entries.c        directly, all in one page
 *   -DCOMPARES with any of them: four words of memory are compared first
 *   bench/apps/small.py --only redis nginx --connections 1 --beside pointers=/tmp/pointers.so pages=/tmp/pages.so direct=/tmp/direct.so
 *
 * For x86-64. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define FUNCTIONS(DO) \
    DO(malloc, 1) DO(free, 2) DO(calloc, 3) DO(realloc, 4) DO(malloc_usable_size, 5) DO(read, 6) DO(write, 7) DO(epoll_wait, 8) \
    DO(memcpy, 9) DO(memmove, 10) DO(writev, 11) DO(recv, 12) DO(send, 13) DO(close, 14)

#ifdef PAGES
/* Not all in the same line of their page. */
#define APART(n) ".p2align 12\n.fill " #n " * 192, 1, 0xcc\n"
#else
#define APART(n) ".p2align 4\n"
#endif

#ifdef COMPARES
#define COMPARE(word) "cmpq $0, " word "(%rip)\njne 9f\n"
#define JUDGED COMPARE("word_1") COMPARE("word_2") COMPARE("word_3") COMPARE("word_4")
__asm__(".data\nword_1: .quad 0\nword_2: .quad 0\nword_3: .quad 0\nword_4: .quad 0\n.text\n");
#else
#define JUDGED ""
#endif

/* Before the constructor has run, a function is looked up by its first call. */
#define ENTRY(name, n)                                                                                      \
    extern void *to_##name __attribute__((visibility("hidden")));                                           \
    extern char jump_##name[] __attribute__((visibility("hidden")));                                        \
    __asm__(".section .entries, \"ax\", @progbits\n" APART(n)                                               \
            ".globl " #name "\n.type " #name ", @function\n.globl jump_" #name "\n.hidden jump_" #name "\n" \
            #name ":\n" JUDGED "jump_" #name ": jmp *to_" #name "(%rip)\n9: ud2\n.size " #name ", . - " #name "\n"            \
            ".text\nfirst_" #name ": push %rdi; push %rsi; push %rdx; push %rcx; push %r8\n"                \
            "lea name_" #name "(%rip), %rdi\ncall found\nmov %rax, to_" #name "(%rip)\n"                    \
            "pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi\njmp *%rax\n"                                  \
            ".section .rodata\nname_" #name ": .asciz \"" #name "\"\n"                                      \
            ".data\n.p2align 3\n.globl to_" #name "\n.hidden to_" #name "\nto_" #name ": .quad first_" #name "\n.text\n");
FUNCTIONS(ENTRY)

__attribute__((visibility("hidden"), used)) void *found(const char *name) { return dlsym(RTLD_NEXT, name); }

static inline void aim(char *jump, char *to) {
#ifdef DIRECT
    int64_t distance = to - (jump + 5);
    if (distance != (int32_t)distance) return;
    char *page = (char *)((uintptr_t)jump & ~4095ul);
    mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    int32_t short_distance = (int32_t)distance;
    jump[0] = (char)0xe9;
    for (int i = 0; i < 4; i++) jump[1 + i] = ((char *)&short_distance)[i];
    mprotect(page, 8192, PROT_READ | PROT_EXEC);
#else
    (void)jump, (void)to;
#endif
}

__attribute__((constructor)) static void begin(void) {
#define AIM(name, n) to_##name = found(#name), aim(jump_##name, to_##name);
    FUNCTIONS(AIM)
}
