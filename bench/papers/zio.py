"""zIO (OSDI 2022): rows whose measurement is a command of `uncopy-bench` or of bench/. The others are in zio_more.py."""

import json
import statistics

from frame import Part, Row

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
    rows = echo_rows(run, "--sizes", "64K,1M", "--copies", "5")
    theirs = {64 << 10: None, 1 << 20: 2.9}
    return [
        Part(f"{row['size'] >> 10} KB, 5 copies", theirs[row["size"]], row["ratio"], noise=noise_of(row), note=processor(row))
        for row in rows
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


def relayed(run, *words):
    """Rows of `uncopy-bench relay`, messages by reference where both ends allow it."""
    length = ["--repeats", run.pick("1", "5"), "--seconds", run.pick("0.6", "2"), "--warmup", run.pick("1", "2")]
    return run.bench("relay", *words, "--touch", "none", *length, variables=["UNCOPY_TCP_REFERENCES=yes"])["rows"]


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
    Row("zio-copies", "zio", "Fig. 4", "echo of 512 KB over copies, Linux' TCP", "3.8x at 12 copies", copies, seconds=25),
    Row("zio-bypass-copies", "zio", "Fig. 5", "the same over the bypass stack", "2.8x at 12 copies, 1.21x without", bypass_copies, seconds=15),
    Row("zio-sizes", "zio", "Fig. 6", "echo over sizes, 5 copies", "2.9x at 1 MB", sizes, seconds=25),
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
    Row("zio-skiplist", "zio", "5.2.1", "the store of tracked buffers", "190 ns an operation", books, seconds=10),
]
