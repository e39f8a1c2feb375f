/* A library that nobody has asked for. */
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
    static const char WORDS[] = "WRONG: a foreign library is loaded\n";
    if (write(1, WORDS, sizeof WORDS - 1) < 0) _exit(9);
}
