"""zIO (OSDI 2022): rows whose measurement is a command of `uncopy-bench` or of bench/. The others are in zio_more.py."""

import json
import os
import re
import statistics

from frame import ROOT, Part, Row, Unmeasured

HALF_MEGABYTE = "512K"


def echo_rows(run, *words):
    """Rows of the echo server: few repeats where time is short, but always as long a warm-up, so that call sites have learnt."""
    repeats = run.pick("1", "5")
    return run.bench("echo", *words, "--repeats", repeats, "--seconds", run.pick("0.6", "2"), "--warmup", run.pick("1", "2"))["rows"]


def noise_of(row):
    return abs(row["again"]["ratio"] - 1)


def processor(row):
    return f"processor time {row['cpu_ratio']:.2f}x, elision's own {row['elision_cpu_ratio']:.2f}x"


def copies(run):
    rows = echo_rows(run, "--sizes", HALF_MEGABYTE, "--copies", "0,4,12")
    theirs = {0: 1.0, 4: None, 12: 3.8}
    return [
        Part(f"512 KB, {row['copies']} copies", theirs[row["copies"]], row["ratio"], noise=noise_of(row), note=processor(row))
        for row in rows
    ]


def sizes(run):
    rows = echo_rows(run, "--sizes", "64K,1M", "--copies", "0,5")
    theirs = {64 << 10: None, 1 << 20: 2.9}
    without = {row["size"]: row["plain"]["req_per_s"] for row in rows if not row["copies"]}
    return [
        Part(
            f"{row['size'] >> 10} KB, 5 copies",
            theirs[row["size"]],
            row["ratio"],
            noise=noise_of(row),
            note=f"{processor(row)}; plain without any copy {without[row['size']] / row['plain']['req_per_s']:.2f}x",
        )
        for row in rows
        if row["copies"]
    ]


def small(run):
    rows = echo_rows(run, "--sizes", "8K", "--copies", "0,5")
    return [
        Part(f"8 KB, {row['copies']} copies", 0.7 if row["copies"] else None, row["ratio"], noise=noise_of(row), note=processor(row))
        for row in rows
    ]


def threads(run):
    rows = echo_rows(run, "--sizes", HALF_MEGABYTE, "--copies", "1", "--threads", "1,2")
    return [
        Part(
            f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}",
            1.19,
            row["ratio"],
            noise=noise_of(row),
            note=processor(row) + (", and the load has half a core" if row["threads"] > 1 else ""),
        )
        for row in rows
    ]


def faults(run):
    pages = "2,16"
    rows = echo_rows(run, "--sizes", HALF_MEGABYTE, "--copies", "1", "--threads", "1,2", "--touch-pages", pages, "--touch-moving")
    return [
        Part(
            f"{row['touched_pages']} pages touched, {row['threads']} threads" if row["threads"] > 1 else f"{row['touched_pages']} pages touched, 1 thread",
            None,
            row["ratio"],
            noise=noise_of(row),
            same=False,
            good=row["ratio"] >= 0.95,
            unit="x",
            note=f"{row['uncopy']['faults_per_req']:.2f} faults a message",
        )
        for row in rows
    ]


def misspeculation(run):
    rows = echo_rows(run, "--sizes", "64K,1M", "--copies", run.pick("3", "1,3,6"), "--touch-pages", "1,16", "--touched", "last", "--touch-moving")
    worst = min(rows, key=lambda row: row["cpu_ratio"])
    shown = f"{worst['size'] >> 10} KB, {worst['copies']} copies, {worst['touched_pages']} pages touched"
    return [
        Part(
            f"worst of {len(rows)} combinations (by processor time)",
            None,
            worst["cpu_ratio"],
            noise=max(noise_of(row) for row in rows),
            good=worst["cpu_ratio"] >= 0.97 - max(abs(row["again"]["cpu_ratio"] - 1) for row in rows),
            note=shown,
        )
    ]


def books(run):
    found = run.bench("views", "--views", "640", "--sizes", "16K,1M", "--repeats", run.pick("3", "9"))
    ns = statistics.median(row["ns"] for row in found["books"])
    whole = [row for row in found["processes"] if row["size"] == 16 << 10]
    return [
        Part("640 entries, look up and insert", 190, ns, unit="ns", good=ns <= 190),
        *[
            Part(
                "a whole elided copy of 16 KB",
                None,
                row["uncopy_ns"],
                unit="ns",
                good=row["uncopy_ns"] <= row["plain_ns"],
                note=f"the plain copy {row['plain_ns']:.0f} ns",
            )
            for row in whole
        ],
    ]


