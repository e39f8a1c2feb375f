#!/usr/bin/env python3
"""What receiving takes where Python keeps it: `bytes` and `bytearray` beside places of known offset within the page.

    taskset -c 1 python3 receive_in_python.py; taskset -c 1 uncopy run -- python3 receive_in_python.py

Each place is memory of its own (one that others have just received into is still in the processor's caches). Processor time of the
receiving calls alone, in us, median of 400; in brackets: over the best offset. `bytes` and a new `bytearray` include making them."""

import mmap
import os
import socket
import statistics
import time

SIZES = (64 << 10, 512 << 10)
OFFSETS = (0, 16, 32, 512, 2048)
ROUNDS = 400


def connected():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    return sender, receiver


def receive_into(receiver, view):
    got = 0
    while got < len(view):
        got += receiver.recv_into(view[got:])
    return view


def receive_bytes(receiver, size):
    pieces = []
    while size:
        pieces.append(receiver.recv(size))
        size -= len(pieces[-1])
    return pieces


def main():
    sender, receiver = connected()
    for size in SIZES:
        data = os.urandom(size)
        ways = {}
        for offset in OFFSETS:
            view = memoryview(mmap.mmap(-1, size + 8192))[offset : offset + size]
            ways[f"offset {offset}"] = lambda view=view: receive_into(receiver, view)
        kept = memoryview(bytearray(size))
        ways["bytes"] = lambda: receive_bytes(receiver, size)
        ways["new bytearray"] = lambda: receive_into(receiver, memoryview(bytearray(size)))
        ways["kept bytearray"] = lambda: receive_into(receiver, kept)
        took = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, receive in ways.items():
                sender.sendall(data)
                before = time.thread_time_ns()
                got = receive()
                took[way].append((time.thread_time_ns() - before) / 1e3)
                if (b"".join(got) if isinstance(got, list) else bytes(got)) != data:
                    raise SystemExit(f"{way}: received what was not sent")
        median = {way: statistics.median(us) for way, us in took.items()}
        best = min(median[f"offset {offset}"] for offset in OFFSETS)
        print(f"{size >> 10} KB:", ", ".join(f"{way} {us:.1f} ({us / best:.2f})" for way, us in median.items()))


if __name__ == "__main__":
    main()
