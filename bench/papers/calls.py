#!/usr/bin/env python3
"""Copies and calls of a file's way to a socket, by the methods of "Zero-copy: Principle and Implementation" (programs/transfer.c).

    bench/papers/calls.py [--size 1M]

Copies by the processor at the kernel's interface, in the program, and into devices' memory: `uncopy profile` counts the first two. Calls: those of all of the program's threads by
`strace -f -c`, of one run less those of a shorter one, so without what starts and ends it; each is two switches of mode. `kept` is read and send
under `uncopy run --file-memory`. Prints JSON. The bytes that arrive are compared."""

import argparse
import json
import os
import random
import re
import subprocess

import turns
from turns import Failure

METHODS = ("read", "mmap", "sendfile")
# The receiver is a child, and what it does is not the sender's.
RECEIVERS = {"recvfrom", "wait4"}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=turns.size_of, default=1 << 20, help="of the file (1M)")
    p.add_argument("--times", type=int, default=200, help="that the longer run sends it more often (200)")
    return p.parse_args()


def counted(text):
    """Calls by name, of `strace -c`."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
        if match and match[2] != "total":
            found[match[2]] = found.get(match[2], 0) + int(match[1])
    return found


def run(side, words, env=None):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=side.directory, timeout=turns.PATIENCE, env=env, check=False)
    if done.returncode:
        raise Failure(f"{words[0]}: {(done.stderr.strip() or str(done.returncode)).splitlines()[-1]}")


def calls_of(side, under, file, method, o):
    made, out, found = turns.program("transfer"), os.path.join(side.directory, "calls"), []
    # (The shorter one is long enough that uncopy has learned what it keeps and sends by reference.)
    for times in (200, 200 + o.times):
        run(side, [turns.installed("strace", "strace"), "-f", "-c", "-o", out, *under, made, file, times, method])
        with open(out) as f:
            found.append(counted(f.read()))
    each = {name: (n - found[0].get(name, 0)) / o.times for name, n in found[1].items() if name not in RECEIVERS}
    return {name: round(n, 2) for name, n in each.items() if n >= 0.01}


def copies_of(text):
    """Of `uncopy profile --json`: copies at the kernel's interface and in the program, by bytes, of what went out through sockets."""
    paths = [p for line in text.splitlines() for p in json.loads(line)["paths"] if p["to"] and p["to"]["kind"] == "socket"]
    sent = sum(p["bytes"] for p in paths)
    if not sent:
        raise Failure("uncopy profile saw nothing sent")
    return {key: round(sum(p[name] * p["bytes"] for p in paths) / sent, 2) for key, name in (("kernel", "kernel_copies"), ("program", "copies"))}


def measure(o):
    rows = {}
    with turns.sides(["plain"]) as sides:
        side = sides["plain"]
        file, report = (os.path.join(side.directory, name) for name in ("file", "report"))
        with open(file, "wb") as f:
            f.write(random.Random(1).randbytes(o.size))
        for method in METHODS:
            run(side, [turns.UNCOPY, "profile", "--json", "-o", report, "--", turns.program("transfer"), file, 50, method])
            with open(report) as f:
                rows[method] = copies_of(f.read())
            rows[method]["calls"] = calls_of(side, [], file, method, o)
        # (A file that was changed is left alone for a second before it is kept.)
        turns.time.sleep(1.1)
        under = [turns.UNCOPY, "run", "--file-memory=256M", "--"]
        rows["kept"] = {"calls": calls_of(side, under, file, "read", o)}
    for of in rows.values():
        of["switches"] = round(2 * sum(of["calls"].values()), 1)
    return {"bench": "calls", "size": o.size, "rows": rows}


if __name__ == "__main__":
    turns.main(lambda: measure(arguments()))
