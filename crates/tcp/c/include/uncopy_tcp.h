/* TCP by events: the low-level API of uncopy's user-level TCP service. docs/tcp-api.md explains it.
 *
 * Where both ends of a connection are programs under uncopy on one host, its bytes go through shared memory; everything else is Linux's, and
 * nothing differs for the program. Link with -luncopy_tcp.
 *
 * A context is one thread's. Calls return 0 or a count, or a negated errno. */
#ifndef UNCOPY_TCP_H
#define UNCOPY_TCP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uncopy_tcp uncopy_tcp;

/* A connection, or a listener, of one context. No two ever have the same number. */
typedef uint64_t uncopy_tcp_id;

/* How a context waits. */
enum {
    UNCOPY_TCP_ADAPTIVE = 0, /* it spins where that has paid lately, then sleeps */
    UNCOPY_TCP_SPIN = 1,
    UNCOPY_TCP_SLEEP = 2,
};

/* The carrier of the bytes. */
enum {
    UNCOPY_TCP_RINGS = 0,   /* shared memory where that can be, else Linux */
    UNCOPY_TCP_SOCKETS = 1, /* Linux alone, by libc's calls: the same program, to compare with */
};

/* The events of a connection: several things at once, perhaps. */
enum {
    UNCOPY_TCP_ACCEPTED = 1,  /* a listener has accepted this connection */
    UNCOPY_TCP_CONNECTED = 2, /* it is connected */
    UNCOPY_TCP_RECEIVED = 4,  /* bytes have come */
    UNCOPY_TCP_ROOM = 8,      /* there is room again, after a send that did not take everything */
    UNCOPY_TCP_ENDED = 16,    /* the other end sends no more; told once */
    UNCOPY_TCP_FAILED = 32,   /* it cannot go on; error says why; told once */
    UNCOPY_TCP_REFUSED = 64,  /* this listener could not accept a connection; error says why */
};

typedef struct uncopy_tcp_event {
    uncopy_tcp_id connection;
    uint64_t data;        /* what the program gave it to be known by; at first its listener's */
    const uint8_t *bytes; /* what came, behind what was not taken before; valid until the next poll */
    size_t length;
    uint32_t what;
    int32_t error; /* an errno, with UNCOPY_TCP_FAILED and UNCOPY_TCP_REFUSED */
} uncopy_tcp_event;

/* A context over `carrier`, which waits so. `service`: the name of the service that brings both ends together; NULL: this user's, and a thread of this
 * process is it where there is none. NULL, with errno: no descriptors are left, or an argument is none. */
uncopy_tcp *uncopy_tcp_open(int carrier, int waiting, const char *service);

/* Ends it, and all its connections. */
void uncopy_tcp_end(uncopy_tcp *context);

/* Listens. `shared` (SO_REUSEPORT): others of this user may listen at the same port. The number goes to `id`. */
int uncopy_tcp_listen(uncopy_tcp *context, const struct sockaddr *address, socklen_t length, int backlog, int shared, uint64_t data,
                      uncopy_tcp_id *id);

/* Begins a connection: UNCOPY_TCP_CONNECTED or UNCOPY_TCP_FAILED will be told of it. */
int uncopy_tcp_connect(uncopy_tcp *context, const struct sockaddr *address, socklen_t length, uint64_t data, uncopy_tcp_id *id);

/* Waits for events, so many ms at most (negative: for ever), and says how many there are: events[0..n) at *events, valid until the next poll. Those of
 * the poll before are over: what was not taken of their bytes comes again. 0: the time has passed, or a signal handler ran. */
int uncopy_tcp_poll(uncopy_tcp *context, int timeout_ms, const uncopy_tcp_event **events);

/* Of the bytes of event `i` of the last poll so many are done with. The others come again, in front of those that follow them, when there are some, or
 * when there is room, or soon (uncopy_tcp_again). -EINVAL: there are not so many. */
int uncopy_tcp_take(uncopy_tcp *context, int i, size_t bytes);

/* The next poll tells of what was not taken, whatever happens. */
void uncopy_tcp_again(uncopy_tcp *context, uncopy_tcp_id connection);

/* Sends what fits, and says how much that was: less than all, and UNCOPY_TCP_ROOM will be told. */
ssize_t uncopy_tcp_send(uncopy_tcp *context, uncopy_tcp_id connection, const void *bytes, size_t length);

/* Sends no more; what was sent arrives before that. */
int uncopy_tcp_finish(uncopy_tcp *context, uncopy_tcp_id connection);

/* Ends a connection, or a listener. */
void uncopy_tcp_close(uncopy_tcp *context, uncopy_tcp_id it);

/* It is known by this from now on. */
void uncopy_tcp_set_data(uncopy_tcp *context, uncopy_tcp_id it, uint64_t data);

/* Nothing more will be received: it has ended, has failed, or is closed. */
int uncopy_tcp_is_over(const uncopy_tcp *context, uncopy_tcp_id connection);

/* Its bytes go through shared memory now. */
int uncopy_tcp_is_by_ring(const uncopy_tcp *context, uncopy_tcp_id connection);

/* Its descriptor, for options and names; -EBADF: there is no such. It stays the context's. */
int uncopy_tcp_descriptor(const uncopy_tcp *context, uncopy_tcp_id it);

#ifdef __cplusplus
}
#endif

#endif
