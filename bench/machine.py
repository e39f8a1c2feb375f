"""What measurements ask of the machine, and of the processes that they have started."""

import contextlib
import os
import socket


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def descendants(pid):
    """A process and all that it has started."""
    found = [pid]
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as f:
        for child in f.read().split():
            found += descendants(int(child))
    return found


def living_cpu(pids):
    """Nanoseconds that the living threads of these processes have run (the ticks of /proc/PID/stat are
    too coarse for short turns)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat") as f:
                    total += int(f.read().split()[0])
    return total


def size_of(word):
    """Bytes, from a number that K, M or G may follow."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(word[-1:].upper(), 1)
    return int(word.rstrip("kKmMgG")) * unit
