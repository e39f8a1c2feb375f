#!/usr/bin/env python3
"""What uncopy costs servers that gain little or nothing, to a few tenths of a percent; and what it costs while it learns.

Fresh processes differ by a percent for as long as they live, and the machine's speed changes within seconds. So several processes of each side live on one core
at once, and one load drives them in slices of 10 ms in turns, in another order each time (small_load.c, which compares every answer; of an upload its length). A process's figure is the
median over the rounds of the plain ones' processor time for an answer, in that round, over its own: above 1 is a gain. (With --starting it is all their processor time for all their answers over its own, as what is rare
counts then: an experiment.) A side's figure is the mean of its processes', with the smallest and the largest; those of plain are the noise.

    bench/apps/small.py                              redis, memcached and nginx with 1 KB and 64 connections: three minutes
    bench/apps/small.py --only touched --connections 16 --processes 12    messages of 64 KB, copied once, each page of the copy written (touched.c)
    bench/apps/small.py --only nginx --processes 5 --rounds 400
    bench/apps/small.py --only aiohttp redis --size 64K --connections 4
    bench/apps/small.py --only redis --size 1M --connections 4 --starting      the first quarter second of each process, the second to its end, and five seconds
    bench/apps/small.py --uncopy OTHER/uncopy        another build, whose figures can be compared with this one's
    bench/apps/small.py --only redis --beside shims="--elide=no --lend=no --copies=libc --allocator=no" jumps=/tmp/jumps.so     further sides: options, or another library that is preloaded

Needs the servers, and a C compiler as cc."""

import argparse
import contextlib
import functools
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile

from harness import HERE, ended, find, python_package, python_server, size_of
from loads import Failure, connect
from machine import free_port

SIDES = {
    "plain": None,
    "placed": ["--elide=no", "--lend=no", "--copies=libc"],
    "no el.": ["--elide=no", "--lend=no"],
    "uncopy": [],
}
# The letters that are asked for; no byte of them is 0, or means something in a protocol.
LETTERS = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=1024))
WARM = 2  # rounds that do not count
# For --starting, in rounds of 10 ms.
WINDOWS = {".25 s": (0, 25), "1 s": (25, 100), "5 s": (100, 500)}


def redis(port, directory):
    return ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]


def memcached(port, directory):
    return ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-t", "1", "-I", "2m"]


def nginx(port, directory):
    with open(f"{directory}/k", "w") as f:
        f.write(body())
    with open(f"{directory}/nginx.conf", "w") as f:
        f.write(
            f"daemon off; master_process off; pid {directory}/pid; error_log {directory}/error.log;\n"
            "events { worker_connections 2000; }\n"
            "http { access_log off; sendfile off; keepalive_requests 1000000000; keepalive_timeout 1000s;\n"
            + "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            + f"server {{ listen 127.0.0.1:{port}; root {directory}; }} }}\n"
        )
    return ["nginx", "-p", directory, "-c", f"{directory}/nginx.conf"]


@functools.cache
def built(name):
    """A program from its source here, compiled once."""
    subprocess.run(["cc", "-O2", "-Wall", "-o", f"{MADE}/{name}", f"{HERE}/{name}.c"], check=True)
    return f"{MADE}/{name}"


def touched(port, directory):
    return [built("touched"), str(port)]


def aiohttp(port, directory):
    why = python_package("aiohttp")
    if why:
        raise Failure(why)
    return python_server("aiohttp_upload.py")(port, directory)[0]


def body():
    """Of an answer, or an upload."""
    return LETTERS * (OPTIONS.size >> 10)


def upload():
    return f"POST / HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body())}\r\n\r\n{body()}"


# Command; request; what is told to it before; what every answer must hold.
SERVERS = {
    "redis": (redis, lambda: "GET k\r\n", lambda: f"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len(body())}\r\n{body()}\r\n", body),
    "memcached": (memcached, lambda: "get k\r\n", lambda: f"set k 0 0 {len(body())}\r\n{body()}\r\n", body),
    "nginx": (nginx, lambda: "GET /k HTTP/1.1\r\nHost: bench\r\n\r\n", None, body),
    "touched": (touched, lambda: LETTERS * 64, None, lambda: LETTERS * 64),
    "aiohttp": (aiohttp, upload, None, lambda: str(len(body()))),
}


