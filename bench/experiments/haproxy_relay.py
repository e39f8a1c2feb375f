#!/usr/bin/env python3
"""What relaying by splice could gain under haproxy: its own splice mode, held to the pieces of its copying mode.

A relay under an unmodified haproxy would keep haproxy's pieces (one buffer each) and replace its recv and send by splice through a pipe;
`tune.pipesize` gives its own splice mode the same pieces. Copying and splicing take turns in one run; medians of the CPU per answer
(schedstat), copying over splicing.

    bench/experiments/haproxy_relay.py [--sizes 64K,1M] [--rounds 3] [--turns 15]     (needs Debian's haproxy)"""

import contextlib
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "apps"))
import harness  # noqa: E402
from loads import Download  # noqa: E402
from machine import free_port  # noqa: E402

# name: bytes of a buffer, of a pipe (None: no splicing)
MODES = {
    "copying, 16K buffers": (16384, None),
    "splicing, 16K pipes": (16384, 16384),
    "splicing, pipes as they come": (16384, 0),
    "copying, 64K buffers": (65536, None),
    "splicing, 64K pipes": (65536, 65536),
}


def haproxy(buffer, pipe):
    def start(port, directory):
        origin = free_port()
        conf = os.path.join(directory, "haproxy.cfg")
        splice = "" if pipe is None else "  option splice-response\n"
        size = f"  tune.pipesize {pipe}\n" if pipe else ""
        with open(conf, "w") as f:
            f.write(
                f"global\n  nbthread 1\n  maxconn 64\n  tune.bufsize {buffer}\n  tune.recv_enough {buffer}\n{size}"
                "defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n"
                f"{splice}listen proxy\n  bind 127.0.0.1:{port}\n  server origin 127.0.0.1:{origin}\n"
            )
        servers = os.path.join(HERE, "..", "apps", "servers", "origin.py")
        helper = ["taskset", "-c", str(harness.OPTIONS.load_core), sys.executable, servers, str(origin)]
        return ["haproxy", "-db", "-f", conf], helper

    return start


def main():
    harness.OPTIONS = options = harness.arguments(__doc__)
    os.sched_setaffinity(0, {options.load_core})
    held = harness.memory.hold(2 << 30)
    servers = {name: harness.Server("relay", haproxy(*mode), Download, ("haproxy",)) for name, mode in MODES.items()}
    for size in options.sizes.split(","):
        took = {name: [] for name in MODES}
        for _ in range(options.rounds):
            with contextlib.ExitStack() as stack:
                running = {name: harness.Process(server, "plain", harness.size_of(size), stack) for name, server in servers.items()}
                for p in running.values():
                    p.load.verify()
                    p.load.connections(4)
                    p.run(options.warm)
                for _ in range(options.turns):
                    for name, p in running.items():
                        took[name].append(p.run(options.turn).cpu)
        base = took["copying, 16K buffers"]
        for name, all in took.items():
            gain = statistics.median(b / a for a, b in zip(all, base, strict=True))
            print(f"{size:>5} {name:30} {statistics.median(all):9.1f} us  {gain:5.2f}", flush=True)
    del held


main()
