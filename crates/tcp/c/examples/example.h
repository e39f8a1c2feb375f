/* How the examples begin: NAME [--sockets] [--service NAME] [PORT]. With --sockets they are the same programs over Linux' calls alone. The port is printed:
 * 0 is some free one. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uncopy_tcp.h>

static const char *example_name;

static void example_fail(const char *what, int error) {
    fprintf(stderr, "%s: %s: %s\n", example_name, what, strerror(error));
    exit(1);
}

static uncopy_tcp *example_begin(const char *name, int argc, char **argv, uint16_t port) {
    int carrier = UNCOPY_TCP_RINGS;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    const char *service = NULL;
    example_name = name;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--sockets") == 0)
            carrier = UNCOPY_TCP_SOCKETS;
        else if (strcmp(argv[i], "--service") == 0 && i + 1 < argc)
            service = argv[++i];
        else
            address.sin_port = htons((uint16_t)atoi(argv[i]));
    }
    uncopy_tcp *tcp = uncopy_tcp_open(carrier, UNCOPY_TCP_ADAPTIVE, service);
    if (!tcp)
        example_fail("cannot begin", errno);
    uncopy_tcp_id listener;
    socklen_t length = sizeof address;
    int error = uncopy_tcp_listen(tcp, (struct sockaddr *)&address, length, 4096, 0, 0, &listener);
    if (error < 0)
        example_fail("cannot listen", -error);
    getsockname(uncopy_tcp_descriptor(tcp, listener), (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return tcp;
}

#endif
