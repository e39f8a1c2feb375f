/* An echo server. echo [--sockets] [PORT]: with --sockets the same program over Linux' calls alone. */
#include "example.h"

int main(int argc, char **argv) {
    uncopy_tcp *tcp = example_begin("echo", argc, argv, 7777);
    for (;;) {
        const uncopy_tcp_event *events;
        int count = uncopy_tcp_poll(tcp, -1, &events);
        if (count < 0)
            example_fail("cannot wait", -count);
        for (int i = 0; i < count; i++) {
            uncopy_tcp_id connection = events[i].connection;
            /* Bytes that do not go out now are not taken, and come again when there is room. */
            ssize_t sent = uncopy_tcp_send(tcp, connection, events[i].bytes, events[i].length);
            if (sent >= 0)
                uncopy_tcp_take(tcp, i, (size_t)sent);
            if (sent < 0 || (uncopy_tcp_is_over(tcp, connection) && (size_t)sent == events[i].length))
                uncopy_tcp_close(tcp, connection);
        }
    }
}
