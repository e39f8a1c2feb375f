#!/usr/bin/env python3
"""The share of processor time that copies take, by `perf record` with the kernel's own clock (no hardware counters are needed).

    bench/papers/share.py ttcp --mtu 1500,4352,9180,65536       Solaris, figure 1: sender and receiver of ttcp, loopback with that MTU
    bench/papers/share.py redis --sizes 64K,512K                zIO, figure 1: redis SET with an append-only file
    bench/papers/share.py redis --side uncopy                   the same under uncopy

Prints JSON. `kernel`: in the kernel's copies between user and kernel and in checksums; `program`: in libc's copies (or uncopy's), share of all
samples of the programs (ttcp: of both; redis: of the server)."""

import argparse
import json
import os
import re
import subprocess
import sys
import time

import turns
from turns import Failure

# Functions that copy or sum up bytes, by their names.
KERNEL = re.compile(r"^(rep_movs|_*copy_(user|to|from|page|folio)|.*copy_(to|from)_iter|memcpy_(to|from)_iter|csum_|__csum_)")
PROGRAM = re.compile(r"mem(cpy|move)|uncopy_copies")
CLOCK = "cpu-clock"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("ttcp", "redis"))
    p.add_argument("--mtu", default="1500,4352,9180,65536", help="of the loopback device, in a network of its own (as root)")
    p.add_argument("--sizes", default="64K,512K", help="of redis' values (64K,512K)")
    p.add_argument("--side", default="plain", choices=("plain", "uncopy"))
    p.add_argument("--seconds", type=float, default=2.0, help="that are recorded (2)")
    p.add_argument("--in-network", type=int, help=argparse.SUPPRESS)
    return p.parse_args()


def shares(text):
    """Of `perf report --stdio --no-children -F overhead,dso,symbol`: per cent of the samples in the kernel's copies, and in the program's."""
    found = {"kernel": 0.0, "program": 0.0, "all": 0.0}
    for line in text.splitlines():
        match = re.match(r"\s*([0-9.]+)%\s+(\S+)\s+\[(.)\]\s+(\S+)", line)
        if match:
            percent, where, name = float(match[1]), match[3], match[4]
            found["all"] += percent
            if where == "k" and KERNEL.search(name):
                found["kernel"] += percent
            elif where == "." and PROGRAM.search(name):
                found["program"] += percent
    if found.pop("all") < 50:
        raise Failure("perf has no samples: is the machine's clock event refused (kernel.perf_event_paranoid)?")
    return {key: round(value, 1) for key, value in found.items()}


def recorded(pids, seconds, directory, meanwhile):
    perf = turns.installed("perf", "linux-perf")
    data = os.path.join(directory, "perf.data")
    command = [perf, "record", "-q", "-e", CLOCK, "-F", "1999", "-o", data, "-p", ",".join(map(str, pids))]
    recording = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(0.3)
    meanwhile(seconds)
    recording.terminate()
    said = recording.communicate(timeout=60)[1].decode()
    report = [perf, "report", "-i", data, "--stdio", "--no-children", "-F", "overhead,dso,symbol", "-w", "12,40,120"]
    done = subprocess.run(report, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"perf: {(said or done.stderr).strip().splitlines()[-1]}")
    return shares(done.stdout)


def ttcp(o):
    rows = []
    for mtu in map(int, o.mtu.split(",")):
        # The device's length of packets is a thing of a whole network: so it is done in one of its own.
        words = [sys.executable, __file__, "ttcp", "--side", o.side, "--seconds", o.seconds, "--in-network", mtu]
        done = subprocess.run(["unshare", "--net", *map(str, words)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(done.stderr.strip().splitlines()[-1])
        rows.append({"mtu": mtu} | json.loads(done.stdout))
    return {"bench": "share", "side": o.side, "rows": rows}


def in_network(o):
    mtu = o.in_network
    # Each packet is one of the network's, not one of up to 64 KB that nobody has to split.
    words = ["up", "mtu", str(mtu), *([] if mtu > 60000 else ["gso_max_segs", "1", "gso_max_size", str(mtu)])]
    done = subprocess.run(["ip", "link", "set", "lo", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"ip link: {done.stderr.strip()}")
    first, second = turns.cores()
    with turns.sides([o.side]) as sides:
        side = sides[o.side]
        receiver = side.talk([turns.program("ttcp"), "r", 65536, "cubic"], second)
        sender = side.talk([turns.program("ttcp"), "t", 16384, "cubic", receiver.line(), 9, "send"], first)
        before = sender.ask(32 << 20, 0, 1)
        rate = before["bytes"] / before["wall"]
        found = recorded(
            [sender.pid, receiver.pid], o.seconds, side.directory, lambda s: sender.ask(int(min(rate, 4) * 1e9 * s), 0, 0)
        )
    return found


def redis(o):
    server, load = turns.installed("redis-server", "redis-server"), turns.installed("redis-benchmark", "redis-tools")
    rows = []
    for size in map(turns.size_of, o.sizes.split(",")):
        with turns.sides([o.side]) as sides:
            side = sides[o.side]
            port = turns.free_port()
            # (The file in memory: the paper's was persistent memory. It is rewritten before it grows large.)
            directory = "/dev/shm" if os.path.isdir("/dev/shm") else side.directory
            with turns.tempfile.TemporaryDirectory(prefix="uncopy-papers-", dir=directory) as where:
                command = [server, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--dir", where]
                main = side.start([*command, "--auto-aof-rewrite-percentage", 0], turns.cores()[0])
                turns.wait_port(port, main, side)

                def drive(seconds):
                    end = time.monotonic() + seconds
                    while time.monotonic() < end:
                        words = [load, "-h", "127.0.0.1", "-p", port, "-t", "set", "-d", size, "-r", 32, "-c", 64, "-n", max(64, (64 << 20) // size), "-q"]
                        done = subprocess.run(
                            ["taskset", "-c", str(turns.cores()[1]), *map(str, words)], capture_output=True, text=True, check=False
                        )
                        if done.returncode:
                            raise Failure(f"redis-benchmark: {done.stderr.strip()[-200:]}")
                        turns.give_back(where)

                drive(1.0)
                found = recorded(turns.descendants(main.pid)[-1:], o.seconds, side.directory, drive)
        rows.append({"size": size} | found)
    return {"bench": "share", "side": o.side, "rows": rows}


def measure(o):
    if o.in_network:
        return in_network(o)
    return {"ttcp": ttcp, "redis": redis}[o.what](o)


if __name__ == "__main__":
    turns.main(lambda: measure(arguments()))
