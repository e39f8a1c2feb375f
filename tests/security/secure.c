/* Says what a program that was started with more rights than its user's finds: whether the kernel calls it secure, whether the library is
 * there, whether it has a userfaultfd, and what it hands on to a program that it executes. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static int mapped(const char *name)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, name) != 0;
    if (maps) fclose(maps);
    return found;
}

static int userfaultfds(void)
{
    int found = 0;
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *e; all && (e = readdir(all));) {
        char path[300], to[300] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        if (readlink(path, to, sizeof to - 1) > 0) found += strstr(to, "userfaultfd") != 0;
    }
    if (all) closedir(all);
    return found;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--environment")) {
        const char *preload = getenv("LD_PRELOAD");
        printf("preload=%s\n", preload ? preload : "");
        return 0;
    }
    printf("secure=%d library=%d userfaultfds=%d\n", getauxval(AT_SECURE) != 0, mapped("libuncopy.so"), userfaultfds());
    fflush(stdout);
    /* All of root's: what it executes is no longer called secure. */
    if (geteuid() == 0 && setuid(0)) return 1;
    if (argc > 1) execl(argv[1], argv[1], "--environment", (char *)0);
    return 0;
}