def started(name, side, stack):
    """A server that answers; PID:PORT."""
    command, _, told, _ = SERVERS[name]
    port, directory = free_port(), stack.enter_context(tempfile.TemporaryDirectory(prefix="uncopy-small-"))
    words = command(port, directory)
    if not find(words[0]):
        raise Failure(f"{words[0]} is not installed")
    if isinstance(SIDES[side], str):
        words = ["env", f"LD_PRELOAD={SIDES[side]}", *words]
    elif SIDES[side] is not None:
        words = [OPTIONS.uncopy, "run", *SIDES[side], "--", *words]
    with open(f"{directory}/said", "wb") as said:
        words = ["taskset", "-c", str(OPTIONS.server_core), *words]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    stack.callback(ended, process)
    with connect(port) as s:
        if told:
            s.sendall(told().encode())
            s.recv(100)
        else:
            s.shutdown(socket.SHUT_WR)
    return f"{process.pid}:{port}"


def price(rounds, sides, side):
    """Nanoseconds of processor time for an answer, of a side's processes in these rounds."""
    both = [word for row in rounds for s, word in zip(sides, row) if s == side]
    return sum(took for took, _ in both) / sum(answers for _, answers in both)


def further(text):
    """A side, as NAME=LIBRARY or NAME=OPTIONS."""
    name, _, what = text.partition("=")
    if not name or not what or name in SIDES:
        raise argparse.ArgumentTypeError(f"{text} is neither NAME=LIBRARY.so nor NAME=OPTIONS")
    if what.startswith("-"):
        return name, what.split()
    if not os.path.isfile(what):
        raise argparse.ArgumentTypeError(f"{what} is no file")
    return name, os.path.abspath(what)


def size_in_bytes(text):
    size = size_of(text)
    if not 1024 <= size <= 1 << 20 or size % 1024:
        raise argparse.ArgumentTypeError(f"{text} is no multiple of 1K up to 1M")
    return size


def measure(name):
    with contextlib.ExitStack() as stack:
        sides = list(SIDES) * OPTIONS.processes
        servers = [started(name, side, stack) for side in sides]
        _, request, _, held = SERVERS[name]
        paths = [f"{MADE}/request", f"{MADE}/held"]
        for path, text in zip(paths, (request(), held())):
            with open(path, "w") as f:
                f.write(text)
        rounds = WINDOWS["5 s"][1] if OPTIONS.starting else WARM + OPTIONS.rounds
        words = ["taskset", "-c", str(OPTIONS.load_core), built("small_load"), *paths, str(OPTIONS.connections), "10", str(rounds)]
        said = subprocess.run([*words, *servers], check=True, stdout=subprocess.PIPE, text=True).stdout
    rounds = [[tuple(map(float, word.split("/"))) for word in line.split()] for line in said.splitlines()]
    print(f"{name}, {OPTIONS.connections} connections: {price(rounds[WARM:], sides, 'plain') / 1e3:.2f} us an answer")
    for side in SIDES:
        said = f"    {side:8}"
        for window, (begin, end) in (WINDOWS if OPTIONS.starting else {"": (WARM, None)}).items():
            part = rounds[begin:end]
            parts = [part] if OPTIONS.starting else [[row] for row in part]
            plain = [price(p, sides, "plain") for p in parts]
            own = [statistics.median(p / price(q, range(len(sides)), i) for p, q in zip(plain, parts)) for i, s in enumerate(sides) if s == side]
            said += f" {window:>7} {statistics.mean(own):.4f}  ({min(own):.4f} to {max(own):.4f})"
        print(said, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SERVERS, default=["redis", "memcached", "nginx"])
    parser.add_argument("--size", type=size_in_bytes, default=1024, help="of an answer or an upload; touched has 64 KB (1K)")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--starting", action="store_true", help="how it goes from the second answer on, instead of --rounds")
    parser.add_argument("--processes", type=int, default=4, help="of each side (4)")
    parser.add_argument("--rounds", type=int, default=250, help="slices of each process (250)")
    parser.add_argument("--beside", nargs="+", type=further, default=[], metavar="NAME=...", help="further sides")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--uncopy", default=os.path.join(HERE, "..", "..", "target", "release", "uncopy"))
    global OPTIONS, MADE
    OPTIONS = parser.parse_args()
    SIDES.update(OPTIONS.beside)
    with tempfile.TemporaryDirectory() as MADE:
        for name in OPTIONS.only:
            try:
                measure(name)
            except FileNotFoundError as why:
                sys.exit(f"{name}: {why.filename} is not installed")
            except Failure as why:
                sys.exit(f"{name}: {why}")
            except subprocess.CalledProcessError as why:
                sys.exit(f"{name}: the load, or the compiler, ended with {why.returncode}, as it says above")


if __name__ == "__main__":
    main()
