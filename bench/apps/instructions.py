#!/usr/bin/env python3
"""What uncopy's shims cost a server: instructions and system calls for a request, plainly (twice) and under uncopy, counted by callgrind and
strace. Counts depend little on what else the machine does.

    bench/apps/instructions.py                          asyncio, redis, memcached, nginx, gRPC at 64 KB with four connections
    bench/apps/instructions.py --only redis --top 20    the functions that make the difference
    bench/apps/instructions.py --fail-above 1           exit status 1 where a server needs more than 1% more instructions

`shims`: the library with all that can be switched off switched off. The other parts cannot be counted so: callgrind has no userfaultfd, and no room
for the allocator's reservation; `bench/apps/all.py --parts` measures them. Only the program's instructions count; what the kernel does for it is in
the system calls. Of programs with threads that wait for each other (gRPC) the counts differ from run to run."""

import argparse
import collections
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time

import apps
import cache
import files
import harness
from loads import Failure, connect
from machine import free_port

SERVERS = {**apps.SERVERS, **cache.SERVERS, **files.SERVERS}
USUAL = ["asyncio", "redis", "memcached GET", "nginx proxy", "gRPC"]
OFF = {"UNCOPY_ELIDE": "no", "UNCOPY_LEND": "0", "UNCOPY_ALLOCATOR": "no", "UNCOPY_COPIES": "libc"}
SIDES = {"plain": None, "again": None, "shims": OFF}
# Of load before it is counted: caches of specialized bytecode, buffers and sockets become what they will be. Under callgrind all is fifty
# times slower.
WARM, COUNTED = 6.0, 6.0


def environment(side):
    # (Python's tables of names collide otherwise in each process.)
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    if SIDES[side] is not None:
        library = os.path.join(os.path.dirname(harness.OPTIONS.uncopy), "libuncopy.so")
        env.update({"LD_PRELOAD": library, "UNCOPY_LIBRARY": library, **SIDES[side]})
    return env


