#!/usr/bin/env python3
"""Redis and its pages.

    bench/papers/redis_pages.py remap        of the bytes that a SET copies, the share whose pages could be mapped to where they are copied instead
    bench/papers/redis_pages.py huge         the share of its memory in huge pages, and the gain, with jemalloc told to ask for these

`remap` (zIO, 2.4: "only about 40%"): copies are taken from a recording (`uncopy run --record`, all elided and no allocator of ours), calls that read and
write from strace of a plain server. A copy's page can be remapped where source and destination lie at one place within their pages, and for whole pages; of
a call's buffer only the program's end is seen. Both have the sizes that they have: values of --size, with an append-only file.

`huge` (zIO, 3.4): SETs and GETs in equal parts. `huge`: AnonHugePages over Rss of the server; cpu_ratio: processor time of plain over the side's. The machine's own setting is not
changed: MALLOC_CONF=thp:always has jemalloc ask for huge pages where they are given to who asks (`madvise`) and where they are given always.

Prints JSON."""

import argparse
import os
import re
import subprocess

import turns
from turns import Failure, in_turns, median, ratio

PAGE = 4096
COPY = re.compile(r"Did\(Copy \{ to: (\d+), from: (\d+), len: (\d+), ")
ELIDED = re.compile(r"Elided(?:Again)? \{ bytes: (\d+) \}")
CALL = re.compile(r"\b(read|write)\(0x[0-9a-f]+, (0x[0-9a-f]+), 0x[0-9a-f]+\)\s*= (0x[0-9a-f]+)")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("remap", "huge"))
    p.add_argument("--size", type=turns.size_of, default=512 << 10, help="of values (512K)")
    p.add_argument("--requests", type=int, default=200, help="of each kind in a turn (200)")
    p.add_argument("--turns", type=int, default=9, help="of each side (9)")
    return p.parse_args()


def whole_pages(start, length):
    """Bytes of the pages that lie wholly within."""
    first, last = -(-start // PAGE), (start + length) // PAGE
    return max(0, last - first) * PAGE


def of_copies(text, least):
    """Bytes copied, by copies of at least so many, and those of them in pages that could be remapped: `uncopy replay --entries`."""
    copied = pages = 0
    for to, source, length in ((int(n) for n in found) for found in COPY.findall(text)):
        if length >= least:
            copied += length
            pages += whole_pages(to, length) if (to - source) % PAGE == 0 else 0
    return copied, pages


def of_calls(text, least):
    """The same of the buffers of `read` and `write`: `strace -e raw=read,write`. What one call does is judged as a whole."""
    copied = pages = 0
    for _, buffer, done in CALL.findall(text):
        buffer, done = int(buffer, 16), int(done, 16)
        if least <= done < 1 << 40:
            copied += done
            pages += done // PAGE * PAGE if buffer % PAGE == 0 else 0
    return copied, pages


def command(port, where):
    words = [turns.installed("redis-server", "redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", where]
    return [*words, "--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", 0]


def drive(port, size, requests, *kinds):
    for kind in kinds:
        words = [turns.installed("redis-benchmark", "redis-tools"), "-h", "127.0.0.1", "-p", port, "-t", kind, "-d", size, "-r", 32, "-c", 16, "-n", requests, "-q"]
        done = subprocess.run(["taskset", "-c", str(turns.cores()[1]), *map(str, words)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(f"redis-benchmark: {done.stderr.strip()[-200:]}")


def remap(o):
    with turns.sides(["plain"]) as sides:
        side, found = sides["plain"], {}
        record, trace = os.path.join(side.directory, "record"), os.path.join(side.directory, "trace")
        # (Each copy stands in a recording where none is refused beforehand.)
        side.env["UNCOPY_CONTROLLER"] = "always"
        ways = {
            "copies": [turns.UNCOPY, "run", "--allocator=no", f"--record={record}", "--"],
            "calls": [turns.installed("strace", "strace"), "-f", "-qq", "-o", trace, "-e", "trace=read,write", "-e", "raw=read,write"],
        }
        for name, words in ways.items():
            port = turns.free_port()
            where = os.path.join(side.directory, name)
            os.mkdir(where)
            server = side.popen([*words, *command(port, where)], turns.cores()[0])
            turns.wait_port(port, server, side)
            drive(port, o.size, o.requests, "set")
            said = subprocess.run(
                [turns.installed("redis-cli", "redis-tools"), "-p", str(port), "shutdown", "nosave"], capture_output=True, text=True, check=False
            )
            if server.wait(turns.PATIENCE):
                raise Failure(f"redis-server: {said.stderr} {side.said()}")
        least = min(o.size // 8, 16384)
        done = subprocess.run([turns.UNCOPY, "replay", "--entries", record], capture_output=True, text=True, check=True)
        found["copies"] = of_copies(done.stdout, least)
        elided = sum(map(int, ELIDED.findall(done.stdout)))
        with open(trace) as f:
            found["calls"] = of_calls(f.read(), least)
    rows = {name: {"bytes": copied, "remappable": pages, "share": round(pages / copied, 4) if copied else None} for name, (copied, pages) in found.items()}
    copied, pages = map(sum, zip(*found.values()))
    if not copied:
        raise Failure("redis copied nothing of that size")
    views = round(elided / max(found["copies"][0], 1), 4)
    return {"bench": "redis_pages", "what": "remap", "size": o.size, "share": round(pages / copied, 4), "elided": views, "rows": rows}


def huge_share(text):
    """Of /proc/PID/smaps_rollup."""
    kb = {name: int(re.search(rf"^{name}:\s+(\d+) kB", text, re.M)[1]) for name in ("Rss", "AnonHugePages")}
    return kb["AnonHugePages"] / kb["Rss"]


def huge(o):
    names = ["plain", "again", "uncopy"]
    servers, ports = {}, {}
    with turns.sides(names, env={"MALLOC_CONF": "thp:always"}.items()) as sides:
        for name, side in sides.items():
            ports[name] = turns.free_port()
            servers[name] = side.start(command(ports[name], side.directory), turns.cores()[0])
            turns.wait_port(ports[name], servers[name], side)

        def turn(name):
            before = turns.cpu(servers[name].pid)
            drive(ports[name], o.size, o.requests, "set", "get")
            took = turns.cpu(servers[name].pid) - before
            turns.give_back(sides[name].directory)
            with open(f"/proc/{servers[name].pid}/smaps_rollup") as f:
                return {"cpu": took, "huge": huge_share(f.read())}

        found = in_turns(names, o.turns, turn, warm=2)
    rows = {}
    for name in names:
        rows[name] = {
            "huge": round(median(found, name, lambda t: t["huge"]), 3),
            "cpu_us": round(median(found, name, lambda t: t["cpu"]) / 2 / o.requests / 1e3, 1),
            "cpu_ratio": round(ratio(found, name, lambda t: t["cpu"]), 3),
        }
    return {"bench": "redis_pages", "what": "huge", "size": o.size, "sides": rows}


def measure(o):
    return {"remap": remap, "huge": huge}[o.what](o)


if __name__ == "__main__":
    turns.main(lambda: measure(arguments()))
