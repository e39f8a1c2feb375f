/* Libraries whose constructors come before the gate's: what each leaves is a reason not to install it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

#if defined BREAKPOINT || defined LIBC_BREAKPOINT
/* As a debugger does it: int3 over the first byte of an instruction. */
static void stop_at(unsigned char *at) {
    int memory = open("/proc/self/mem", O_RDWR);
    if (pwrite(memory, "\xcc", 1, (long)at) != 1 || *(volatile unsigned char *)at != 0xcc || close(memory)) abort();
}
#endif

#if defined PAST || defined BREAKPOINT
/* A system call of its own. */
long past(void) {
    long n = SYS_getpid;
    __asm__ volatile("syscall" : "+a"(n) : : "rcx", "r11", "memory");
    return n;
}
#endif
#ifndef PAST
#ifdef THREADS
static void *sleeps(void *unused) {
    for (;;) pause();
    return unused;
}
#endif

__attribute__((constructor)) static void begin(void) {
#if defined THREADS
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleeps, NULL)) abort();
#elif defined CODE
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) abort();
#elif defined FILTER
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, all};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) abort();
#elif defined BREAKPOINT
    unsigned char *at = (unsigned char *)past;
    while (at[0] != 0x0f || at[1] != 0x05) at++;
    stop_at(at);
#elif defined LIBC_BREAKPOINT
    stop_at((unsigned char *)vhangup);
#elif defined NO_CODE
    if (prctl(PR_SET_MDWE, 1L, 0L, 0L, 0L)) puts("no such policy");
#endif
}
#endif
