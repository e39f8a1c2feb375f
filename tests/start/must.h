/* Ends the program where a step that must work does not. */
#ifndef MUST_H
#define MUST_H
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                           \
    do {                                                          \
        if (!(condition)) {                                       \
            printf("failed: %s (errno %d)\n", #condition, errno); \
            exit(3);                                              \
        }                                                         \
    } while (0)
#endif
