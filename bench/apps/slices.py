#!/usr/bin/env python3
"""One server, slice by slice: processor time of a request on each side, and what uncopy counted meanwhile.

Medians hide what comes and goes: what is learned at first, experiments, and phases in which it is slower. A side is one process for all of it.

    bench/apps/slices.py "uvicorn upload" --phases 1:4                        one connection for four seconds
    bench/apps/slices.py "aiohttp, file" --phases 1:2,4:2,64:8 --slice 0.5    then four, then sixty-four
    bench/apps/slices.py "asyncio" --phases 4:4 --counters faults moved_pages populated_pages
    UNCOPY_CONTROLLER=always bench/apps/slices.py "uvicorn upload" --phases 1:2 --slice 0.06"""

import argparse
import contextlib
import json
import os
import subprocess
import sys

import harness
from all import SERVERS
from loads import Failure, Wrong

# With `trials` and `trials_won`: how many experiments there were, and how many changed something.
COUNTERS = ["elided_copies", "faults", "moved_pages", "populated_pages", "backoff_copies", "trials", "trials_won"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("server", help="its name, or a part of it (as all.py --only)")
    p.add_argument("--phases", default="4:4", metavar="CONNECTIONS:SECONDS,...", help="(4:4)")
    p.add_argument("--slice", type=float, default=0.2, metavar="SECONDS", help="each side's part of a line (0.2)")
    p.add_argument("--size", type=harness.size_of, default=1 << 20, help="(1M)")
    p.add_argument("--sides", nargs="+", default=["plain", "no_elision", "uncopy"], choices=harness.SIDES, metavar="SIDE")
    p.add_argument("--counters", nargs="+", default=COUNTERS, metavar="NAME", help=f"({' '.join(COUNTERS)})")
    p.add_argument("--uncopy", default=os.path.join(harness.ROOT, "target", "release", "uncopy"))
    p.add_argument("--uncopy-option", action="append", default=[], metavar="OPTION", help="handed to `uncopy run`")
    a = p.parse_args()
    a.show, (a.server_core, a.load_core) = False, (sorted(os.sched_getaffinity(0)) * 2)[:2]
    return a


def counted(process, uncopy):
    """The counters of all its processes under uncopy, added up."""
    total = {}
    for pid in harness.descendants(process.main.pid):
        said = subprocess.run([uncopy, "stat", "-p", str(pid), "--json"], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            stat = json.loads(said.stdout)
            for name, value in stat.get("counters", stat).items():
                if isinstance(value, int):
                    total[name] = total.get(name, 0) + value
    return total


def main():
    a = harness.OPTIONS = arguments()
    names = [a.server] if a.server in SERVERS else [name for name in SERVERS if a.server in name]
    if len(names) != 1:
        sys.exit(f"slices.py: '{a.server}' is in the names of {names or 'no server'}; one is needed, of: {', '.join(SERVERS)}")
    server = SERVERS[names[0]]
    if why := harness.missing(server):
        sys.exit(f"slices.py: {names[0]}: {why}")
    os.sched_setaffinity(0, {a.load_core})
    with contextlib.ExitStack() as stack:
        processes = {side: harness.Process(server, side, a.size, stack) for side in a.sides}
        for process in processes.values():
            process.load.verify()
        print(f"{names[0]}: us of processor time for a request" + (f" | {' '.join(a.counters)}" if "uncopy" in processes else ""))
        before = counted(processes["uncopy"], a.uncopy) if "uncopy" in processes else {}
        for phase in a.phases.split(","):
            connections, _, seconds = phase.partition(":")
            for process in processes.values():
                process.load.connections(int(connections))
            for _ in range(round(float(seconds) / a.slice)):
                line = [f"{side} {process.run(a.slice).cpu:8.1f}" for side, process in processes.items()]
                if "uncopy" in processes:
                    now = counted(processes["uncopy"], a.uncopy)
                    line.append(" ".join(str(now.get(name, 0) - before.get(name, 0)) for name in a.counters))
                    before = now
                print(f"{connections:>3} | {' | '.join(line)}", flush=True)
        for process in processes.values():
            process.load.verify()


if __name__ == "__main__":
    try:
        main()
    except (Failure, Wrong) as e:
        sys.exit(f"slices.py: {e}")
