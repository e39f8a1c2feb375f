/* Large blocks begin where the kernel's copies are fast: data that arrives begins a page there as a rule, and some processors copy it slowly to
 * 1 to 31 bytes behind the beginning of a page (glibc's own large blocks begin 16 bytes behind it), and what is sent behind a header of 1 to 31
 * bytes more than its own place in the page. So there blocks that are no whole pages begin 64 bytes before a page: then also what lies behind
 * a header in such a block is out of reach, received or sent. */
#include "process.h"
#include <memory>
#include <new>
#include <string>
#include <vector>

struct Named { /* An array of these is preceded by their number. */
    char bytes[64];
    ~Named() { asm volatile("" ::"r"(this)); }
};

static void look(const char *how, size_t n, const void *p) {
    size_t offset = (uintptr_t)p % PAGE;
    if (counters() && offset >= 1 && offset <= 31) say("WRONG: %s of %zu bytes begins %zu bytes into a page", how, n, offset);
    /* (--copies=ours says that this is such a processor.) */
    const char *ours = getenv("UNCOPY_COPIES");
    if (counters() && ours && !strcmp(ours, "ours") && n % PAGE)
        for (size_t header : {8, 16, 24, 32})
            if (offset + header < PAGE - 64 || offset + header > PAGE - 32)
                say("WRONG: what lies %zu bytes into %s of %zu bytes begins %zu bytes into a page", header, how, n, offset + header);
    memset((void *)p, 1, n);
    say("%s of %zu bytes", how, n);
}

int main() {
    for (size_t n : {64ul << 10, 512ul << 10, (64ul << 10) + 24, 663560ul, 1ul << 20}) {
        /* Others between them, so that none is where it is by chance. */
        std::vector<std::unique_ptr<char[]>> others;
        for (size_t i = 0; i < 20; i++) others.emplace_back(new char[100 + 1000 * i]);
        void *p = malloc(n);
        look("malloc", n, p);
        free(p);
        p = calloc(n / 8, 8);
        look("calloc", n, p);
        free(p);
        p = realloc(malloc(100), n);
        look("realloc of a small one", n, p);
        p = realloc(p, 2 * n);
        look("realloc of a large one", 2 * n, p);
        p = realloc(p, n);
        look("realloc to a smaller one", n, p);
        free(p);
        p = reallocarray(NULL, n, 1);
        look("reallocarray", n, p);
        free(p);
        p = aligned_alloc(64, n / 64 * 64);
        look("aligned_alloc", n / 64 * 64, p);
        free(p);
        std::unique_ptr<char[]> array(new char[n]);
        look("new[]", n, array.get());
        std::string text(n, 'x');
        look("std::string", n, text.data());
        std::vector<char> bytes(n);
        look("std::vector", n, bytes.data());
        for (int i = 0; i < 1000; i++) bytes.push_back(1);
        look("std::vector that grew", n, bytes.data());
        std::unique_ptr<Named[]> named(new Named[n / sizeof(Named)]);
        say("new[] with a number before it: %s", named ? "there" : "missing");
    }
    say("end");
    return 0;
}
