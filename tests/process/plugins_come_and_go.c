/* dlopen in all its ways, among them RTLD_DEEPBIND (the plugin's calls then go past a preloaded library) and dlclose while the
 * plugin's own memory holds views. */
#include "process.h"

int main(int argc, char **argv) {
    (void)argc;
    char path[4200];
    snprintf(path, sizeof path, "%s.so", argv[0]);
    static const struct {
        const char *name;
        int flags;
        int deep;
    } ways[] = {{"local", RTLD_NOW | RTLD_LOCAL, 0},
                {"lazy", RTLD_LAZY | RTLD_LOCAL, 0},
                {"deepbind", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND, 1},
                {"global", RTLD_NOW | RTLD_GLOBAL, 0}};
    for (unsigned round = 0; round < 8; round++) {
        void *plugin = dlopen(path, ways[round % 4].flags);
        if (!plugin) say("%s", dlerror());
        MUST(plugin);
        void (*copy)(void *, const void *, unsigned long) =
            (void (*)(void *, const void *, unsigned long))dlsym(plugin, "plugin_copy");
        char *(*own)(void) = (char *(*)(void))dlsym(plugin, "plugin_own");
        MUST(copy && own);
        char *memory = own();
        EXPECT_FILLED(memory, 2 * SIZE, 0); /* a library loaded anew has zeros there */
        char *origin = fresh(SIZE), *v = VIEW(round), *to = fresh(SIZE);
        receive(origin, SIZE, 10 + round);
        uint64_t before = elided_copies();
        copy(to, origin, SIZE);
        if (eager() && (elided_copies() != before) == ways[round % 4].deep) {
            /* Past us by RTLD_DEEPBIND, seen otherwise. */
            if (!ways[round % 4].deep) say("NOT ELIDED");
        }
        copy(memory, v, SIZE);
        memcpy(memory + SIZE, v, SIZE);
        send_on(ways[round % 4].name, memory + SIZE, SIZE);
        EXPECT_INPUT(to, SIZE, 10 + round);
        EXPECT_INPUT(memory, SIZE, round);
        receive(memory, SIZE, 20 + round);
        ELIDED_COPY(to, memory, SIZE);
        if (round % 2) {
            MUST(dlclose(plugin) == 0); /* its memory was the origin, and is unmapped with views on it */
            MUST(dlopen(path, RTLD_LAZY | RTLD_NOLOAD) == NULL);
        } else {
            EXPECT_INPUT(memory, SIZE, 20 + round);
            MUST(dlclose(plugin) == 0);
        }
        EXPECT_INPUT(to, SIZE, 20 + round);
        EXPECT_INPUT(v, SIZE, round);
    }
    return finish();
}
