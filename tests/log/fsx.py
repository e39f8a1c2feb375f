"""Random calls on one file, each read compared with what should be there (after fsx of Apple's and the kernel's tests).

    fsx.py FILE SEED OPERATIONS

Half of the writes append and many of these are synced, so that the file is held in between; in other runs it is overwritten.
"""

import mmap
import os
import random
import sys

WEIGHTS = {
    "append": 30, "sync": 20, "write": 4, "read": 8, "cut": 2, "longer": 1, "mapread": 3, "mapwrite": 2, "again": 3, "copy": 1,
}  # fmt: skip
MOST = 1 << 20


def main():
    path, seed, operations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    flags = os.O_RDWR | (os.O_APPEND if seed % 3 == 0 else 0)
    fd = os.open(path, flags | os.O_CREAT | os.O_TRUNC, 0o600)
    should = bytearray()
    # (Runs of one kind: what makes a file plain keeps it so for a second.)
    quiet, run = 0, []

    def check(what, at, there):
        if there != should[at : at + len(there)] or len(there) != max(0, min(len(should) - at, len(there))):
            wrong = next((i for i, (a, b) in enumerate(zip(there, should[at:], strict=False)) if a != b), len(there))
            sys.exit(f"fsx: seed {seed}, operation {number}: {what} at {at}: {len(there)} bytes, wrong from {at + wrong} on")

    for number in range(operations):
        if quiet == 0 and chance.random() < 0.02:
            quiet = chance.randrange(20, 120)
            run = chance.choice([["append", "append", "sync"], ["write", "read", "sync"]])
        what = chance.choice(run) if quiet else chance.choices(kinds, weights)[0]
        quiet = max(0, quiet - 1)
        at, n = chance.randrange(len(should) + 1), chance.choice([1, 7, 100, 4096, 5000, 30000, 65536, 150000])
        data = bytes([chance.randrange(256)]) * n
        if what in ("append", "longer") and len(should) + n > MOST * 8:
            what = "cut"
        match what:
            case "append":
                if not flags & os.O_APPEND:
                    os.lseek(fd, 0, os.SEEK_END)
                assert os.write(fd, data) == n
                should += data
            case "sync":
                chance.choice([os.fsync, os.fdatasync])(fd)
            case "write" if not flags & os.O_APPEND:
                assert os.pwrite(fd, data, at) == n
                should[at : at + n] = data
            case "read":
                there = os.pread(fd, n, at)
                if len(there) != min(n, len(should) - at):
                    sys.exit(f"fsx: seed {seed}, operation {number}: {len(there)} of {n} bytes at {at} of {len(should)}")
                check("read", at, there)
            case "cut":
                os.ftruncate(fd, at)
                del should[at:]
            case "longer":
                os.ftruncate(fd, len(should) + n)
                should += bytes(n)
            case "mapread" | "mapwrite" if should:
                with mmap.mmap(fd, len(should)) as mapped:
                    if what == "mapwrite":
                        n = min(n, len(should) - at)
                        mapped[at : at + n] = data[:n]
                        should[at : at + n] = data[:n]
                    check(what, 0, mapped[:])
            case "again":
                os.close(fd)
                fd = os.open(path, flags)
            case "copy" if not flags & os.O_APPEND:
                with open(path, "rb") as file:
                    check("read elsewhere", 0, file.read())
        size = os.fstat(fd).st_size
        if size != len(should):
            sys.exit(f"fsx: seed {seed}, operation {number}: {what}: {size} bytes instead of {len(should)}")
    os.close(fd)
    with open(path, "rb") as file:
        check("the end", 0, file.read())


if __name__ == "__main__":
    main()
