#include "input.h"
/* Registering a part of a mapping makes several of it; where they were first touched apart they never become one again. A child
   that goes on without us (of _Fork, or one that gets no userfaultfd) can still move and grow what the program made as one. */
enum { PAGES = 80, BYTES = 60 * 4096 };
int main(void) {
    Src s;
    src_open(&s);
    char *in = aligned_alloc(4096, 1 << 20);
    char *map = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    src_recv(&s, in, BYTES, 7);
    memcpy(map + 10 * 4096, in, BYTES);
    map[0] = 1;
    pid_t child = _Fork();
    if (!child) {
        char *moved = mremap(map, PAGES * 4096, 2 * PAGES * 4096, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED) _exit(errno);
        int right = moved[0] == 1 && moved[10 * 4096] == 7 && moved[70 * 4096 - 1] == 7 && !moved[70 * 4096];
        _exit(right && !moved[PAGES * 4096] ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    printf("bad=%d\n", status);
    return 0;
}
