#!/usr/bin/env python3
"""What logging by reference (zIO's ORP, paper 3.3) could save a program at most: the share of its processor time
that goes into copying appended bytes to memory that outlives it.

    bench/experiments/receiver_persistence.py [--sizes 64K,256K] [--seconds 5]

Redis with an append-only file (`everysec`) under `uncopy run --log` gets SETs from redis-benchmark, 50 clients;
perf samples the server. Shares are of all its samples. Needs redis-server, redis-benchmark and perf."""

import argparse
import os
import re
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNCOPY = os.path.join(ROOT, "target", "release", "uncopy")
PORT = 7799
# Function: what it copies here.
COPIES = {
    "uncopy_shared_copy": "appended bytes, to memory that outlives the program",
    "memmove": "the program's own copies",
    "_copy_to_iter": "the kernel's, from the socket",
}


def redis(*words):
    return subprocess.run(["redis-cli", "-p", str(PORT), *words], capture_output=True, text=True).stdout


def shares(size, seconds, directory):
    """Function: percent of the server's samples."""
    log, data = os.path.join(directory, "log"), os.path.join(directory, "perf.data")
    os.makedirs(log)
    words = ["--port", str(PORT), "--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--dir", directory]
    command = [UNCOPY, "run", f"--log={log}", "--", "redis-server", *words, "--auto-aof-rewrite-percentage", "0"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=directory)
    load = None
    try:
        for _ in range(100):
            if "PONG" in redis("ping"):
                break
            time.sleep(0.1)
        else:
            raise SystemExit("redis-server does not answer")
        words = ["-t", "set", "-d", str(size), "-n", "100000000", "-c", "50", "-r", "200", "-q"]
        load = subprocess.Popen(["redis-benchmark", "-p", str(PORT), *words], stdout=subprocess.DEVNULL)
        time.sleep(3)
        record = ["perf", "record", "-q", "-F", "999", "-o", data, "-p", str(server.pid), "--", "sleep", str(seconds)]
        subprocess.run(record, check=True, stdout=subprocess.DEVNULL)
    finally:
        if load:
            load.terminate()
            load.wait()
        redis("shutdown", "nosave")
        server.wait()
    report = ["perf", "report", "-i", data, "--stdio", "--sort", "symbol"]
    said = subprocess.run(report, check=True, capture_output=True, text=True).stdout
    found = dict.fromkeys(COPIES, 0.0)
    for share, symbol in re.findall(r"^\s*([\d.]+)%\s+\[.\] (\S+)", said, re.MULTILINE):
        for name in COPIES:
            if name in symbol:
                found[name] += float(share)
    return found


def bytes_of(text):
    return int(text[:-1]) << 10 if text.endswith("K") else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="64K,256K")
    parser.add_argument("--seconds", type=int, default=5)
    options = parser.parse_args()
    for text in options.sizes.split(","):
        with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "target")) as directory:
            for name, share in shares(bytes_of(text), options.seconds, directory).items():
                print(f"SET of {text}: {share:5.1f}% {COPIES[name]} ({name})", flush=True)


if __name__ == "__main__":
    main()
