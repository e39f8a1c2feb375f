#!/usr/bin/env python3
"""Not a server: a relay over a socket pair whose behaviour changes, for recordings (record.py).

    phases.py changing SIZE   passes messages on; reads and writes all over each; passes them on again
    phases.py short SIZE      passes twenty messages on, and ends
    phases.py growing SIZE    passes messages on in one pair of buffers; in 150 of them, three times each
    phases.py many SIZE       makes its copies at many call sites' sizes, each only some times"""

import ctypes
import mmap
import os
import socket
import sys
import threading

PAGE = 4096


def buffer(size):
    return mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def relay(a, b, size, messages, touch=False, pairs=1):
    """A message comes in, is copied, is perhaps touched, and goes out."""
    pairs = [(buffer(size), buffer(size)) for _ in range(pairs)]
    libc = ctypes.CDLL(None)
    for n in range(messages):
        source, copy = pairs[n % len(pairs)]
        at, to = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in (source, copy))
        a.sendall(bytes(size))
        got, view = 0, memoryview(source)
        while got < size:
            got += b.recv_into(view[got:size])
        libc.memcpy(ctypes.c_void_p(to), ctypes.c_void_p(at), ctypes.c_size_t(size))
        if touch:
            for page in range(0, size, PAGE):
                copy[page] = 1
        b.sendall(memoryview(copy)[:size])
    return pairs


def main():
    what, size = sys.argv[1], int(sys.argv[2])
    a, b = socket.socketpair()
    for end in (a, b):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)

    def drain():
        while a.recv(1 << 20):
            pass

    threading.Thread(target=drain, daemon=True).start()
    if what == "changing":
        for touch in (False, True, False):
            relay(a, b, size, 120, touch)
    elif what == "short":
        relay(a, b, size, 20)
    elif what == "growing":
        relay(a, b, size, 60)
        _kept = relay(a, b, size, 450, pairs=150)
        # (A replay does the recording again and again: it is to end before these are unmapped.)
        os._exit(0)
    else:
        for step in range(40):
            relay(a, b, size + step * PAGE, 6, touch=step % 2 == 0)


main()
