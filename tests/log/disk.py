"""A disk that remembers each write and flush: one file of a FUSE file system, for a loop device.

    disk.py IMAGE DIRECTORY TRACE

DIRECTORY gets the file `disk` with the bytes of IMAGE, which stay as they are. What is written goes to TRACE. Ends by SIGTERM
or when DIRECTORY is unmounted. Speaks the kernel's protocol itself: nothing is to be installed.
"""

import ctypes
import errno
import mmap
import os
import struct
import sys
import time

LOOKUP, GETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT = 1, 3, 14, 15, 16, 17, 18, 20, 25, 26
FORGET, INTERRUPT, BATCH_FORGET, DESTROY = 2, 36, 42, 38
IN = struct.Struct("<IIQQIIII")
OUT = struct.Struct("<IiQ")
WROTE = struct.Struct("<QQQ")  # ns of the monotonic clock, place, length (0: a flush); the bytes follow
MOST = 1 << 20
FOREVER = 1 << 30


def attributes(inode, size):
    mode = 0o100600 if inode == 2 else 0o40700
    return struct.pack("<QQQQQQIIIIIIIIII", inode, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def serve(image, directory, trace):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,max_read={MOST}".encode()
    if libc.mount(b"disk", os.fsencode(directory), b"fuse", 0, options) != 0:
        raise OSError(ctypes.get_errno(), "mount of a FUSE file system")
    size = os.path.getsize(image)
    with open(image, "rb") as file:
        there = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    out = open(trace, "wb", buffering=0)
    while True:
        try:
            request = os.read(fd, MOST + 4096 * 4)
        except OSError as why:
            if why.errno in (errno.EINTR, errno.ENOENT):
                continue
            return
        now = time.monotonic_ns()
        _, code, unique, node, *_ = IN.unpack_from(request)
        body = memoryview(request)[IN.size :]
        error, answer = 0, b""
        if code == INIT:
            flags = 1 << 5 | 1 << 22  # FUSE_BIG_WRITES | FUSE_MAX_PAGES
            answer = struct.pack("<IIIIHHIIHHIIII", 7, 31, 65536, flags, 64, 48, MOST, 1, MOST // 4096, 0, 0, 0, 0, 0)
            answer += bytes(64 - len(answer))
        elif code == LOOKUP:
            if bytes(body).rstrip(b"\0") == b"disk":
                answer = struct.pack("<QQQQII", 2, 0, FOREVER, FOREVER, 0, 0) + attributes(2, size)
            else:
                error = errno.ENOENT
        elif code == GETATTR:
            answer = struct.pack("<QII", FOREVER, 0, 0) + attributes(node, size)
        elif code == OPEN:
            answer = struct.pack("<QIi", 1, 2, 0)  # FOPEN_KEEP_CACHE
        elif code == READ:
            _, at, length = struct.unpack_from("<QQI", body)
            answer = there[at : at + length]
        elif code == WRITE:
            _, at, length = struct.unpack_from("<QQI", body)
            data = body[40 : 40 + length]
            out.write(WROTE.pack(now, at, length) + bytes(data))
            there[at : at + length] = bytes(data)
            answer = struct.pack("<II", length, 0)
        elif code == FSYNC:
            out.write(WROTE.pack(now, 0, 0))
        elif code == STATFS:
            answer = struct.pack("<QQQQQIIII6I", size // 4096, 0, 0, 2, 0, 4096, 255, 4096, 0, *[0] * 6)
        elif code in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        elif code not in (RELEASE, FLUSH, DESTROY):
            error = errno.ENOSYS
        try:
            os.write(fd, OUT.pack(OUT.size + len(answer), -error, unique) + answer)
        except OSError as why:
            if why.errno != errno.ENOENT:
                raise
        if code == DESTROY:
            return


def traced(path):
    """What was written: (ns, place, bytes), or (ns, 0, None) for a flush."""
    with open(path, "rb") as file:
        while head := file.read(WROTE.size):
            now, at, length = WROTE.unpack(head)
            yield now, at, file.read(length) if length else None


if __name__ == "__main__":
    serve(*sys.argv[1:])
