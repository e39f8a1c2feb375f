// Memory that an allocator takes beyond what is asked for.
//
//   waste BYTES LEAST MOST        BYTES in blocks of LEAST to MOST bytes, every size as likely as any other
//
// Prints JSON: bytes asked for, and what the process's memory (Pss) grew by once all of them were written; then after half of
// the blocks, every other one, was freed and made anew in other sizes of the same range.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t memory(void) {
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    size_t kb = 0;
    while (f && fgets(line, sizeof line, f)) if (sscanf(line, "Pss: %zu kB", &kb) == 1) break;
    if (f) fclose(f);
    return kb << 10;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    size_t bytes = strtoull(words[1], NULL, 10), least = strtoull(words[2], NULL, 10), most = strtoull(words[3], NULL, 10);
    size_t n = 0, asked = 0, room = bytes / least + 1;
    struct {
        char *at;
        size_t size;
    } *blocks = calloc(room, sizeof *blocks);
    memset(blocks, 0, room * sizeof *blocks);
    srandom(1);
    size_t before = memory();
    for (; asked < bytes; n++) {
        size_t size = least + random() % (most - least + 1);
        blocks[n].at = malloc(size), blocks[n].size = size;
        memset(blocks[n].at, 1, size);
        asked += size;
    }
    printf("{\"asked\": %zu, \"grew\": %zu", asked, memory() - before);
    for (size_t i = 0; i < n; i += 2) free(blocks[i].at), asked -= blocks[i].size;
    for (size_t i = 0; i < n; i += 2) {
        size_t size = least + random() % (most - least + 1);
        blocks[i].at = malloc(size), blocks[i].size = size;
        memset(blocks[i].at, 2, size);
        asked += size;
    }
    printf(", \"asked_later\": %zu, \"grew_later\": %zu}\n", asked, memory() - before);
    for (size_t i = 0; i < n; i++) if (blocks[i].at[0] != 1 + !(i % 2) || blocks[i].at[blocks[i].size - 1] != 1 + !(i % 2)) return 1;
}
