/* Stacks that the program makes: threads on memory that held views, coroutines (swapcontext) that copy and touch, and input to and
 * from the running stack. */
#include "process.h"
#include <ucontext.h>

static ucontext_t main_context, contexts[4];
static volatile int wrong, turn;
enum { ROOM = 8 << 20 };

static void works(unsigned number) {
    char buffer[SIZE / 2] __attribute__((aligned(4096))); /* on this stack */
    receive(buffer, sizeof buffer, number);
    char *copy = fresh(SIZE / 2);
    memcpy(copy, buffer, sizeof buffer);
    wrong |= !is_input(copy, sizeof buffer, number, 0);
    /* (Larger than any gap above a coroutine's stack, and so below it: what lies close above is taken for a part of the stack, and copied.) */
    char *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *v = room + ROOM / 2;
    MUST(room != MAP_FAILED);
    receive(room, SIZE / 2, number + 1);
    ELIDED_COPY(v, room, SIZE / 2);
    MUST_BE_UNMAPPED(v + SIZE / 4);
    memcpy(buffer, v, sizeof buffer);
    if (turn >= 0) swapcontext(&contexts[turn], &main_context);
    wrong |= !is_input(buffer, sizeof buffer, number + 1, 0);
    munmap(copy, SIZE / 2);
    munmap(room, ROOM);
}
static void coroutine(void) {
    for (unsigned i = 0; i < 3; i++) works(10 * i);
}
static void *thread(void *unused) {
    works(70);
    return unused;
}

int main(void) {
    turn = 0;
    char *stacks[4];
    for (int i = 0; i < 4; i++) {
        stacks[i] = VIEW_OF(90, 2 * SIZE); /* holds views when it becomes a stack */
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = 2 * SIZE;
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], coroutine, 0);
    }
    for (int round = 0; round < 4; round++)
        for (turn = 0; turn < 4; turn++) swapcontext(&main_context, &contexts[turn]);
    say("wrong: %d", wrong);
    turn = -1;
    for (int round = 0; round < 6; round++) {
        char *memory = VIEW_OF(91, 4 * SIZE);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        MUST(pthread_attr_setstack(&attributes, memory, 4 * SIZE) == 0);
        pthread_t t;
        MUST(pthread_create(&t, &attributes, thread, NULL) == 0 && pthread_join(t, NULL) == 0);
        memcpy(memory, VIEW(92), SIZE); /* the stack's memory is ordinary again */
        wrong |= !is_input(memory, SIZE, 92, 0);
        munmap(memory, 4 * SIZE);
    }
    works(100); /* the first thread's */
    say("wrong: %d", wrong);
    if (wrong) return 1;
    return finish();
}
