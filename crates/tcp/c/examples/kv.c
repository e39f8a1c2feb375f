/* A key-value store: get, set and delete in memcached's text protocol. kv [--sockets] [PORT]: with --sockets the same program over Linux' calls alone.
 *
 * A request is answered when all of it has come: until then it is not taken. A part of an answer that does not go out is kept with the
 * connection, and nothing more is taken from it before that has gone. */
#include "example.h"

enum { KEY = 250, VALUE = 32 << 10, LINE = 2048, ANSWERS = 64 << 10, LISTS = 1 << 17 };

/* The pairs: lists by hash. */
typedef struct pair {
    struct pair *next;
    size_t key_length, length;
    unsigned flags;
    char *value;
    char key[];
} pair;

static pair *pairs[LISTS];

/* Where a pair is linked, or would be. */
static pair **find(const char *key, size_t length) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)key[i]) * 1099511628211u;
    pair **at = &pairs[hash % LISTS];
    while (*at && ((*at)->key_length != length || memcmp((*at)->key, key, length) != 0))
        at = &(*at)->next;
    return at;
}

static void *must(void *memory) {
    if (!memory)
        example_fail("no memory", ENOMEM);
    return memory;
}

static void set(const char *key, size_t key_length, unsigned flags, const char *value, size_t length) {
    pair **at = find(key, key_length);
    if (!*at) {
        *at = must(calloc(1, sizeof(pair) + key_length));
        (*at)->key_length = key_length;
        memcpy((*at)->key, key, key_length);
    }
    if (!(*at)->value || (*at)->length != length) {
        free((*at)->value);
        (*at)->value = must(malloc(length ? length : 1));
    }
    (*at)->flags = flags;
    (*at)->length = length;
    memcpy((*at)->value, value, length);
}

static int delete(const char *key, size_t length) {
    pair **at = find(key, length), *gone = *at;
    if (!gone)
        return 0;
    *at = gone->next;
    free(gone->value);
    free(gone);
    return 1;
}

/* Answers, as they are made. No single one is longer than a value and a line. */
static char answers[ANSWERS + VALUE + LINE];
static size_t made;

static void add(const void *bytes, size_t length) {
    memcpy(answers + made, bytes, length);
    made += length;
}

static void say(const char *text) { add(text, strlen(text)); }

static void get(const char *key, size_t length) {
    pair *found = *find(key, length);
    if (found) {
        say("VALUE ");
        add(key, length);
        made += (size_t)snprintf(answers + made, 64, " %u %zu\r\n", found->flags, found->length);
        add(found->value, found->length);
        say("\r\n");
    }
    say("END\r\n");
}

/* The length of the next word of a line, which `at` then points to; 0: there is none. */
static size_t word(const char **at, const char *end) {
    while (*at < end && **at == ' ')
        ++*at;
    const char *stop = *at;
    while (stop < end && *stop != ' ')
        ++stop;
    return (size_t)(stop - *at);
}

/* A number; -1: it is none. */
static long number(const char **at, const char *end) {
    size_t length = word(at, end);
    long value = length > 0 && length < 10 ? 0 : -1;
    for (size_t i = 0; i < length && value >= 0; i++)
        value = (*at)[i] >= '0' && (*at)[i] <= '9' ? value * 10 + (*at)[i] - '0' : -1;
    *at += length;
    return value;
}

