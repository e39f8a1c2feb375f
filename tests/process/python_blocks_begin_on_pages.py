#!/usr/bin/env python3
"""Python's large objects have their bytes where the kernel's copies into them are fast: not 1 to 31 bytes behind the beginning of a
page, where data from outside begins as a rule."""

import ctypes
import socket
import threading

UNDER_UNCOPY = hasattr(ctypes.CDLL(None), "uncopy_counters")


def address(data):
    if isinstance(data, bytes):
        return id(data) + bytes.__basicsize__ - 1
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def look(how, data):
    offset = address(data) % 4096
    if UNDER_UNCOPY and 1 <= offset <= 31:
        print(f"WRONG: {how} of {len(data)} bytes begins {offset} bytes into a page")
    print(f"{how} of {len(data)} bytes, {sum(data) % 251}", flush=True)


for size in (64 << 10, 512 << 10):
    others = [bytes(1000 * n) for n in range(40)]
    look("bytes", bytes(size))
    look("bytes, computed", b"ab" * (size // 2))
    look("bytearray", bytearray(size))
    grown = bytearray()
    for n in range(16):
        grown += bytes([n]) * (size // 16)
    look("bytearray that grew", grown)
    look("bytes of a bytearray", bytes(grown))
    here, there = socket.socketpair()
    sender = threading.Thread(target=there.sendall, args=(bytes(grown),))
    sender.start()
    look("bytes received", here.recv(size, socket.MSG_WAITALL))
    sender.join()
    sender = threading.Thread(target=there.sendall, args=(bytes(grown),))
    sender.start()
    into = bytearray(size)
    here.recv_into(into, size, socket.MSG_WAITALL)
    look("bytearray received into", into)
    sender.join()
print("end")