def redis(run, append, sizes):
    words = ["--json", "--no-verify", "--aof", append, "--sizes", sizes, *run.pick(["--quick"], [])]
    return json.loads(run.python("bench/redis/redis.py", *words))["rows"]


def redis_set(run):
    rows = [row for row in redis(run, "on", "64K,512K") if row["op"] == "set"]
    return [
        Part(f"SET of {row['size'] >> 10} KB, append-only file, {what}", 1.8 if row["size"] > 64 << 10 else None, row[key], noise=0.05, note=note)
        for row in rows
        for what, key, note in [("requests a second", "ratio", f"processor time {row['cpu_ratio']:.2f}x")]
    ]


def copies_in_programs(run):
    """Of table1.py's table: "| redis SET | 4 | 2.8 | 2 | 2 | ..."."""
    lines = run.python("bench/table1/table1.py", *run.pick(["--only", "redis,nginx"], [])).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]
    parts = []
    for name, theirs, ours, theirs_kernel, ours_kernel, *_ in cells:
        count = first_number(ours)
        paper = first_number(theirs)
        if count is not None:
            note = f"at the kernel {ours_kernel}" + (f", theirs {theirs_kernel}" if first_number(theirs_kernel) is not None else "")
            parts.append(Part(name, paper, count, unit="copies", same=False, good=paper is None or count <= paper, note=note))
    return parts


