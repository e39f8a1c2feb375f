#!/usr/bin/env python3
"""Icecast from the network to the network (zIO, table 3): what it costs the server to hand a byte of a live stream to a listener.

    bench/papers/icecast.py --listeners 16

A source and its listeners are one program (programs/cast.c), which sends as fast as the slowest listener reads and compares each byte. Prints JSON: for each side
processor time of the server (its helper threads and the service counted) and of both ends for a MB that a listener got, and the ratios of plain to it.
How many listeners a processor could serve at a given rate is the inverse of the first. (A stored file: servers.py icecast-file.)"""

import argparse

import servers
import turns
from turns import in_turns, median, ratio


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sides", default="uncopy,rings", help="besides plain and plain again (uncopy,rings)")
    p.add_argument("--listeners", type=int, default=16, help="(16)")
    p.add_argument("--congestion", default="cubic", help="congestion control of all connections, as the kernel's default (cubic)")
    p.add_argument("--turns", type=int, default=9, help="of each side (9)")
    p.add_argument("--bytes", type=turns.size_of, default=16 << 20, help="of the stream in a turn (16M)")
    return p.parse_args()


def measure(o):
    names = ["plain", "again", *o.sides.split(",")]
    first, second = turns.cores()
    icecasts, casts = {}, {}
    with turns.congestion(o.congestion) as control, turns.sides(names, user=servers.user_of("icecast")) as sides:
        for name, side in sides.items():
            port = turns.free_port()
            icecasts[name] = side.start(servers.icecast(side, port, 64 << 20), first)
            turns.wait_port(port, icecasts[name], side)
            casts[name] = side.talk([turns.program("cast"), port, o.listeners, control], second)

        def turn(name, size=o.bytes):
            cpu = turns.cpu(icecasts[name].pid) + sides[name].service_cpu()
            said = casts[name].ask(size)
            return said | {"server": turns.cpu(icecasts[name].pid) + sides[name].service_cpu() - cpu}

        found = in_turns(names, o.turns, turn)
    keys = {"rate": lambda t: t["wall"] / t["bytes"], "cpu": lambda t: t["server"] / t["bytes"], "both": lambda t: (t["server"] + t["cpu"]) / t["bytes"]}
    shown = {}
    for name in names:
        shown[name] = {f"{key}_us": round(median(found, name, keys[key]) * (1 << 20) / 1e3, 1) for key in ("cpu", "both")}
        shown[name] |= {f"{key}_ratio": round(ratio(found, name, take), 3) for key, take in keys.items()}
    return {"bench": "icecast", "listeners": o.listeners, "sides": shown}


if __name__ == "__main__":
    turns.main(lambda: measure(arguments()))
