#!/usr/bin/env python3
"""Every figure of the five papers whose mechanism uncopy has, measured here and written beside the paper's: docs/papers.md.

    bench/papers/reproduce.py                 all rows, some hours
    bench/papers/reproduce.py --quick         all rows in short windows, about twenty minutes
    bench/papers/reproduce.py --only KEY...   these rows, shown and not written
    bench/papers/reproduce.py --list          the rows: key, paper, figure, what
    bench/papers/reproduce.py --redraw        the document anew, of the numbers that are kept

`make reproduce` builds what measures first. Numbers are kept in docs/papers.json, of one run: a row that fails is *missing* there,
with the reason, and the exit status is 1. Needs root (network namespaces, congestion control), redis-server, and what rows name."""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time

import article
import frame
import page
import solaris
import tas
import zcopy
import zio
import zio_more
from frame import ROOT

ROWS = [*zio.ROWS, *zio_more.ROWS, *tas.ROWS, *zcopy.ROWS, *solaris.ROWS, *article.ROWS]
DOCUMENT = os.path.join("docs", "papers.md")
KEPT = os.path.join("docs", "papers.json")


def said(*words):
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip()


def first(path, what):
    with open(path, encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith(what)), "?")


def about(args, seconds):
    family = [first("/proc/cpuinfo", key) for key in ("cpu family", "model\t")]
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="utf-8") as file:
        congestion = file.read().strip()
    changed = " with changes" if said("git", "status", "--porcelain", "--untracked-files=no") else ""
    command = "make reproduce" if not args.quick else "make reproduce QUICK=1"
    return {
        "command": command,
        "processor": f"{first('/proc/cpuinfo', 'model name')} / {' / '.join(family)}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{int(first('/proc/meminfo', 'MemTotal').split()[0]) / 1e6:.1f} GB",
        "kernel": f"Linux {platform.release()}",
        "congestion control": congestion,
        "commit": said("git", "rev-parse", "--short=12", "HEAD") + changed,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "took": f"{seconds:.0f} s",
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short windows, about twenty minutes")
    parser.add_argument("--only", nargs="+", metavar="KEY", help="these rows; nothing is written")
    parser.add_argument("--list", action="store_true", help="the rows")
    parser.add_argument("--redraw", action="store_true", help="writes the document anew, of the numbers that are kept")
    args = parser.parse_args()
    unknown = set(args.only or []) - {row.key for row in ROWS}
    if unknown:
        parser.error(f"no row is called {', '.join(sorted(unknown))}: --list names them")
    return args


def show(row, result):
    print(f"{row.key}: {row.figure}, {row.what}; theirs {row.theirs}: {frame.verdict(row, result)} ({result.seconds:.0f} s)")
    if result.failed:
        print(f"    not measured: {result.failed}")
    for part in result.parts:
        theirs = page.number(part.theirs, part.unit)
        print(f"    {part.name}: theirs {theirs}, ours {page.number(part.ours, part.unit)} {part.verdict()} ({part.note})")


def write(rows, results, facts):
    kept = {"about": facts, "rows": frame.to_json(results)}
    with open(os.path.join(ROOT, KEPT), "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1)
        file.write("\n")
    with open(os.path.join(ROOT, DOCUMENT), "w", encoding="utf-8") as file:
        file.write(page.page(rows, results, facts))


def main():
    args = arguments()
    if args.list:
        for row in ROWS:
            print(f"{row.key:22} {row.paper:8} {row.figure:16} {row.what}" + (f"  ({row.absent})" if row.measure is None else ""))
        return 0
    if args.redraw:
        try:
            with open(os.path.join(ROOT, KEPT), encoding="utf-8") as file:
                kept = json.load(file)
        except FileNotFoundError:
            print(f"reproduce.py: there is no {KEPT}: run without --redraw first", file=sys.stderr)
            return 1
        write(ROWS, frame.from_json(kept["rows"]), kept["about"])
        return 0
    if os.geteuid() != 0:
        print("reproduce.py: not root: rows over a device and with other congestion control will be missing", file=sys.stderr)
    began = time.monotonic()
    run, results = frame.Run(args.quick), {}
    rows = [row for row in ROWS if row.measure and (not args.only or row.key in args.only)]
    for i, row in enumerate(rows):
        print(f"[{i + 1}/{len(rows)}] {row.key}: {row.figure}, {row.what}", file=sys.stderr, flush=True)
        results[row.key] = frame.measured(row, run)
        show(row, results[row.key])
        sys.stdout.flush()
        # (After each row: a run that is ended has written what it measured.)
        if not args.only:
            write(ROWS, results, about(args, time.monotonic() - began))
    if not args.only:
        print(f"written: {DOCUMENT}, {KEPT}")
    failed = [result for result in results.values() if result.failed and not result.failed.startswith("not part of --quick")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
