#!/usr/bin/env python3
"""What it brings to let the answer wait for a sync, and not the program: `uncopy run --log --log-sync=answers` beside plain and `--log`.

    python3 bench/experiments/answers.py [--dir target] [--servers redis,each] [--sizes 64,4096] [--clients 50] [--seconds 3] [--turns 3]

Two servers, in turns: redis with `appendfsync always`, which syncs once for all requests that it found at once (`everysec`
beside it: what no sync at all would leave); and `each` (tests/log/answers.py --serve), of one thread, that appends, syncs and
answers one request after the other. Plain runs twice in each turn. Requests a second, by redis-benchmark, medians; with the
least, the median and the greatest time that a sync of 100 appended bytes took between them."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from machine import answers  # noqa: E402

SERVE = os.path.join(HERE, "../../tests/log/answers.py")


def turn(args, server, side, size, port):
    """Requests a second; whether answers waited."""
    directory = tempfile.mkdtemp(dir=args.dir)
    if server == "redis":
        command = ["redis-server", "--port", str(port), "--dir", directory, "--save", "", "--appendonly", "yes", "--appendfsync",
                   "everysec" if side == "everysec" else "always", "--auto-aof-rewrite-percentage", "0", "--logfile", "redis.log"]  # fmt: skip
    else:
        command = [sys.executable, "-S", SERVE, "--serve", str(port), os.path.join(directory, "journal")]
    run = [args.uncopy, "run", f"--log={args.dir}/log"]
    if side == "log":
        command = [*run, "--", *command]
    if side == "answers":
        command = [*run, "--log-sync=answers", "--", *command]
    process = subprocess.Popen(command)
    try:
        if not answers(port):
            raise SystemExit("the server does not answer")
        if side == "answers":
            status = subprocess.run([args.uncopy, "log", "status", f"{args.dir}/log"], capture_output=True, text=True, check=False).stdout
            if "answers wait for syncs" not in status:
                raise SystemExit(f"answers do not wait: {status}")
        bench = ["redis-benchmark", "-p", str(port), "-t", "set", "-d", str(size), "-c", str(args.clients), "-r", "10000", "--csv", "-n"]
        took, requests = 1, 0
        # (Files grow into their lives; then as many as take long enough.)
        for requests in (500, 2000, None):
            requests = requests or max(500, int(2000 / took * args.seconds))
            begun = time.monotonic()
            subprocess.run([*bench, str(requests)], check=True, capture_output=True)
            took = time.monotonic() - begun
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory)
    return requests / took


def sync_takes(directory):
    """us of an append's fdatasync: median."""
    took = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for _ in range(50):
            os.write(file.fileno(), b"x" * 100)
            begun = time.monotonic()
            os.fdatasync(file.fileno())
            took.append(time.monotonic() - begun)
    return statistics.median(took) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="target")
    parser.add_argument("--uncopy", default="target/release/uncopy")
    parser.add_argument("--servers", default="redis,each")
    parser.add_argument("--sizes", default="64,4096")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    args.dir, args.uncopy, port = os.path.abspath(args.dir), os.path.abspath(args.uncopy), 23000
    for server in args.servers.split(","):
        sides = ["plain", "log", "answers", *(["everysec"] if server == "redis" else []), "plain again"]
        for size in args.sizes.split(","):
            seen, syncs = {side: [] for side in sides}, []
            for _ in range(args.turns):
                for side in sides:
                    port += 1
                    syncs.append(sync_takes(args.dir))
                    seen[side].append(turn(args, server, side, int(size), port))
            first = statistics.median(seen["plain"])
            shown = ", ".join(
                f"{side} {statistics.median(rates):.0f} ({statistics.median(rates) / first:.2f}; {' '.join(f'{r:.0f}' for r in rates)})"
                for side, rates in seen.items()
            )
            syncs.sort()
            print(f"{server} {size} B: {shown}; a sync {syncs[0]:.0f}, {statistics.median(syncs):.0f}, {syncs[-1]:.0f} us", flush=True)


if __name__ == "__main__":
    main()
