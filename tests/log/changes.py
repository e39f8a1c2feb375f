"""Appends to files, and does rarely what is no append; says what was done when, so that a crash can be judged.

    changes.py DIRECTORY NAME SEED SECONDS

A line for each operation that has returned: its number, ns of the monotonic clock, the file's inode. `Model` follows the same
operations, and knows what a file may be after a crash.
"""

import os
import random
import subprocess
import sys
import time

WEIGHTS = {
    "append": 10, "fdatasync": 6, "fsync": 1.5, "over": 0.06, "cut": 0.06, "outside": 0.12, "look": 0.15, "rotate": 0.3, "again": 0.15,
}  # fmt: skip
LENGTHS = [1, 10, 100, 511, 4096, 5000, 12288, 70000]


def operations(seed):
    """(what, place or length, bytes' first), for ever."""
    chance = random.Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    # (Some are of one kind: what is held is to be much, or little, or synced rarely.)
    if seed % 4 == 1:
        weights[kinds.index("fdatasync")] = 1
    large = [0.01, 0.1, 0, 0.01][seed % 4]
    while True:
        what = chance.choices(kinds, weights)[0]
        length = 2_500_000 if chance.random() < large else chance.choice(LENGTHS)
        yield what, length, chance.randrange(1 << 30)


RUN = bytes(1 + i % 253 for i in range(253))
RUNS = RUN * 12000


def data(length, first):
    """No zeros: these are what a crash leaves of nothing. (Other bytes at each place for each operation.)"""
    head = b"<%d>" % first
    return (head + RUNS[first % 253 : first % 253 + length])[:length]


class Model:
    """A file's versions: what it was after each operation that changed it, or made it durable."""

    def __init__(self, born):
        self.born = born
        self.unlinked = None
        self.chain = bytearray()  # (What only grew shares its bytes.)
        self.versions = [(born, self.chain, 0, False)]  # operation, bytes, how many, durable once that has returned

    def becomes(self, number, synced=False):
        self.versions.append((number, self.chain, len(self.chain), synced))

    def change(self, number, content):
        self.chain = bytearray(content)
        self.becomes(number)

    def append(self, number, more, synced=False):
        self.chain += more
        self.becomes(number, synced)

    def fault(self, there, returned, strict):
        """What is wrong with `there`, of a crash before the operation behind `returned` has returned; None: nothing."""
        begun = [version for version in self.versions if version[0] <= returned + 1]
        first = max((i for i, (n, *_, synced) in enumerate(begun) if synced and n <= returned), default=0)
        lengths = [length for _, _, length, _ in begun[first:]]
        least, most, sure = min(lengths), max(lengths), lengths[0]
        if not least <= len(there) <= most:
            return f"{len(there)} bytes instead of {least} to {most}"
        # (Of each chain the longest version says it all, but that a shorter one may be all there is.)
        chains = {id(chain): memoryview(chain)[:length] for _, chain, length, _ in begun[first:]}
        chains = list(chains.values())
        if there == chains[-1][: len(there)]:
            return None
        for at in range(0, len(there), 4096):
            block = there[at : at + 4096]
            if not strict and at >= sure and not any(block):
                continue
            if any(chain[at : at + len(block)] == block for chain in chains):
                continue
            for place, byte in enumerate(block, at):
                if any(place < len(chain) and chain[place] == byte for chain in chains):
                    continue
                # (Nothing, where it was not acknowledged.)
                if byte == 0 and (least <= place < sure or place >= sure and not strict):
                    continue
                return f"byte {place} of {len(there)} is {byte}: never written, or lost; {sure} were acknowledged"
        return None


def simulated(seed, until):
    """All files that the first `until` operations made, in the order of their making."""
    files = [Model(0)]
    source = operations(seed)
    for number in range(1, until + 1):
        what, length, first = next(source)
        file = files[-1]
        match what:
            case "append":
                file.append(number, data(length, first))
            case "fdatasync" | "fsync":
                file.becomes(number, True)
            case "over" if file.chain:
                at = first % len(file.chain)
                new = data(min(length, 5000), first)
                file.change(number, file.chain[:at] + new + file.chain[at + len(new) :])
            case "cut":
                file.change(number, file.chain[: first % (len(file.chain) + 1)])
            case "outside":
                file.append(number, data(min(length, 5000), first), True)
            case "rotate":
                files.append(Model(number))
                if len(files) > 3:
                    files[-4].unlinked = number
    return files


def stranger():
    """Knows nothing of logs: appends to a file durably, or reads it."""
    for line in sys.stdin:
        path, length, first = line.rsplit(" ", 2)
        if int(length):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.write(fd, data(int(length), int(first)))
            os.fsync(fd)
            os.close(fd)
        else:
            with open(path, "rb") as file:
                file.read()
        print(flush=True)


def main():
    if sys.argv[1] == "stranger":
        return stranger()
    directory, name, seed, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    path = os.path.join(directory, name)
    plain = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    # (Before a file is opened: of what a child has nothing is held.)
    words = [sys.executable, __file__, "stranger"]
    other = subprocess.Popen(words, env=plain, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(length, first):
        other.stdin.write(f"{path} {length} {first}\n")
        other.stdout.readline()

    folder = os.open(directory, os.O_RDONLY)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND

    def opened():
        fd = os.open(path, flags, 0o600)
        return fd, os.fstat(fd).st_ino

    def say(number):
        os.write(1, b"%d %d %d\n" % (number, time.monotonic_ns(), inode))

    fd, inode = opened()
    os.fsync(folder)
    say(0)
    end, old = time.monotonic() + seconds, []
    for number, (what, length, first) in enumerate(operations(seed), 1):
        match what:
            case "append":
                wrote = os.write(fd, data(length, first))
                assert wrote == length, (wrote, length)
            case "fdatasync":
                os.fdatasync(fd)
            case "fsync":
                os.fsync(fd)
            case "over":
                size = os.fstat(fd).st_size
                if size:
                    # (With O_APPEND the kernel heeds no place.)
                    second = os.open(path, os.O_WRONLY)
                    os.pwrite(second, data(min(length, 5000), first), first % size)
                    os.close(second)
            case "cut":
                os.ftruncate(fd, first % (os.fstat(fd).st_size + 1))
            case "outside":
                ask(min(length, 5000), first)
            case "look":
                ask(0, 0)
            case "rotate":
                os.rename(path, f"{path}.{number}")
                os.close(fd)
                old.append(f"{path}.{number}")
                fd, inode = opened()
                os.fsync(folder)
                if len(old) > 2:
                    os.unlink(old.pop(0))
            case "again":
                os.close(fd)
                fd, inode = opened()
        say(number)
        if time.monotonic() > end:
            break
    time.sleep(60)
    return None


if __name__ == "__main__":
    main()
