#!/usr/bin/env python3
"""What HAProxy 2.6 loses of a client that ends its stream, without uncopy: why programs/haproxy ends its tunnels as it does.

A client sends BYTES and the end of its stream, while HAProxy has room neither for them nor for what the server sends. HAProxy hears of the bytes and of the end (EPOLLIN,
EPOLLRDHUP), and later, when it no longer asks for bytes, of room (EPOLLOUT): it takes that to mean that nothing is left.

    tests/matrix/haproxy_ends.py [BYTES]       (1000000)
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CONFIG = """
global
  nbthread 1
  tune.bufsize 262144
  tune.maxpollevents 1
  tune.sndbuf.server 65536
  tune.sndbuf.client 65536
defaults
  mode tcp
  timeout connect 30s
  timeout client 30s
  timeout server 30s
listen tunnel
  bind 127.0.0.1:{front}
  server one 127.0.0.1:{back}
"""
ANSWER = 8 << 20
got = 0


def serve(listener):
    """Answers before it has read anything, and reads three seconds later."""
    global got
    connection, _ = listener.accept()
    answer = threading.Thread(target=connection.sendall, args=(b"y" * ANSWER,))
    answer.start()
    time.sleep(3)
    while piece := connection.recv(1 << 18):
        got += len(piece)
    answer.join()
    connection.close()


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        front = free.getsockname()[1]
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(CONFIG.format(front=front, back=listener.getsockname()[1]))
        config.flush()
        proxy = subprocess.Popen(["haproxy", "-db", "-f", config.name], env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
        try:
            time.sleep(1)
            server = threading.Thread(target=serve, args=(listener,))
            server.start()
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
            client.settimeout(20)
            client.connect(("127.0.0.1", front))
            time.sleep(1)
            # it finds the bytes and the end at once
            proxy.send_signal(signal.SIGSTOP)
            client.sendall(b"x" * size)
            client.shutdown(socket.SHUT_WR)
            time.sleep(0.7)
            proxy.send_signal(signal.SIGCONT)
            time.sleep(0.7)
            back, ending = 0, "the end"
            try:
                while piece := client.recv(1 << 18):
                    back += len(piece)
            except ConnectionResetError:
                ending = "a reset"
            server.join()
        finally:
            proxy.kill()
            proxy.wait()
    print(f"the server got {got:,} of {size:,} bytes; the client {back:,} of {ANSWER:,}, and {ending}")
    return got != size


sys.exit(main())
