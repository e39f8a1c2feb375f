#!/usr/bin/env python3
"""The steady state of an echo server under uncopy makes no page faults and no page-table calls.

Runs `uncopy-bench echo` (512 KB, 12 copies, 16 connections), looks at its counters and, with strace, at the system calls
that the server really makes. Also that copies are elided at all, that memory stays bounded, and that every echoed byte was
right (the benchmark verifies that itself and fails otherwise).

    tests/steady_state.py          UNCOPY names the command (default target/release/uncopy); uncopy-bench lies beside it
"""

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import time

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNCOPY = os.environ.get("UNCOPY", os.path.join(REPO, "target/release/uncopy"))
BENCH = os.path.join(os.path.dirname(UNCOPY), "uncopy-bench")
PAGE_TABLE_CALLS = {"ioctl", "madvise", "mmap", "munmap", "mprotect", "mremap", "brk"}
SIZE, COPIES = 512 << 10, 12
# Sends of which so few call for a page table that one in a hundred would be seen.
ENOUGH = 100

passed, failed = 0, 0


def check(what, holds, found):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(f"{'ok  ' if holds else 'FAIL'}  {what}: {found}")


def children(pid):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(entry))
        except OSError:
            pass
    return found


def server_under_uncopy(bench):
    """The benchmark's server that has the library mapped, elides, and is past its warm-up."""
    until = time.monotonic() + 30
    while time.monotonic() < until and bench.poll() is None:
        for pid in children(bench.pid):
            try:
                with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/environ") as environment:
                    if "libuncopy.so" in maps.read() and "UNCOPY_ELIDE=no" not in environment.read():
                        time.sleep(2.5)
                        return pid
            except OSError:
                pass
        time.sleep(0.05)
    sys.exit("steady_state.py: the benchmark started no server under uncopy")


def system_calls(pid, bench):
    """What the server's threads call, by name, until enough is seen. (In a second in which the other sides have their turns it calls nothing.)"""
    seen = collections.Counter()
    while bench.poll() is None and sends(seen) < ENOUGH:
        log = subprocess.run(["timeout", "-s", "INT", "1", "strace", "-f", "-c", "-p", str(pid)],
                             stderr=subprocess.PIPE, text=True).stderr
        rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", log, re.M)
        seen.update({name: int(calls) for calls, name in rows if name != "total"})
    return seen


def sends(calls):
    return sum(n for name, n in calls.items() if name.startswith(("send", "write")))


def main():
    command = [BENCH, "echo", "--json", "--sizes", str(SIZE), "--copies", str(COPIES),
               "--connections", "16", "--repeats", "1", "--warmup", "1", "--seconds", "4"]
    bench = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    calls = None
    if shutil.which("strace"):
        calls = system_calls(server_under_uncopy(bench), bench)
    output, _ = bench.communicate(timeout=120)
    if bench.returncode != 0:
        sys.exit(f"steady_state.py: the benchmark failed ({bench.returncode})")
    row = json.loads(output)["rows"][0]
    uncopy, plain = row["uncopy"], row["plain"]
    requests = uncopy["req_per_s"] * 4
    elided = uncopy["elided_bytes"] / max(requests, 1) / (SIZE * COPIES)
    check("nine tenths of the copied bytes are elided, and more", elided > 0.9, f"{elided:.3f}")
    check("no page faults", uncopy["faults"] <= requests / 100, uncopy["faults"])
    check("fewer than one page-table call in 100 requests",
          uncopy["page_table_calls_per_100_req"] < 1, uncopy["page_table_calls_per_100_req"])
    check("messages verified byte for byte", row["verified_messages"] > 0, row["verified_messages"])
    check("resident memory at most 1.1 times plain plus 32 MB",
          uncopy["rss_kb"] <= 1.1 * plain["rss_kb"] + 32 * 1024,
          f"{uncopy['rss_kb']} KB, plain {plain['rss_kb']} KB")
    if calls is None:
        print("SKIP  system calls of the server: no strace here (scripts/install-test-deps)")
    else:
        transfers = sends(calls)
        touching = {name: n for name, n in calls.items() if name in PAGE_TABLE_CALLS}
        check("strace sees the server send", transfers >= ENOUGH, dict(calls))
        check("strace sees fewer than one page-table call in 100 sends",
              sum(touching.values()) < max(transfers, 1) / 100, touching or "none")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
