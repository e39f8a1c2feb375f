"""An origin for the proxy: answers every GET with as many bytes as its path says, the same for the same length."""

import random
import socket
import sys
import threading

BODIES = {}


def serve(connection):
    pending = b""
    with connection:
        while True:
            while b"\r\n\r\n" not in pending:
                part = connection.recv(65536)
                if not part:
                    return
                pending += part
            head, pending = pending.split(b"\r\n\r\n", 1)
            size = int(head.split()[1].strip(b"/"))
            if size not in BODIES:
                BODIES[size] = random.Random(size).randbytes(size)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + BODIES[size])


listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
