/* A library whose fork handlers wait for its lock. */
#include <pthread.h>
pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static void take(void) { pthread_mutex_lock(&library_lock); }
static void give(void) { pthread_mutex_unlock(&library_lock); }
__attribute__((constructor)) static void init(void) { pthread_atfork(take, give, give); }
