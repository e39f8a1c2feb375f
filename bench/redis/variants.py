#!/usr/bin/env python3
"""Which part of uncopy gains or loses under Redis: several servers, each with its own options, side by side in turns.

    bench/redis/variants.py --size 64K --ops set,get all= no-elision=--elide=no always=--backoff=no
    bench/redis/variants.py --size 16K --ops set --aof on all= large="--threshold=1M --stats=no"

A variant is NAME=OPTIONS for `uncopy run`; the plain program is always among them, and twice (`plain`, `plain again`):
what its second server's ratio differs from 1 is noise. Each restart makes new servers; in each turn every server runs each
operation once, in changing order; the first turns (--warm) do not count. Printed is the server's CPU a request over all
its threads, and the median, over the turns, of plain's CPU over the variant's: above 1 is a gain. --profile shows,
from perf (software clock), where the last variant spends more than plain, in us a request.
"""

import argparse
import contextlib
import os
import re
import shlex
import statistics
import subprocess
import sys

import redis


def cpu_us(pid):
    """CPU of all threads that are alive, exact (schedstat counts ns)."""
    tasks = f"/proc/{pid}/task"
    return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks)) / 1000


class Variant:
    def __init__(self, name, options):
        self.name = name
        self.options = options
        self.cpu = {}

    def server(self, base, stack):
        options = argparse.Namespace(**vars(base))
        options.uncopy_option = self.options or []
        mode = "plain" if self.options is None else "uncopy"
        server = stack.enter_context(redis.measured_server(options, mode, base.aof))
        redis.populate(server, base.size, 1)
        server.give_back_file()
        return server

    def turn(self, base, server, op, counts):
        before = cpu_us(server.process.pid)
        redis.benchmark(base, server, op, base.size, base.requests)
        used = (cpu_us(server.process.pid) - before) / base.requests
        server.give_back_file()
        if counts:
            self.cpu.setdefault(op, []).append(used)


class Profile:
    """perf over one server; samples a symbol."""

    RATE = 4000

    def __init__(self, pid):
        self.data = f"/tmp/uncopy-variants.{os.getpid()}.{pid}.perf"
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(self.RATE), "-p", str(pid), "-o", self.data]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def symbols(self):
        self.process.send_signal(2)
        self.process.wait()
        command = ["perf", "report", "-i", self.data, "--no-children", "--sort", "sym", "--stdio", "-n"]
        text = subprocess.run(command, capture_output=True, text=True).stdout
        os.unlink(self.data)
        lines = re.findall(r"^\s+[\d.]+%\s+(\d+)\s+(.*\S)", text, re.M)
        return {symbol: int(samples) * 1e6 / self.RATE for samples, symbol in lines}


def one_restart(base, variants, profiles):
    with contextlib.ExitStack() as stack:
        servers = [(v, v.server(base, stack)) for v in variants]
        watched = {}
        for turn in range(base.warm + base.turns):
            if turn == base.warm and profiles is not None:
                watched = {v: Profile(s.process.pid) for v, s in servers if v in profiles}
            for op in base.ops:
                for v, s in servers if turn % 2 == 0 else servers[::-1]:
                    v.turn(base, s, op, turn >= base.warm)
        for v, profile in watched.items():
            for symbol, us in profile.symbols().items():
                profiles[v][symbol] = profiles[v].get(symbol, 0) + us
        for _, s in servers:
            s.shutdown()


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("variants", nargs="*", default=["uncopy="], metavar="NAME=OPTIONS", help="options of `uncopy run`")
    p.add_argument("--size", type=redis.size_of, default=65536, help="of the values (64K)")
    p.add_argument("--ops", type=lambda text: text.split(","), default=["set", "get"], help="in this order (set,get)")
    p.add_argument("--aof", choices=("on", "off"), default="off", help="append-only file (off)")
    p.add_argument("--requests", type=int, help="for each operation in a turn (64 MB of values)")
    p.add_argument("--turns", type=int, default=12, help="that count, for each restart (12)")
    p.add_argument("--warm", type=int, default=3, help="that do not count (3)")
    p.add_argument("--restarts", type=int, default=2, help="of all servers (2)")
    p.add_argument("--clients", type=int, default=16, help="connections of redis-benchmark (16)")
    p.add_argument("--each", action="store_true", help="the ratio of each turn, median of the restarts: how learning goes on")
    p.add_argument("--profile", action="store_true", help="where the last variant differs from plain (needs perf)")
    p.add_argument("--dir", help="for the servers' files (/dev/shm)")
    p.add_argument("--uncopy", help="the command (target/release/uncopy)")
    given = p.parse_args()
    given.aof = given.aof == "on"
    given.requests = given.requests or max(64, (64 << 20) // given.size)
    # (The options that redis.py's own functions want to know besides.)
    more = ["--dir", given.dir] if given.dir else []
    sys.argv = ["redis.py", "--no-verify", *more, *(["--uncopy", given.uncopy] if given.uncopy else [])]
    base = redis.arguments()
    for name, value in vars(given).items():
        if name not in ("dir", "uncopy"):
            setattr(base, name, value)
    variants = [Variant("plain", None), Variant("plain again", None)]
    for text in given.variants:
        name, sign, options = text.partition("=")
        if not sign:
            p.error(f"{text!r}: a variant is NAME=OPTIONS")
        variants.append(Variant(name, shlex.split(options)))
    return base, variants


def main():
    base, variants = arguments()
    redis.find(base)
    redis.warm(base)
    plain, last = variants[0], variants[-1]
    profiles = {plain: {}, last: {}} if base.profile else None
    for restart in range(base.restarts):
        one_restart(base, variants if restart % 2 == 0 else variants[::-1], profiles)
    for op in base.ops:
        for v in variants:
            cpu = v.cpu[op]
            ratios = sorted(p / x for p, x in zip(plain.cpu[op], cpu))
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            median = statistics.median(ratios)
            print(f"{op:4} {v.name:14} {statistics.median(cpu):9.2f} us  {median:6.3f} ({low:.2f} to {high:.2f})")
            if base.each:
                by_turn = [[p / x for p, x in list(zip(plain.cpu[op], cpu))[t :: base.turns]] for t in range(base.turns)]
                print("     " + " ".join(f"{statistics.median(r):.2f}" for r in by_turn))
    if profiles:
        requests = base.requests * base.turns * base.restarts * len(base.ops)
        a, b = profiles[plain], profiles[last]
        print(f"us a request in {last.name!r} more than in plain, and less:")
        more = {symbol: (b.get(symbol, 0) - a.get(symbol, 0)) / requests for symbol in a.keys() | b.keys()}
        order = sorted(more, key=more.get, reverse=True)
        for symbol in order[:20] + order[-8:]:
            print(f"  {more[symbol]:7.2f}  {symbol}")
        print(f"  {sum(more.values()):7.2f}  in all")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (redis.Failure, redis.ReplyError, OSError, subprocess.SubprocessError) as e:
        print(f"variants.py: {e}", file=sys.stderr)
        sys.exit(1)
