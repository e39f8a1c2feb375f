#!/usr/bin/env python3
"""A server of one file (programs/web.c), by the methods of zIO's figure 14, over its threads: what an answer costs, and TLB shootdowns.

    bench/papers/web.py --size 512K --piece 64K --threads 1,2,4
    bench/papers/web.py --methods prefault --piece 32K --sides uncopy

A column is METHOD, or METHOD:SIDE, which runs so (`kept`: `uncopy run --file-memory`). Each thread of the server has some connections; with one
thread the server has a core and the load the other, with more they share both. Prints JSON: for each number of threads and column the
answers a second, processor time of the server for each in us (its helper threads and, over rings, the service counted), shootdowns for each (of the whole
machine), the ratios of the first column to it (rate: of it to the first). Every byte of all answers of a turn before and of one after the timing is compared."""

import argparse
import os
import random
import statistics

import turns
from turns import in_turns, median, ratio

COLUMNS = "read,read:again,mmap,sendfile,mmapsendfile,read:kept,read:uncopy"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--columns", default=COLUMNS, help=f"methods and sides ({COLUMNS})")
    p.add_argument("--size", type=turns.size_of, default=512 << 10, help="of the file (512K)")
    p.add_argument("--piece", type=turns.size_of, default=64 << 10, help="that is read and sent at a time (64K)")
    p.add_argument("--threads", default="1,2,4", help="numbers of threads (1,2,4)")
    p.add_argument("--connections", type=int, default=4, help="for each thread, one request under way on each (4)")
    p.add_argument("--congestion", default="cubic", help="congestion control of all connections (cubic)")
    p.add_argument("--turns", type=int, default=15, help="of each column (15)")
    p.add_argument("--seconds", type=float, default=0.1, help="of a turn (0.1)")
    return p.parse_args()


def measure(o):
    columns = o.columns.split(",")
    return {"bench": "web", "size": o.size, "piece": o.piece, "rows": [row(o, columns, int(n)) for n in o.threads.split(",")]}


def row(o, columns, threads):
    first, second = turns.cores()
    places = (first, second) if threads == 1 else ((first, second), (first, second))
    with turns.contextlib.ExitStack() as stack:
        loads, servers, sides = {}, {}, {}
        for column in columns:
            method, _, name = column.partition(":")
            side = sides[column] = turns.Side(name or "plain")
            stack.callback(side.end)
            paths = [os.path.join(side.directory, part) for part in ("file", "request", "done")]
            content = random.Random(o.size).randbytes(o.size)
            receives = method == "take"
            for path, what in zip(paths, (content, content if receives else b"please send it.\n", b"has been received"[:16])):
                with open(path, "wb") as f:
                    f.write(what)
            made = turns.program("web")
            servers[column] = side.talk([made, paths[0], method, o.piece, threads, o.congestion], places[0])
            port = servers[column].line()
            answer = paths[2] if receives else paths[0]
            loads[column] = side.talk([turns.program("load"), port, threads * o.connections, paths[1], answer, "keep", "raw", o.congestion], places[1])

        def turn(column, seconds=o.seconds, compare=0):
            cpu = servers[column].cpu() + sides[column].service_cpu()
            shot = turns.shootdowns()
            said = loads[column].ask(int(seconds * 1e9), compare)
            said["server"] = servers[column].cpu() + sides[column].service_cpu() - cpu
            said["shot"] = turns.shootdowns() - shot
            return said

        # (A file that was changed is left alone for a second before it is kept.)
        turns.time.sleep(1.1)
        in_turns(columns, 0, lambda c: turn(c, 0.1, 1), warm=2)
        found = in_turns(columns, o.turns, turn, warm=3)
        in_turns(columns, 0, lambda c: turn(c, 0.05, 1))
        turns.alike(found, o.congestion)
    shown = {}
    for c in columns:
        shown[c] = {
            "per_s": round(statistics.median(t["answers"] * 1e9 / t["wall"] for t in found[c]), 1),
            "cpu_us": round(median(found, c, lambda t: t["server"] / t["answers"] / 1e3), 2),
            "shootdowns": round(sum(t["shot"] for t in found[c]) / sum(t["answers"] for t in found[c]), 3),
            "rate_ratio": round(ratio(found, c, lambda t: t["wall"] / t["answers"], columns[0]), 3),
            "cpu_ratio": round(ratio(found, c, lambda t: t["server"] / t["answers"], columns[0]), 3),
        }
    return {"threads": threads, "columns": shown}


if __name__ == "__main__":
    turns.main(lambda: measure(arguments()))
