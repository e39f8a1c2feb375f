#!/usr/bin/env python3
"""ttcp in turns (programs/ttcp.c), plain and under uncopy: what sending and receiving cost each end.

    bench/papers/ttcp.py --length 16K --buffers 9                    as in "Zero-Copy TCP in Solaris"
    bench/papers/ttcp.py --length 1M --buffers 8 --sides uncopy,rings --touch
    bench/papers/ttcp.py --pairs 4 --free                            four senders at once, on whichever core

Prints JSON. `sides` has, for each side, medians of ns of processor time for 8 KB of the sender, of the receiver, and of both with the
service, Mbit/s, and the ratios of plain to it (rate: of it to plain), medians of the turns' own. Every byte of a turn before and of one after the timing is
compared, on each side."""

import argparse
import statistics

import turns
from turns import in_turns, median, ratio

PACKET = 8192


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sides", default="uncopy", help="besides plain and plain again (uncopy); with :protect behind it, the protection of as much memory is changed for each send")
    p.add_argument("--length", type=turns.size_of, default=16384, help="of a write (16K)")
    p.add_argument("--reads", type=turns.size_of, default=65536, help="of a read (64K)")
    p.add_argument("--buffers", type=int, default=9, help="that are sent in turns (9)")
    p.add_argument("--touch", action="store_true", help="write all before it is sent, read all that was received")
    p.add_argument("--pairs", type=int, default=1, help="senders, each with a receiver, at once (1)")
    p.add_argument("--free", action="store_true", help="ends are not bound to a core each")
    p.add_argument("--congestion", default="cubic", help="congestion control of all connections (cubic)")
    p.add_argument("--turns", type=int, default=9, help="of each side (9)")
    p.add_argument("--bytes", type=turns.size_of, default=256 << 20, help="of a turn, of all senders (256M)")
    return p.parse_args()


class Pair:
    """A sender and its receiver on one side."""

    def __init__(self, o, side, way):
        first, second = (turns.cores(), turns.cores()) if o.free else turns.cores()
        made = turns.program("ttcp")
        self.receiver = side.talk([made, "r", o.reads, o.congestion], second)
        self.sender = side.talk([made, "t", o.length, o.congestion, self.receiver.line(), o.buffers, way], first)

    def begin(self, *words):
        self.sender.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.sender.process.stdin.flush()

    def end(self):
        return turns.json.loads(self.sender.line())


def measure(o):
    names = ["plain", "again", *o.sides.split(",")]
    with turns.contextlib.ExitStack() as stack:
        sides, pairs = {}, {}
        for name in names:
            which, _, way = name.partition(":")
            sides[name] = turns.Side(which)
            stack.callback(sides[name].end)
            pairs[name] = [Pair(o, sides[name], way or "send") for _ in range(o.pairs)]

        def turn(name, size, touch, compare):
            before = sides[name].service_cpu()
            [pair.begin(size // o.pairs, int(touch), int(compare)) for pair in pairs[name]]
            said = [pair.end() for pair in pairs[name]]
            found = {key: sum(s[key] for s in said) for key in ("bytes", "sender", "receiver")} | {"control": said[0]["control"]}
            return found | {"wall": max(s["wall"] for s in said), "service": sides[name].service_cpu() - before}

        for compare_touched in (False, True):
            in_turns(names, 0, lambda name: turn(name, 32 << 20, compare_touched, True))
        found = in_turns(names, o.turns, lambda name: turn(name, o.bytes, o.touch, False), warm=2)
        in_turns(names, 0, lambda name: turn(name, 32 << 20, o.touch, True))
        turns.alike(found, o.congestion)

    keys = {
        "sender": lambda t: t["sender"] / t["bytes"] * PACKET,
        "receiver": lambda t: t["receiver"] / t["bytes"] * PACKET,
        "both": lambda t: (t["sender"] + t["receiver"] + t["service"]) / t["bytes"] * PACKET,
        "wall": lambda t: t["wall"] / t["bytes"],
    }
    rows = {}
    for name in names:
        row = {f"{key}_ns": round(median(found, name, keys[key]), 1) for key in ("sender", "receiver", "both")}
        row["mbit_s"] = round(statistics.median(t["bytes"] * 8e3 / t["wall"] for t in found[name]), 1)
        for key, take in keys.items():
            row["rate_ratio" if key == "wall" else f"{key}_ratio"] = round(ratio(found, name, take), 3)
        rows[name] = row
    return {"bench": "ttcp", "length": o.length, "buffers": o.buffers, "pairs": o.pairs, "turns": o.turns, "sides": rows}


if __name__ == "__main__":
    turns.main(lambda: measure(arguments()))
