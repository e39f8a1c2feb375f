/* Loaded by the programs that use dlopen: copies, receives and keeps data in memory of its own. */
#include <string.h>
#include <sys/socket.h>

char plugin_memory[512 << 10] __attribute__((aligned(4096)));

void plugin_copy(void *dst, const void *src, unsigned long n) {
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    copy(dst, src, n);
}
long plugin_receive(int fd, void *buf, unsigned long n) { return recv(fd, buf, n, 0); }
char *plugin_own(void) { return plugin_memory; }
