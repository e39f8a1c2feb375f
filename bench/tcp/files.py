#!/usr/bin/env python3
"""A file that a server sends again and again by sendfile, to a client that does not look at it, and to one that does: processor time of both
ends for a message, over Linux' loopback (twice), under `uncopy run --tcp --file-memory=64M` (the file is kept, and settles:
docs/inside/blocks.md), without --file-memory, and with another build of uncopy (`--before`), sides in turns, medians.

    bench/tcp/files.py
    bench/tcp/files.py --before OTHER/target/release/uncopy --sizes 1M --turns 7"""

import argparse
import os
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KEEP = "--file-memory=64M"


def size(text):
    return int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def turn(command, tool, file, bytes_, count, part, look, number):
    """Microseconds of the server, of the client, of both, and the rate."""
    port = str(free_port())
    environment = {**os.environ, "UNCOPY_TCP_SERVICE": f"uncopy-files-{os.getpid()}-{number}"}
    begin = lambda *words: subprocess.Popen([*command, tool, *map(str, words)], stdout=subprocess.PIPE, text=True, env=environment)
    server = begin("serve", file, port)
    client = begin("get", port, bytes_, count, part, look)
    text = client.communicate(timeout=120)[0] + server.communicate(timeout=120)[0]
    if client.returncode or server.returncode:
        raise SystemExit(f"{command} failed: {text}")
    found = lambda name: float(re.search(rf"^{name} ([0-9.]+)", text, re.M)[1])
    words = re.search(r"^sum (\w+)", text, re.M)[1]
    return (found("server"), found("client"), found("server") + found("client"), found("rate")), words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uncopy", default=HERE.parents[1] / "target/release/uncopy")
    parser.add_argument("--before", help="another build")
    parser.add_argument("--sizes", default="256K,1M,4M")
    parser.add_argument("--parts", default="1G", help="bytes that the client receives at once")
    parser.add_argument("--looks", default="0,1")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--count", type=int, default=1500)
    options = parser.parse_args()
    sides = {"plain": [], "again": []}
    if options.before:
        sides["before"] = [options.before, "run", "--tcp", KEEP, "--"]
    sides["not kept"] = [options.uncopy, "run", "--tcp", "--"]
    sides["kept"] = [options.uncopy, "run", "--tcp", KEEP, "--"]
    number = 0
    with tempfile.TemporaryDirectory(prefix="uncopy-files-") as directory:
        tool, file = directory + "/tool", directory + "/file"
        subprocess.run(["cc", "-O2", "-o", tool, HERE / "files.c"], check=True)
        print("processor time of a message, us: server + client = both; messages a second; both over plain")
        for bytes_ in map(size, options.sizes.split(",")):
            with open(file, "wb") as f:
                f.write(os.urandom(bytes_))
            for part in options.parts.split(","):
                for look in options.looks.split(","):
                    all_, sums = {side: [] for side in sides}, set()
                    for _ in range(options.turns):
                        for side, command in sides.items():
                            number += 1
                            taken, words = turn(command, tool, file, bytes_, options.count, min(size(part) if part != "1G" else bytes_, bytes_), look, number)
                            all_[side].append(taken)
                            sums.add(words)
                    assert len(sums) == 1, f"different bytes: {sums}"
                    print(f"{bytes_ >> 10} KB, by {part}, {'looked at' if look == '1' else 'not looked at'}")
                    middle = {side: [statistics.median(column) for column in zip(*rows)] for side, rows in all_.items()}
                    for side, (server, client, both, rate) in middle.items():
                        print(f"  {side:9} {server:7.1f} + {client:7.1f} = {both:7.1f}  {rate:8.0f}/s  {both / middle['plain'][2]:5.2f}", flush=True)


if __name__ == "__main__":
    main()
