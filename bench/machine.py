"""What measurements ask of the machine, and of the processes that they have started."""

import contextlib
import os
import socket
import time


# The kernel's default, of this network namespace.
CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port, patience=10, lives=lambda: True):
    """Whether somebody answers at this port within so many seconds, while what is to answer lives."""
    end = time.monotonic() + patience
    while time.monotonic() < end and lives():
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return True
        time.sleep(0.02)
    return False


def default_control(name=None):
    """The kernel's congestion control for new connections; `name` becomes it."""
    if name is None:
        with open(CONTROL) as f:
            return f.read().strip()
    with open(CONTROL, "w") as f:
        f.write(name)
    return name


@contextlib.contextmanager
def control(name, refused, instead=()):
    """What is connected and accepted meanwhile has this congestion control, unless somebody sets another.
    Gives its name: one of `instead`, where the first is not allowed. `refused(name, why)` is raised
    where none is."""
    before = default_control()
    for choice in (name or before, *instead):
        try:
            chosen = default_control(None if choice == before else choice)
            break
        except OSError as why:
            last = why
    else:
        raise refused(name, last)
    try:
        yield chosen
    finally:
        if chosen != before:
            default_control(before)


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
