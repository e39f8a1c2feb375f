"""Writes over parts of a file, as databases do, and syncs it often; says what was done when, so that a crash can be judged.

    pages.py FILE SEED SECONDS

A line for each operation that has returned: its number, ns of the monotonic clock, the file's inode. What it reads it compares.
`fault` follows the same operations, and knows what the file may be after a crash.
"""

import os
import random
import subprocess
import sys
import time

WEIGHTS = {
    "pwrite": 12, "pwritev": 2, "write": 2, "append": 0.6, "fdatasync": 9, "fsync": 0.6, "read": 2, "other": 0.05, "cut": 0.04,
    "rename": 0.04, "again": 0.05, "chmod": 0.05, "many": 0.1, "much": 0.05,
}  # fmt: skip
LENGTHS = [1, 24, 100, 511, 512, 4096, 4096, 4120, 20000]
FIRST = 96 << 10
MOST = 400 << 10


def operations(seed):
    """(what, a place's number, length, bytes' first), for ever."""
    chance = random.Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    while True:
        what = chance.choices(kinds, weights)[0]
        yield what, chance.randrange(1 << 30), chance.choice(LENGTHS), chance.randrange(1 << 30)


RUN = bytes(1 + i % 253 for i in range(253))
RUNS = RUN * 2000


def data(length, first):
    head = b"<%d>" % first
    return (head + RUNS[first % 253 : first % 253 + length])[:length]


def pieces(what, place, length, first, size):
    """What an operation writes to a file of `size` bytes, where."""
    at = place % max(1, size - length)
    match what:
        case "pwrite" | "write":
            return [(at, data(length, first))]
        case "pwritev":
            return [(at, data(length, first) + data(50, first + 1))]
        case "append" if size < MOST:
            return [(size, data(length, first))]
        case "many":
            return [((place + i * 7919 * 512) % max(1, size - 64), data(60, first + i)) for i in range(50)]
        case "much":
            return [(0, data(min(size, 300_000), first))]
    return []


def length_after(what, place, size):
    return place % 4096 + size // 2 if what == "cut" else size


def fault(there, seed, returned):
    """What is wrong with `there`, of a crash before the operation behind `returned` has returned; None: nothing."""
    source, size = operations(seed), FIRST
    sure, later, sizes = bytearray(data(FIRST, seed)), [], {FIRST}
    content = bytearray(sure)
    for number in range(1, returned + 2):
        what, place, length, first = next(source)
        for at, new in pieces(what, place, length, first, size):
            if at + len(new) > len(content):
                content.extend(bytes(at + len(new) - len(content)))
            content[at : at + len(new)] = new
            later.append((at, new))
        if what == "cut":
            size = length_after(what, place, size)
            content.extend(bytes(max(0, size - len(content))))
            del content[size:]
        size = len(content)
        sizes.add(size)
        if what in ("fdatasync", "fsync") and number <= returned:
            sure, later, sizes = bytearray(content), [], {size}
    if len(there) not in sizes and not min(sizes) <= len(there) <= max(sizes):
        return f"{len(there)} bytes instead of {sorted(sizes)}"
    if there == content[: len(there)]:
        return None
    length = len(there)
    may = [{byte} for byte in sure[:length]] + [{0} for _ in range(length - len(sure))]
    if min(sizes) < len(sure):
        # (It was made shorter: zeros are behind that.)
        for place in range(min(sizes), min(length, len(sure))):
            may[place].add(0)
    for at, new in later:
        for place, byte in enumerate(new, at):
            if place < length:
                may[place].add(byte)
    for place, byte in enumerate(there):
        if byte not in may[place]:
            return f"byte {place} of {length} is {byte}, and not of {sorted(may[place])}: lost, or never written"
    return None


def main():
    path, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    flags = os.O_RDWR | os.O_CREAT
    fd = os.open(path, flags, 0o600)
    content = bytearray(data(FIRST, seed))
    os.pwrite(fd, content, 0)
    os.fsync(fd)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)

    def say(number):
        os.write(1, b"%d %d %d\n" % (number, time.monotonic_ns(), os.fstat(fd).st_ino))

    def compare(there, at, who):
        if there != content[at : at + len(there)]:
            sys.exit(f"pages: seed {seed}, operation {number}: {who} sees other bytes at {at}")

    number = 0
    say(0)
    end = time.monotonic() + seconds
    for number, (what, place, length, first) in enumerate(operations(seed), 1):
        parts = pieces(what, place, length, first, len(content))
        for at, new in parts:
            if what == "write":
                os.lseek(fd, at, os.SEEK_SET)
                wrote = os.write(fd, new)
            elif what == "pwritev":
                wrote = os.pwritev(fd, [new[:-50], new[-50:]], at)
            else:
                wrote = os.pwrite(fd, new, at)
            assert wrote == len(new), (wrote, len(new))
            if at + len(new) > len(content):
                content.extend(bytes(at + len(new) - len(content)))
            content[at : at + len(new)] = new
        match what:
            case "fdatasync":
                os.fdatasync(fd)
            case "fsync":
                os.fsync(fd)
            case "read":
                at = place % len(content)
                compare(os.pread(fd, length, at), at, "pread")
            case "other":
                there = subprocess.run(["cat", path], capture_output=True, check=False).stdout
                compare(there, 0, "cat")
                if len(there) != len(content):
                    sys.exit(f"pages: seed {seed}, operation {number}: cat sees {len(there)} bytes of {len(content)}")
            case "cut":
                size = length_after(what, place, len(content))
                os.ftruncate(fd, size)
                content.extend(bytes(max(0, size - len(content))))
                del content[size:]
            case "rename":
                os.rename(path, f"{path}.other")
                os.rename(f"{path}.other", path)
            case "again":
                os.close(fd)
                fd = os.open(path, flags)
            case "chmod":
                os.fchmod(fd, 0o600 + number % 2 * 0o40)
        say(number)
        if time.monotonic() > end:
            break
    if len(sys.argv) > 4:
        time.sleep(60)


if __name__ == "__main__":
    main()
