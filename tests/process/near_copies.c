/* Copies whose destination begins a little ahead of the source within the page, which some processors are slow at: by every function
 * that copies, of every size around a border, of untouched memory and of views, apart and overlapping. */
#define _FORTIFY_SOURCE 0
#include "process.h"
#include <strings.h>

#define ROOM (1400ul << 10)

static unsigned char *from, *to;

typedef void *copier(void *, const void *, size_t);

static void *by_bcopy(void *d, const void *s, size_t n) {
    bcopy(s, d, n);
    return d;
}
void *__memcpy_chk(void *, const void *, size_t, size_t);
void *__memmove_chk(void *, const void *, size_t, size_t);
void *__mempcpy_chk(void *, const void *, size_t, size_t);
static void *by_memcpy_chk(void *d, const void *s, size_t n) { return __memcpy_chk(d, s, n, n); }
static void *by_memmove_chk(void *d, const void *s, size_t n) { return __memmove_chk(d, s, n, n + 1); }
static void *by_mempcpy_chk(void *d, const void *s, size_t n) { return __mempcpy_chk(d, s, n, ROOM); }

static const struct {
    const char *name;
    copier *copy;
    int returns_end, may_overlap;
} ways[] = {
    {"memcpy", memcpy, 0, 0},       {"memmove", memmove, 0, 1},           {"mempcpy", mempcpy, 1, 0},
    {"bcopy", by_bcopy, 0, 1},      {"__memcpy_chk", by_memcpy_chk, 0, 0}, {"__memmove_chk", by_memmove_chk, 0, 1},
    {"__mempcpy_chk", by_mempcpy_chk, 1, 0},
};

/* Copies within memory whose content is known, and looks at every byte of the destination, and beside it. */
static int same(unsigned way, unsigned char *d, const unsigned char *s, size_t n, size_t at) {
    copier *volatile copy = ways[way].copy;
    memset(d - 64, 0xee, 64), memset(d + n, 0xee, 64);
    void *result = copy(d, s, n);
    int right = result == (ways[way].returns_end ? d + n : d) && is_input(d, n, 1, at);
    for (int i = 1; i <= 64; i++) right &= d[-i] == 0xee && d[n + i - 1] == 0xee;
    if (!right) say("WRONG: %s of %zu bytes to %p from %p", ways[way].name, n, (void *)d, (const void *)s);
    return right;
}

int main(void) {
    static const size_t sizes[] = {1000,  2047,  2048,  2049,  2112,   2113,   4095,   4096,   4097,    8191,   8192,
                                   16384, 16385, 65536, 65543, 131071, 262144, 524288, 800001, 1048576, 1048577};
    from = (unsigned char *)fresh(ROOM), to = (unsigned char *)fresh(ROOM);
    fill(from, ROOM, 1, 0);
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        int right = 1;
        for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (size_t ahead = 0; ahead <= 33; ahead += sizes[k] < 20000 ? 1 : 11) {
                size_t at = k * 5 % 64;
                right &= same(way, to + PAGE + at + ahead, from + at, sizes[k], at);
            }
        say("%s: %s", ways[way].name, right ? "right" : "wrong");
    }
    /* Down within one buffer, by nearly a page: near too, and the source begins within the destination. And up. */
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        if (!ways[way].may_overlap) continue;
        copier *volatile copy = ways[way].copy;
        int right = 1;
        for (unsigned k = 3; k < sizeof sizes / sizeof *sizes; k++)
            for (size_t by = 0; by < 2; by++) {
                size_t shift = by ? PAGE + 16 : PAGE - 16;
                fill(to, sizes[k] + 2 * PAGE, 1, 0);
                copy(by ? to + shift : to, by ? to : to + shift, sizes[k]);
                right &= is_input(by ? to + shift : to, sizes[k], 1, by ? 0 : shift);
            }
        say("%s, overlapping: %s", ways[way].name, right ? "right" : "wrong");
    }
    /* Of input, to behind a header: the pages between become views, their fringes are copied. */
    for (size_t header = 8; header <= 24; header += 8) {
        char *input = fresh(SIZE), *block = fresh(SIZE + PAGE), *again = fresh(SIZE + PAGE);
        receive(input, SIZE, (unsigned)header);
        ELIDED_COPY(block + header, input, SIZE);
        /* Of the view, near once more; then of what was touched of it. */
        ELIDED_COPY(again + 2 * header, block + header, SIZE);
        send_on("sent", again + 2 * header, SIZE);
        EXPECT_INPUT(again + 2 * header, SIZE, header);
        EXPECT_INPUT(block + header, SIZE, header);
        memcpy(again, block + header, SIZE);
        EXPECT_INPUT(again, SIZE, header);
    }
    return finish();
}
