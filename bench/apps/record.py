#!/usr/bin/env python3
"""Records the servers of bench/apps, for `uncopy replay` and crates/replay/traces.

    bench/apps/record.py DIRECTORY                   all servers at 64 KB and 1 MB, with four connections
    bench/apps/record.py DIRECTORY --only redis      one of them

Each is recorded from its first large copy on, as far as fits into so few bytes (`UNCOPY_RECORD_BYTES`, 32 KB unless set), with a controller that elides
all it can (`UNCOPY_CONTROLLER`, `always` unless set): whatever the program touches shows then. Nothing is sent by reference
(`UNCOPY_LEND`, 0 unless set), which a replay knows nothing of. The load has half a second, of which only the first part is recorded."""

import contextlib
import glob
import os
import re
import subprocess
import sys

DIRECTORY = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else sys.exit(__doc__)

import apps  # noqa: E402
import cache  # noqa: E402
import harness  # noqa: E402

CONNECTIONS = 4
SECONDS = 0.5
# Rows of `uncopy-bench echo`, of which some misspeculate: name, options, sizes.
ECHO = [
    ("echo 1 copy", "--copies 1", "64K,512K"),
    ("echo 4 copies", "--copies 4", "64K,512K"),
    ("echo 12 copies", "--copies 12", "64K,512K"),
    ("echo fresh buffers", "--copies 2 --alloc fresh", "64K,512K"),
    ("echo sums", "--copies 2 --checksum last", "64K,512K"),
    ("echo touches one page", "--copies 3 --touched last --touch-pages 1", "64K,1M"),
    ("echo touches all pages", "--copies 1 --touched last --touch-pages 16", "64K"),
    ("echo touches other pages", "--copies 1 --touched last --touch-pages 16 --touch-moving", "256K,1M"),
]
# Programs that are no servers: name, what servers/phases.py does, sizes. (Growing buffers: UNCOPY_RECORD_BYTES=65536.)
PHASES = [("phases changing", "changing", "64K,1M"), ("buffers growing", "growing", "256K"), ("short process", "short", "256K"), ("many sizes", "many", "64K")]


def path(name, size):
    what = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return os.path.join(DIRECTORY, f"{what}-{size >> 10}k.trace")


def record(name, server, size):
    to = path(name, size)
    with contextlib.ExitStack() as stack:
        harness.OPTIONS.uncopy_option = [f"--record={to}.part"]
        p = harness.Process(server, "uncopy", size, stack)
        p.load.connections(CONNECTIONS)
        p.run(SECONDS)
    return best_part(to)


def record_phases(name, what, size):
    to = path(name, size)
    script = [sys.executable, os.path.join(harness.HERE, "servers", "phases.py"), what, str(size)]
    subprocess.run([harness.OPTIONS.uncopy, "run", f"--record={to}.part", "--", *script], check=True)
    return best_part(to)


def record_echo(name, options, size):
    to = path(name, size)
    row = [*options.split(), "--sizes", str(size), "--connections", str(CONNECTIONS), "--repeats", "1", "--seconds", "0.2", "--warmup", "0.2"]
    env = {**os.environ, "UNCOPY_RECORD": to + ".part"}
    subprocess.run([os.path.join(os.path.dirname(harness.OPTIONS.uncopy), "uncopy-bench"), "echo", *row, "--json"], check=True, env=env, stdout=subprocess.DEVNULL)
    return best_part(to)


def best_part(to):
    # (Of several processes the one that has most to say.)
    parts = glob.glob(glob.escape(to) + ".part*")
    used = {part: int.from_bytes(open(part, "rb").read(24)[16:], "little") for part in parts}
    best = max(parts, key=used.get, default=None)
    if best:
        os.replace(best, to)
    for part in parts:
        if part != best:
            os.remove(part)
    return f"{used[best]} bytes of entries" if best else "nothing was recorded: no large copy of input"


def main():
    servers = {**apps.SERVERS, **cache.SERVERS}
    harness.OPTIONS = o = harness.arguments(__doc__)
    os.environ.setdefault("UNCOPY_CONTROLLER", "always")
    os.environ.setdefault("UNCOPY_RECORD_BYTES", str(32 << 10))
    os.environ.setdefault("UNCOPY_LEND", "0")
    os.makedirs(DIRECTORY, exist_ok=True)
    # (A server may run as somebody else.)
    os.chmod(DIRECTORY, 0o1777)
    os.sched_setaffinity(0, {o.load_core})
    for name, server in servers.items():
        if not any(part.lower() in name.lower() for part in o.only):
            continue
        for size in map(harness.size_of, o.sizes.split(",")):
            try:
                said = harness.missing(server) or record(name, server, size)
            except (harness.Failure, OSError) as why:
                said = why
            print(f"{name}, {size >> 10} KB: {said}", flush=True)
    rest = [(record_echo, *row) for row in ECHO] + [(record_phases, *row) for row in PHASES]
    for how, name, what, sizes in rest:
        if any(part.lower() in name for part in o.only):
            for size in map(harness.size_of, sizes.split(",")):
                print(f"{name}, {size >> 10} KB: {how(name, what, size)}", flush=True)


if __name__ == "__main__":
    main()
