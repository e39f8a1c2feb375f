#!/usr/bin/env python3
"""What uncopy costs servers that gain nothing, to a few tenths of a percent: those with small answers, and one that touches all that it copies.

Fresh processes differ by a percent for as long as they live, and the machine's speed changes within seconds. So several processes of each side live on one core
at once, and one load drives them in slices of 10 ms in turns (small_load.c, which compares every answer). A process's figure is the median over the rounds of
the plain ones' processor time for an answer, in that round, over its own: above 1 is a gain. A side's figure is the mean of its processes', with the smallest and the largest; those
of plain are the noise.

    bench/apps/small.py                              redis, memcached and nginx with 1 KB and 64 connections: three minutes
    bench/apps/small.py --only touched --connections 16 --processes 12    messages of 64 KB, copied once, each page of the copy written (touched.c)
    bench/apps/small.py --only nginx --processes 5 --rounds 400
    bench/apps/small.py --uncopy OTHER/uncopy        another build, whose figures can be compared with this one's

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

from harness import HERE, ended
from loads import Failure, connect, free_port

SIDES = {
    "plain": None,
    "placed": ["--elide=no", "--lend=no", "--copies=libc"],
    "no el.": ["--elide=no", "--lend=no"],
    "uncopy": [],
}
# What is asked for; no byte of it is 0, or means something in a protocol.
BODY = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=1024))


def redis(port, directory):
    return ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]


def memcached(port, directory):
    return ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-t", "1"]


def nginx(port, directory):
    with open(f"{directory}/k", "w") as f:
        f.write(BODY)
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


# Command, request, what is told to it before.
SERVERS = {
    "redis": (redis, "GET k\r\n", f"SET k {BODY}\r\n"),
    "memcached": (memcached, "get k\r\n", f"set k 0 0 {len(BODY)}\r\n{BODY}\r\n"),
    "nginx": (nginx, "GET /k HTTP/1.1\r\nHost: bench\r\n\r\n", None),
    "touched": (touched, BODY * 64, None),
}


def started(name, side, stack):
    """A server that answers; PID:PORT."""
    command, _, told = SERVERS[name]
    port, directory = free_port(), stack.enter_context(tempfile.TemporaryDirectory(prefix="uncopy-small-"))
    words = command(port, directory)
    if SIDES[side] is not None:
        words = [OPTIONS.uncopy, "run", *SIDES[side], "--", *words]
    with open(f"{directory}/said", "wb") as said:
        words = ["taskset", "-c", str(OPTIONS.server_core), *words]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    stack.callback(ended, process)
    with connect(port) as s:
        if told:
            s.sendall(told.encode())
            s.recv(100)
        else:
            s.shutdown(socket.SHUT_WR)
    return f"{process.pid}:{port}"


def measure(name):
    with contextlib.ExitStack() as stack:
        sides = list(SIDES) * OPTIONS.processes
        servers = [started(name, side, stack) for side in sides]
        words = ["taskset", "-c", str(OPTIONS.load_core), built("small_load"), SERVERS[name][1], BODY, str(OPTIONS.connections), "10", str(OPTIONS.rounds)]
        said = subprocess.run([*words, *servers], check=True, stdout=subprocess.PIPE, text=True).stdout
    rounds = [[float(word) for word in line.split()] for line in said.splitlines()]
    plain = [statistics.mean(took for side, took in zip(sides, row) if side == "plain") for row in rounds]
    print(f"{name}, {OPTIONS.connections} connections: {statistics.median(plain) / 1e3:.2f} us an answer")
    for side in SIDES:
        own = [statistics.median(p / row[i] for p, row in zip(plain, rounds)) for i, s in enumerate(sides) if s == side]
        print(f"    {side:7} {statistics.mean(own):.4f}  ({min(own):.4f} to {max(own):.4f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SERVERS, default=["redis", "memcached", "nginx"])
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--processes", type=int, default=4, help="of each side (4)")
    parser.add_argument("--rounds", type=int, default=250, help="slices of each process (250)")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--uncopy", default=os.path.join(HERE, "..", "..", "target", "release", "uncopy"))
    global OPTIONS, MADE
    OPTIONS = parser.parse_args()
    with tempfile.TemporaryDirectory() as MADE:
        for name in OPTIONS.only:
            try:
                measure(name)
            except FileNotFoundError as why:
                sys.exit(f"{name}: {why.filename} is not installed")
            except Failure as why:
                sys.exit(f"{name}: {why}")
            except subprocess.CalledProcessError as why:
                sys.exit(f"{name}: the load, or the compiler, ended with {why.returncode}, as it says above")  # its words are 64 KB


if __name__ == "__main__":
    main()