def first_number(text):
    found = re.search(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if found else None


def call_sites(run):
    """What the profile says of a SET's way, as table1.py prints it below its table."""
    lines = run.python("bench/table1/table1.py", *run.pick(["--only", "redis,nginx"], [])).splitlines()
    way = next((line for line in lines if line.startswith("redis SET (")), "")
    steps = way.split(" -> ")
    return [Part("steps of a SET, from socket to file", 6, len(steps), unit="steps", same=False, good=True, note=way.split(": ", 1)[-1])] if way else []


def mix(run):
    """YCSB A: as many SETs as GETs, whose times are those of the two alone."""
    rows = redis(run, "on", "64K,512K")
    parts = []
    for size in sorted({row["size"] for row in rows}):
        of = {row["op"]: row for row in rows if row["size"] == size}
        time = {side: sum(1 / of[op][side]["req_per_s"] for op in ("set", "get")) for side in ("plain", "uncopy")}
        parts.append(Part(f"values of {size >> 10} KB, half SET, half GET", 1.3 if size > 64 << 10 else None, time["plain"] / time["uncopy"], noise=0.05, note="of SETs and GETs measured apart"))
    return parts


def breakdown(run):
    rows = [row for row in redis(run, "off", "8K,256K") if row["op"] == "set"]
    theirs = {8 << 10: 0.98, 256 << 10: 1.7}
    return [Part(f"SET of {row['size'] >> 10} KB, no file", theirs[row["size"]], row["ratio"], noise=0.05, note=f"processor time {row['cpu_ratio']:.2f}x") for row in rows]


def logged(run):
    parts = []
    directory = os.path.join(ROOT, "target", "papers")
    os.makedirs(directory, exist_ok=True)
    for fsync, size, clients in (("always", 4096, 1), ("everysec", 65536, 50), ("everysec", 262144, 50)):
        requests = str(run.pick(3000, 20000) if size < 65536 else run.pick(5000, 20000))
        words = ["--fsync", fsync, "--size", str(size), "--clients", str(clients), "--requests", requests, "--turns", run.pick("1", "5"), "--dir", directory, "--json"]
        sides = json.loads(run.python("bench/redis/aof.py", *words))["sides"]
        noise = abs(sides["again"]["per_s"] / sides["plain"]["per_s"] - 1)
        cpu = sides["plain"]["cpu_us"] / sides["log"]["cpu_us"]
        parts.append(
            Part(f"SET of {size >> 10} KB, {fsync}, {clients} clients", 1.8 if size == 262144 else None, sides["log"]["per_s"] / sides["plain"]["per_s"], noise=noise, same=False, note=f"processor time {cpu:.2f}x")
        )
    return parts


def mongodb(run):
    if run.quick:
        raise Unmeasured("not part of --quick: bench/wiredtiger/wiredtiger.py --install compiles for five minutes")
    run.python("bench/wiredtiger/wiredtiger.py", "--install")
    rows = json.loads(run.python("bench/wiredtiger/wiredtiger.py", "--json"))["rows"]
    return [
        Part(
            f"inserts of 1 MB, checksums {row['checksum']}, journal {row['journal']}",
            1.06 if row["checksum"] == "off" else 0.985,
            row["gain"],
            same=False,
            good=row["gain"] >= 0.98,
            note=f"elision's own {row['elision']:.2f}x",
        )
        for row in rows
    ]


def relayed(run, *words):
    """Rows of `uncopy-bench relay`, messages by reference where both ends allow it."""
    length = ["--repeats", run.pick("1", "5"), "--seconds", run.pick("0.6", "2"), "--warmup", run.pick("1", "2")]
    return run.bench("relay", *words, "--touch", "none", *length)["rows"]


def ways(row):
    return {side["way"]: side for side in row["sides"]}


def bypass(run, size, copies, theirs_zio, theirs_edge, name):
    parts = []
    for row in relayed(run, "--hops", "1", "--sizes", size, "--copies", copies):
        of = ways(row)
        what = f"{name}, {row['copies']} copies"
        noise = abs(of["again"]["per_s"] / of["linux"]["per_s"] - 1)
        ratio = of["uncopy"]["per_s"] / of["rings"]["per_s"]
        parts.append(
            Part(
                what + ": over the same stack without elision",
                theirs_zio if row["copies"] else theirs_edge,
                ratio,
                noise=noise,
                note=f"processor time {of['rings']['cpu_us'] / of['uncopy']['cpu_us']:.2f}x; over Linux {of['uncopy']['per_s'] / of['linux']['per_s']:.2f}x",
            )
        )
    return parts


def bypass_copies(run):
    return bypass(run, HALF_MEGABYTE, "0,12", 2.8, 1.21, "512 KB")


def bypass_sizes(run):
    parts = bypass(run, "1M", "0,5", 2.7, 1.4, "1 MB") + bypass(run, "32K", "5", None, None, "32 KB")
    return parts


ROWS = [
    Row("zio-table-1", "zio", "Table 1", "copies of an operation in applications", "redis SET 4+2, GET 2+1", copies_in_programs, seconds=15, why="Today's versions copy less; Ceph, Anna, TensorFlow Serving and Nebula are not packaged."),
    Row("zio-table-2", "zio", "Table 2", "call sites of redis' copies", "6 copies of a SET", call_sites, seconds=1),
    Row("zio-copies", "zio", "Fig. 4", "echo of 512 KB over copies, Linux' TCP", "3.8x at 12 copies", copies, seconds=25),
    Row("zio-bypass-copies", "zio", "Fig. 5", "the same over the bypass stack", "2.8x at 12 copies, 1.21x without", bypass_copies, seconds=15),
    Row(
        "zio-sizes", "zio", "Fig. 6", "echo over sizes, 5 copies", "2.9x at 1 MB", sizes, seconds=50,
        why="Plain without any copy is the most that can be had, and what five copies cost beside Linux' own work differs with the host's memory.",
    ),
    Row(
        "zio-small", "zio", "Fig. 6", "messages below the threshold of 16 KB", "0.7x with the threshold off", small, seconds=15,
        why="Input of fewer than four pages is never moved, whatever the threshold.",
    ),
    Row("zio-bypass-sizes", "zio", "Fig. 7", "the same over the bypass stack", "up to 2.7x", bypass_sizes, seconds=20),
    Row("zio-threads", "zio", "Fig. 8", "one copy of 512 KB over threads", "up to 1.19x", threads, seconds=15, why="Here are 2 cores, which server and load share."),
    Row(
        "zio-faults", "zio", "Fig. 9", "page faults over threads", "scales up to 2 pages", faults, seconds=25,
        why="A fault is answered by a thread, not by the kernel; eliding is given up where it loses.",
    ),
    Row("zio-misspeculation", "zio", "Fig. 10", "data that the server reads", "a loss above 6% read", misspeculation, seconds=25),
    Row(
        "zio-redis", "zio", "Fig. 11", "redis SET with an append-only file", "1.8x", redis_set, seconds=60,
        why="The file's own `write` copies what was elided, and on 2 cores the page cache is the limit.",
    ),
    Row("zio-log", "zio", "Fig. 11", "the same with a log at user level", "2.5x (bypass, log, ORP)", logged, seconds=40, why="The log is a disk's, not persistent memory's."),
    Row("zio-ycsb", "zio", "Fig. 12", "redis, half SET, half GET, append-only file", "1.3x", mix, seconds=1, why="As for SET alone."),
    Row("zio-breakdown", "zio", "Fig. 13", "redis SET of 8 and 256 KB", "0.98x with the threshold, 1.7x", breakdown, seconds=30, why="Redis 7 copies a SET less often than redis 6 of the paper."),
    Row("zio-mongodb", "zio", "5.4", "inserts of 1 MB into WiredTiger", "0.985x; 1.06x without checksums", mongodb, seconds=1, why="Eviction reads what was elided, and pages come back by faults."),
    Row("zio-skiplist", "zio", "5.2.1", "the store of tracked buffers", "190 ns an operation", books, seconds=10),
]