/* Answers the first request. How many bytes it has; 0: it has not come whole; -1: after this the connection ends. */
static long answer(const char *bytes, size_t length) {
    const char *newline = length ? memchr(bytes, '\n', length < LINE ? length : LINE) : NULL;
    if (!newline) {
        if (length < LINE)
            return 0;
        say("CLIENT_ERROR line is too long\r\n");
        return -1;
    }
    const char *at = bytes, *end = newline > bytes && newline[-1] == '\r' ? newline - 1 : newline;
    long line = newline + 1 - bytes;
    size_t verb_length = word(&at, end);
    const char *verb = at;
    at += verb_length;
    size_t key_length = word(&at, end);
    const char *key = at;
    at += key_length;
    int has_key = key_length > 0 && key_length <= KEY;
    if (verb_length == 3 && memcmp(verb, "get", 3) == 0 && has_key && word(&at, end) == 0) {
        get(key, key_length);
        return line;
    }
    if (verb_length == 6 && memcmp(verb, "delete", 6) == 0 && has_key) {
        say(delete(key, key_length) ? "DELETED\r\n" : "NOT_FOUND\r\n");
        return line;
    }
    if (verb_length == 4 && memcmp(verb, "quit", 4) == 0)
        return -1;
    if (verb_length != 3 || memcmp(verb, "set", 3) != 0) {
        say("ERROR\r\n");
        return line;
    }
    long flags = number(&at, end), expires = number(&at, end), size = number(&at, end);
    if (!has_key || flags < 0 || expires != 0 || size < 0 || size > VALUE) {
        say(size > VALUE ? "SERVER_ERROR object too large for cache\r\n" : "CLIENT_ERROR bad command line format\r\n");
        return -1;
    }
    if (length < (size_t)(line + size + 2))
        return 0;
    if (memcmp(bytes + line + size, "\r\n", 2) != 0) {
        say("CLIENT_ERROR bad data chunk\r\n");
        return -1;
    }
    set(key, key_length, (unsigned)flags, bytes + line, (size_t)size);
    say("STORED\r\n");
    return line + size + 2;
}

/* The bytes that a connection has still to send: its data, where it has some. */
typedef struct {
    size_t length, sent;
    int ends;
    char bytes[];
} backlog;

static void end(uncopy_tcp *tcp, uncopy_tcp_id connection, backlog *rest) {
    free(rest);
    uncopy_tcp_close(tcp, connection);
}

static void attend(uncopy_tcp *tcp, const uncopy_tcp_event *event, int i) {
    uncopy_tcp_id connection = event->connection;
    backlog *rest = (backlog *)(uintptr_t)event->data;
    if (rest) {
        ssize_t sent = uncopy_tcp_send(tcp, connection, rest->bytes + rest->sent, rest->length - rest->sent);
        if (sent < 0 || ((rest->sent += (size_t)sent) == rest->length && rest->ends)) {
            end(tcp, connection, rest);
            return;
        }
        if (rest->sent < rest->length)
            return;
        free(rest);
        uncopy_tcp_set_data(tcp, connection, 0);
    }
    size_t taken = 0;
    long length = 0;
    made = 0;
    while (made < ANSWERS && (length = answer((const char *)event->bytes + taken, event->length - taken)) > 0)
        taken += (size_t)length;
    uncopy_tcp_take(tcp, i, taken);
    ssize_t sent = uncopy_tcp_send(tcp, connection, answers, made);
    if (sent < 0) {
        end(tcp, connection, NULL);
    } else if ((size_t)sent < made) {
        rest = must(malloc(sizeof *rest + made - (size_t)sent));
        rest->length = made - (size_t)sent;
        rest->sent = 0;
        rest->ends = length < 0;
        memcpy(rest->bytes, answers + sent, rest->length);
        uncopy_tcp_set_data(tcp, connection, (uintptr_t)rest);
    } else if (length < 0) {
        end(tcp, connection, NULL);
    } else if (made >= ANSWERS) {
        uncopy_tcp_again(tcp, connection);
    } else if (uncopy_tcp_is_over(tcp, connection)) {
        end(tcp, connection, NULL);
    }
}

int main(int argc, char **argv) {
    uncopy_tcp *tcp = example_begin("kv", argc, argv, 11211);
    for (;;) {
        const uncopy_tcp_event *events;
        int count = uncopy_tcp_poll(tcp, -1, &events);
        if (count < 0)
            example_fail("cannot wait", -count);
        for (int i = 0; i < count; i++)
            if (!(events[i].what & (UNCOPY_TCP_ACCEPTED | UNCOPY_TCP_REFUSED)))
                attend(tcp, &events[i], i);
    }
}
