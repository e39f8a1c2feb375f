/* To be linked with a program, which so defines every function of FUNCTIONS itself, as runtimes do
 * that want to see what is called. Each jumps on to the next definition of its name, and knows
 * whether uncopy's library has called it: what that calls is its own, or libc's. (No header is
 * included: what they declare would be in the way.) */

#pragma GCC optimize("no-tree-loop-distribute-patterns")

typedef unsigned long word;

struct function {
    void *next;
    const char *name;
    char called_by_library;
};

#define F(name)                                                                                       \
    __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"          \
            "lea 1f(%rip), %r11\njmp own_name_called\n.size " #name ", . - " #name "\n.popsection\n"  \
            ".pushsection .data\n.balign 8\n1: .quad 0, 2f, 0\n.popsection\n"                         \
            ".pushsection .rodata\n2: .asciz \"" #name "\"\n.popsection\n");
FUNCTIONS

/* Where uncopy's library lies. */
__attribute__((visibility("hidden"))) word own_name_library, own_name_library_bytes;

/* With all registers as they came, but for r10 and r11, which hold nothing of a call's. */
__asm__(".pushsection .text\n"
        "own_name_called:\n"
        "mov (%rsp), %r10\n"
        "sub own_name_library(%rip), %r10\n"
        "cmp own_name_library_bytes(%rip), %r10\n"
        "jb 5f\n"
        "1:\n"
        "mov (%r11), %r10\n"
        "test %r10, %r10\n"
        "jz 6f\n"
        "jmp *%r10\n"
        "5:\n"
        "cmpb $0, 16(%r11)\n"
        "jne 1b\n"
        "movb $1, 16(%r11)\n"
        "lea own_name_report(%rip), %r10\n"
        "jmp 7f\n"
        "6:\n"
        "lea own_name_find(%rip), %r10\n"
        "7:\n"
        "push %rbp\nmov %rsp, %rbp\n"
        "push %rax\npush %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %r11\n"
        "sub $128, %rsp\nand $-16, %rsp\n"
        "movups %xmm0, (%rsp)\nmovups %xmm1, 16(%rsp)\nmovups %xmm2, 32(%rsp)\nmovups %xmm3, 48(%rsp)\n"
        "movups %xmm4, 64(%rsp)\nmovups %xmm5, 80(%rsp)\nmovups %xmm6, 96(%rsp)\nmovups %xmm7, 112(%rsp)\n"
        "mov %r11, %rdi\ncall *%r10\n"
        "movups (%rsp), %xmm0\nmovups 16(%rsp), %xmm1\nmovups 32(%rsp), %xmm2\nmovups 48(%rsp), %xmm3\n"
        "movups 64(%rsp), %xmm4\nmovups 80(%rsp), %xmm5\nmovups 96(%rsp), %xmm6\nmovups 112(%rsp), %xmm7\n"
        "lea -64(%rbp), %rsp\n"
        "pop %r11\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\npop %rax\npop %rbp\n"
        "jmp own_name_called\n"
        ".popsection\n");

static long call(long n, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}
enum { READ = 0, WRITE = 1, CLOSE = 3, EXIT_GROUP = 231, OPENAT = 257 };

static void say(const char *text) {
    long n = 0;
    while (text[n]) n++;
    call(WRITE, 1, (long)text, n, 0);
}

__attribute__((used, visibility("hidden"))) void own_name_report(struct function *f) {
    say("WRONG: the library calls the program's ");
    say(f->name);
    say("\n");
}

/* Lines of /proc/self/maps begin with two numbers; those of the library end with its name. */
static void find_library(void) {
    static char text[1 << 16];
    static const char NAME[] = "/libuncopy.so\n";
    long fd = call(OPENAT, -100, (long)"/proc/self/maps", 0, 0), n = 0, got;
    while ((got = call(READ, fd, (long)(text + n), (long)sizeof text - n, 0)) > 0) n += got;
    call(CLOSE, fd, 0, 0, 0);
    word first = 0, last = 0;
    for (long line = 0, end; line < n; line = end + 1) {
        for (end = line; end < n && text[end] != '\n';) end++;
        word numbers[2] = {0, 0};
        long at = line;
        for (int i = 0; i < 2; i++, at++)
            for (; text[at] != '-' && text[at] != ' '; at++)
                numbers[i] = numbers[i] * 16 + (word)(text[at] <= '9' ? text[at] - '0' : text[at] - 'a' + 10);
        long length = sizeof NAME - 1, same = 0;
        while (same < length && end + 1 - length + same > line && text[end + 1 - length + same] == NAME[same]) same++;
        if (same < length) continue;
        if (!first) first = numbers[0];
        last = numbers[1];
    }
    own_name_library = first;
    own_name_library_bytes = last - first;
}

void *dlvsym(void *, const char *, const char *);

static void leave(void *block) { (void)block; }

__attribute__((used, visibility("hidden"))) void own_name_find(struct function *f) {
    static void *(*look_up)(void *, const char *);
    void *const next = (void *)-1l;
    if (!look_up) {
        find_library();
        look_up = (void *(*)(void *, const char *))dlvsym(next, "dlsym", "GLIBC_2.34");
        if (!look_up) look_up = (void *(*)(void *, const char *))dlvsym(next, "dlsym", "GLIBC_2.2.5");
    }
    /* (The look-up itself frees.) */
    if (f->name[0] == 'f' && f->name[1] == 'r' && f->name[2] == 'e' && f->name[3] == 'e' && !f->name[4]) f->next = (void *)leave;
    f->next = look_up ? look_up(next, f->name) : 0;
    if (f->next) return;
    say("failed: no other ");
    say(f->name);
    say("\n");
    call(EXIT_GROUP, 9, 0, 0, 0);
}
