#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* The program's first calls of functions that we interpose come between its failed dlsym and its dlerror (HAProxy's start).
   Looking ours up by dlsym at that moment took the error away, and never came back where dlsym frees the error's text. */
static int bad;

static void failed_lookup(void) {
    if (dlsym(RTLD_DEFAULT, "no_such_function") != NULL) bad++;
}

static void error_is_there(void) {
    const char *said = dlerror();
    if (said == NULL || strstr(said, "no_such_function") == NULL) bad++;
}

int main(void) {
    void *block = malloc(100);
    failed_lookup();
    free(block);
    error_is_there();
    failed_lookup();
    void *pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(pages, 4096, MADV_DONTNEED);
    munmap(pages, 4096);
    close(-1);
    struct iovec none = {0};
    if (readv(-1, &none, 1) != -1) bad++;
    error_is_there();
    if (dlerror() != NULL) bad++;
    printf("bad=%d\n", bad);
    return 0;
}
