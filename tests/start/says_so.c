/* The program that is executed: it says what it is called, what is preloaded besides uncopy, and
 * whether uncopy is there where it should be; it ends as it is told. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    const char *name = strrchr(words[0], '/');
    printf("%s %s", name ? name + 1 : words[0], count > 1 ? words[1] : "");
#ifndef STATIC
    /* (A static program hands all of it on.) */
    const char *own = getenv("UNCOPY_LIBRARY"), *named = getenv("LD_PRELOAD");
    char *preload = strdup(named ? named : "");
    for (char *one = strtok(preload, ": "); one; one = strtok(NULL, ": "))
        if (!own || strcmp(one, own)) printf(", preloaded %s", strrchr(one, '/') + 1);
#ifdef ALONE
    own = NULL;
#endif
    int there = dlsym(RTLD_DEFAULT, "uncopy_counters") != NULL;
    if (there != (own != NULL)) printf("\nWRONG: %s\n", there ? "under uncopy" : "not under uncopy");
#endif
    printf("\n");
    return 7;
}