@contextlib.contextmanager
def started(server, side, before, size, directory):
    """A server behind the command `before`; its process and its load."""
    port = free_port()
    command, helper = server.start(port, directory)
    conf = os.path.join(directory, "nginx.conf")
    if os.path.exists(conf) and os.getuid() == 0:
        # (A process that controls callgrind reaches no worker of another user.)
        with open(conf) as f:
            text = f.read()
        with open(conf, "w") as f:
            f.write("user root;\n" + re.sub(r"\buser [\w-]+;", "", text))
    children = []
    with open(os.path.join(directory, "said"), "ab") as said:
        if helper:
            children.append(subprocess.Popen(helper, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
            connect(int(helper[-1])).close()
        main = subprocess.Popen([*before, *command], stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment(side))
        children.append(main)
    load = None
    try:
        try:
            connect(port, 120).close()
        except Failure as why:
            with open(os.path.join(directory, "said"), errors="replace") as said:
                raise Failure(f"{why}; {side} said: {said.read()[-600:].strip()}") from None
        load = server.load(port, size)
        yield main, load
    finally:
        if load:
            load.close()
        for child in children[::-1]:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def tell(pids, *words):
    for pid in pids:
        subprocess.run(["callgrind_control", *words, str(pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def functions(directory):
    """Instructions of each function, from what callgrind wrote."""
    found = collections.Counter()
    for name in os.listdir(directory):
        if not name.startswith("callgrind.out.") or not os.path.getsize(os.path.join(directory, name)):
            continue
        path = os.path.join(directory, name)
        said = subprocess.run(["callgrind_annotate", "--threshold=100", "--auto=no", path], capture_output=True, text=True, check=False)
        for line in said.stdout.splitlines():
            match = re.match(r"\s*([\d,]+) \([ \d.]+%\)\s+(.*)", line)
            if match and "PROGRAM TOTALS" not in line:
                what = re.sub(r"\[.*/", "[", match[2].split(":", 1)[-1])
                found[what] += int(match[1].replace(",", ""))
    return found


def instructions(server, side, size, connections):
    """Of a request, by function."""
    with tempfile.TemporaryDirectory(prefix="uncopy-count-") as directory:
        os.chmod(directory, 0o777)
        out = os.path.join(directory, "callgrind.out.%p")
        # (valgrind keeps twelve descriptors; memcached wants a limit of exactly 1,024.)
        valgrind = ["prlimit", "--nofile=1036", "valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes", f"--callgrind-out-file={out}"]
        with started(server, side, valgrind, size, directory) as (main, load):
            load.connections(connections)
            load.run(WARM)
            pids = harness.descendants(main.pid)
            tell(pids, "-i", "on")
            requests = len(load.run(COUNTED).latencies)
            tell(pids, "-i", "off")
            tell(pids, "-d")
        found = functions(directory)
    return collections.Counter({name: n / requests for name, n in found.items()})


def calls(server, side, size, connections):
    """System calls of a request, by name."""
    with tempfile.TemporaryDirectory(prefix="uncopy-count-") as directory:
        os.chmod(directory, 0o777)
        with started(server, side, [], size, directory) as (main, load):
            load.connections(connections)
            load.run(1.0)
            out = os.path.join(directory, "calls")
            words = [word for pid in harness.descendants(main.pid) for word in ("-p", str(pid))]
            strace = subprocess.Popen(["strace", "-f", "-c", "-o", out, *words], stderr=subprocess.DEVNULL)
            time.sleep(1.0)
            requests = len(load.run(2.0).latencies)
            strace.terminate()
            strace.wait()
            load.run(0.1)
            found = collections.Counter()
            with open(out) as f:
                for line in f:
                    fields = line.split()
                    if len(fields) >= 5 and fields[3].isdigit() and fields[-1] != "total":
                        found[fields[-1]] = int(fields[3]) / requests
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", default=USUAL, metavar="NAME", help="servers whose names contain one of these")
    p.add_argument("--size", default="64K")
    p.add_argument("--connections", type=int, default=4)
    p.add_argument("--top", type=int, default=8, help="functions shown (8)")
    p.add_argument("--uncopy", default=os.path.join(harness.ROOT, "target", "release", "uncopy"))
    p.add_argument("--fail-above", type=float, metavar="PERCENT")
    p.add_argument("--load-core", type=int, default=1)
    harness.OPTIONS = options = p.parse_args()
    missing = [tool for tool in ("valgrind", "strace") if not harness.find(tool)]
    if missing:
        raise Failure(f"{' and '.join(missing)} is not installed: apt-get install {' '.join(missing)}")
    size, bad = harness.size_of(options.size), False
    for name, server in SERVERS.items():
        if not any(part.lower() in name.lower() for part in options.only):
            continue
        why = harness.missing(server)
        if why:
            print(f"{name}: not counted: {why}")
            continue
        counted = {side: instructions(server, side, size, options.connections) for side in SIDES}
        called = {side: calls(server, side, size, options.connections) for side in SIDES}
        plain = counted["plain"].total()
        for side in SIDES:
            total = counted[side].total()
            more = 100 * (total / plain - 1)
            bad |= side == "shims" and options.fail_above is not None and more > options.fail_above
            print(f"{name:30} {side:10} {total:12,.0f} instructions ({more:+.2f}%), {called[side].total():6.2f} calls a request")
            if side != "shims":
                continue
            difference = collections.Counter({f: counted[side][f] - counted["plain"][f] for f in counted[side] | counted["plain"]})
            for function, n in sorted(difference.items(), key=lambda d: -abs(d[1]))[: options.top]:
                if abs(n) > plain / 10_000:
                    print(f"    {n:+12,.0f}  {function}")
            for call in called[side] | called["plain"]:
                if abs(called[side][call] - called["plain"][call]) > 0.02:
                    print(f"    {called[side][call] - called['plain'][call]:+12.2f}  calls of {call}")
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as why:
        sys.exit(f"instructions.py: {why}")
