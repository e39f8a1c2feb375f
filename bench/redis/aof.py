#!/usr/bin/env python3
"""redis with an append-only file: plainly, plainly once more (the noise), and under `uncopy run --log`, in turns.

    bench/redis/aof.py --fsync always --size 4096 --clients 1
    bench/redis/aof.py --fsync everysec --size 65536 --clients 50

Prints SETs a second and the processor time of a SET (the server's with its children, and that of the
log's service), each side's median and how they compare. The files lie in --dir, the log beside them.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from machine import answers  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid):
    """Seconds of a process, with children that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(") ", 1)[1].split()
    except OSError:
        return 0.0
    return sum(int(n) for n in fields[11:15]) / TICKS


def services():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and words[1] == b"__log-service":
            yield int(pid)


def turn(args, side, port):
    directory = tempfile.mkdtemp(dir=args.dir)
    server = ["redis-server", "--port", str(port), "--dir", directory, "--save", "", "--appendonly", "yes",
              "--appendfsync", args.fsync, "--auto-aof-rewrite-percentage", "0", "--logfile", "redis.log"]
    if side == "log":
        server = [args.uncopy, "run", f"--log={args.dir}/log", *args.option, "--", *server]
    process = subprocess.Popen(server)
    try:
        if not answers(port):
            raise SystemExit("redis does not answer")
        bench = ["redis-benchmark", "-p", str(port), "-t", "set", "-d", str(args.size), "-c", str(args.clients),
                 "-r", "10000", "--csv"]
        # (The first SETs make the log, and the file grows into its life.)
        subprocess.run([*bench, "-n", str(max(args.clients, 500))], check=True, capture_output=True)
        time.sleep(2 if side == "log" else 0.5)
        subprocess.run([*bench, "-n", str(max(args.clients, 500))], check=True, capture_output=True)
        before = cpu(process.pid) + sum(map(cpu, services()))
        begun = time.monotonic()
        subprocess.run([*bench, "-n", str(args.requests)], check=True, capture_output=True)
        took = time.monotonic() - begun
        used = cpu(process.pid) + sum(map(cpu, services())) - before
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory)
    return args.requests / took, used / args.requests * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uncopy", default="target/release/uncopy")
    parser.add_argument("--dir", default=".", help="where the files and the log are [default: here]")
    parser.add_argument("--fsync", choices=["always", "everysec"], default="always")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--option", action="append", default=[], help="of `uncopy run`, for the side with the log")
    args = parser.parse_args()
    args.dir = os.path.abspath(args.dir)
    args.uncopy = os.path.abspath(args.uncopy)
    sides = ["plain", "again", "log"]
    seen = {side: [] for side in sides}
    for n in range(args.turns):
        for at, side in enumerate(sides):
            seen[side].append(turn(args, side, 21000 + n * 10 + at))
    if args.json:
        middles = {side: [statistics.median(s[i] for s in seen[side]) for i in (0, 1)] for side in sides}
        found = {side: {"per_s": rate, "cpu_us": used} for side, (rate, used) in middles.items()}
        print(json.dumps({"fsync": args.fsync, "size": args.size, "clients": args.clients, "sides": found}))
        return
    first = [statistics.median(s[i] for s in seen["plain"]) for i in (0, 1)]
    print(f"{args.fsync}, {args.size} B, {args.clients} clients, {args.requests} SETs, medians of {args.turns}")
    for side in sides:
        rate, used = (statistics.median(s[i] for s in seen[side]) for i in (0, 1))
        print(f"{side:6} {rate:9.0f} SETs/s ({rate / first[0]:.2f})  {used:7.1f} us of processor ({used / first[1]:.2f})")


if __name__ == "__main__":
    main()
