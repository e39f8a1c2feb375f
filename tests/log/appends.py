"""Appends records, syncs, and says how many are durable.

    appends.py FILE SEED app|seq SECONDS
"""

import os
import random
import sys
import time


def lengths(seed):
    """Lengths of records, and after which of them is synced."""
    chance = random.Random(seed)
    while True:
        count = chance.randint(1, 3)
        for k in range(count):
            small = chance.random() < 0.95
            yield chance.choice([10, 100, 4096, 5000, 70000, 300000]) if small else 3000000, k == count - 1


def record(number, length):
    head = b"%08d." % number
    return head + bytes([97 + number % 26]) * (length - len(head))


def main():
    path, seed, mode, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if mode == "app" else 0), 0o600)
    end = time.monotonic() + seconds
    for number, (length, syncs) in enumerate(lengths(seed)):
        wrote = os.write(fd, record(number, length))
        assert wrote == length, (wrote, length)
        if syncs:
            os.fdatasync(fd)
            os.write(1, b"%d\n" % (number + 1))
            if time.monotonic() > end:
                break
    os.close(fd)


if __name__ == "__main__":
    main()
