"""TAS (chapters 2 and 3 of Stamler's dissertation), and what its chapter 4 adds to zIO's paper."""

import json
import os
import re

import layers
import zio
from frame import ROOT, Part, Row, Unmeasured

SLEEPS = ["--wait", "sleep"]


def pairs(run, *words):
    """Rows of a benchmark of pairs of programs, Linux' and uncopy's in turns."""
    return run.bench(*words, "--repeats", run.pick("1", "5"), "--seconds", run.pick("0.8", "2"), "--warmup", run.pick("0.4", "1"))["rows"]


def part(name, theirs, row, **more):
    noise = abs(row["again"]["ratio"] - 1)
    return Part(name, theirs, row["ratio"], noise=noise, note=f"processor time {row['cpu_ratio']:.2f}x", **more)


def ns(row, side):
    return 1000 * row[side]["cpu_us_per_rpc"]


def layers_of_a_request(run):
    rows, plain, uncopy = layers.of_servers(
        run, "__kv-server", "kv", "--load", "zipf", "--connections", "64", *SLEEPS, "--repeats", "1", "--seconds", run.pick("3", "10")
    )
    row = rows[0]
    own = (layers.APPLICATION, layers.LIBC)
    outside = [sum(share for name, share in shares.items() if name not in own) for shares in (plain, uncopy)]
    parts = [
        Part("Linux' share outside the program", 93, 100 * outside[0], unit="%", same=False, good=True, note="theirs counts libc as the program's, too"),
        Part(
            "time outside the program, Linux over uncopy",
            None,
            ns(row, "linux") * outside[0] / (ns(row, "uncopy") * outside[1]),
            same=False,
            note=f"a request costs server and client {ns(row, 'linux'):,.0f} ns, and {ns(row, 'uncopy'):,.0f} ns",
        ),
    ]
    shown = sorted(plain, key=plain.get, reverse=True)[:7]
    return [*parts, *[Part(f"Linux: {name}", None, 100 * plain[name], unit="%", same=False, good=True, note=f"uncopy {100 * uncopy.get(name, 0):.0f} %") for name in shown]]


def one_way_layers(way, theirs):
    def measure(run):
        rows, plain, uncopy = layers.of_servers(
            run, "__rpc-server", "rpc", "--way", way, "--size", "64", "--connections", "64", "--work", "0", *SLEEPS, "--repeats", "1", "--seconds", run.pick("3", "10")
        )
        row = rows[0]
        top = sorted(plain, key=plain.get, reverse=True)[:6]
        return [
            Part(
                "a message, Linux over uncopy",
                theirs,
                row["cpu_ratio"],
                noise=abs(row["again"]["cpu_ratio"] - 1),
                same=False,
                note=f"both ends: {ns(row, 'linux'):,.0f} and {ns(row, 'uncopy'):,.0f} ns",
            ),
            *[Part(f"Linux: {name}", None, 100 * plain[name], unit="%", same=False, good=True, note=f"uncopy {100 * uncopy.get(name, 0):.0f} %") for name in top],
        ]

    return measure


def state(_run):
    path = os.path.join(ROOT, "crates", "tcp", "proto", "src", "flow", "mod.rs")
    with open(path, encoding="utf-8") as file:
        found = re.search(r"size_of::<Flow>\(\)\s*==\s*(\d+)", file.read())
    if not found:
        raise Unmeasured(f"{os.path.relpath(path, ROOT)} asserts no size any more")
    whole = int(found[1])
    return [Part("bytes of a flow", 102, whole, unit="bytes", same=False, good=whole <= 102, note="256 of them are for recovery from loss; the common case touches 128")]


def bulk(run):
    rows = run.bench("bulk", "--seconds", run.pick("1", "5"), "--repeats", run.pick("1", "3"))["rows"]
    return [
        Part(f"{row['from']} to {row['to']}", 1.0, row["ratio"], same=True)
        for row in rows
        if not row["again"] and "uncopy" in row["from"] + row["to"] and "dctcp" not in row["from"]
    ]


def connections(run):
    rows = pairs(run, "rpc", "--connections", "1,64,1000", "--wait", "spin,sleep")
    parts = [
        part(f"within a host, {row['connections']} connections, {row['wait']}ing", 5.1 if row["connections"] == 1000 else None, row, same=False) for row in rows
    ]
    device = pairs(run, "rpc", "--wire", "xdp", "--connections", "64,1000", "--wait", "sleep")
    return parts + [part(f"over a device, lanes in the program, {row['connections']} connections", 5.1 if row["connections"] == 1000 else None, row) for row in device]


def unmodified(run):
    said = run.python("tests/remote/cost.py", "--uncopy", "target/release/uncopy", "--cases", run.pick("50/1", "50/1,1000/1"), "--rounds", run.pick("2", "5"), "--json")
    return [
        Part(
            f"redis GET of 64 B over a device, {row['connections']} connections, processor time",
            None,
            row["ratio"],
            same=False,
            good=row["ratio"] >= 0.98,
            note=f"Linux over uncopy, service included; requests a second {row['rate_ratio']:.2f}x",
        )
        for row in json.loads(said)["rows"]
        if row["side"] != "linux"
    ]


def short(run):
    rows = pairs(run, "short", "--rpcs", run.pick("4,16,256", "1,2,4,8,16,64,256"), "--connections", run.pick("64", "64,1024"), *SLEEPS)
    return [
        Part(
            f"{row['rpcs']} requests a connection, {row['connections']} connections",
            1.0 if row["rpcs"] >= 4 else None,
            row["ratio"],
            noise=abs(row["again"]["ratio"] - 1),
            note=f"processor time, service included, {row['cpu_ratio']:.2f}x",
        )
        for row in rows
    ]


def one_way(way, small, large):
    def measure(run):
        rows = pairs(run, "rpc", "--way", way, "--size", "64,2K", "--work", "250", "--connections", "64", "--wait", "spin")
        theirs = {64: small, 2048: large}
        return [part(f"{row['size']} B, 250 cycles", theirs[row["size"]], row, same=False) for row in rows]

    return measure


def loss(run):
    rows = run.bench("loss", "--seconds", run.pick("1", "5"), "--repeats", run.pick("1", "3"))["rows"]
    theirs = {1.0: 0.985, 5.0: 0.87}
    return [
        Part(f"{row['hosts']}, {row['loss_percent']:.0f} % lost: rate kept", theirs[row["loss_percent"]], row["kept"], same=True)
        for row in rows
        if row["loss_percent"] in theirs and "uncopy" in row["hosts"] and not row["again"]
    ]


def store(run, load, connections, *words):
    return pairs(run, "kv", "--load", load, "--connections", connections, *words)


def store_rate(run):
    parts = [part(f"sockets, one core each, {row['wait']}ing", 7.0, row, same=False) for row in store(run, "zipf", "64", "--wait", "spin,sleep")]
    return parts + [part(f"the library's own calls, {row['wait']}ing", 9.6, row, same=False) for row in store(run, "zipf", "64", "--wait", "spin", "--api", "rings")]


def hot_key(run):
    return [
        part("sockets, one core each", 3.9, store(run, "hot", "64", "--wait", "spin")[0], same=False),
        part("the library's own calls", 5.7, store(run, "hot", "64", "--wait", "spin", "--api", "rings")[0], same=False),
    ]


def latency(run):
    row = store(run, "zipf", "1", "--wait", "spin")[0]
    linux, uncopy = row["linux"], row["uncopy"]
    theirs = {"p50_us": 97 / 17, "p99_us": 177 / 30, "p999_us": None}
    names = {"p50_us": "median", "p99_us": "99th percentile", "p999_us": "99.9th percentile"}
    return [
        Part(names[key], theirs[key], linux[key] / uncopy[key], same=False, note=f"{linux[key]:.1f} and {uncopy[key]:.1f} us", noise=abs(row["again"]["ratio"] - 1))
        for key in names
        if uncopy.get(key)
    ]


def distribution(run):
    row = store(run, "zipf", "1", "--wait", "spin")[0]
    linux, uncopy = dict(row["linux"]["cdf"]), dict(row["uncopy"]["cdf"])
    return [
        Part(f"{percent:g} % of requests within", None, linux[percent] / uncopy[percent], same=False, note=f"{linux[percent]:.1f} and {uncopy[percent]:.1f} us")
        for percent in (10.0, 50.0, 90.0, 99.0)
        if uncopy.get(percent)
    ]


def simulated(figure, measure, long=False):
    def run_it(run):
        if long and run.quick:
            raise Unmeasured("not part of --quick: it simulates for three minutes")
        series = {row["name"]: row for row in run.bench("simulate", "--figure", figure, "--out", os.path.join("target", "papers"))["series"]}
        return measure(series["DCTCP"], series["TAS, 100 us"])

    return run_it


def single_link(dctcp, tas):
    return [
        Part("time of a flow, DCTCP over TAS at 100 us", 1.0, dctcp["fct_us"]["mean"] / tas["fct_us"]["mean"]),
        Part("the queue, DCTCP over TAS", 1.0, dctcp["queue_packets"]["mean"] / tas["queue_packets"]["mean"]),
    ]


def fat_tree(dctcp, tas):
    return [
        Part(f"{name} flows, DCTCP over TAS", 1.0, dctcp[key]["mean"] / tas[key]["mean"])
        for name, key in (("short", "short_us"), ("long", "long_us"))
    ]


def incast(run):
    rows = run.bench("incast", "--seconds", run.pick("1", "5"), "--repeats", run.pick("1", "3"))["rows"]
    linux = {row["flows"]: row["p99_over_median"] for row in rows if row["hosts"].startswith("linux") and not row["again"]}
    return [
        Part(
            f"{row['hosts']}, {row['flows']} flows: 99th percentile over median",
            2.8,
            row["p99_over_median"],
            unit="of the median",
            good=row["p99_over_median"] <= 2.8,
            note=f"Linux' CUBIC, marks on both sides, {linux[row['flows']]:.2f}",
        )
        for row in rows
        if "uncopy" in row["hosts"] and not row["again"]
    ]


def proportional(run):
    rows = run.bench("proportional", "--clients", run.pick("3", "5"), "--step", run.pick("1", "2"), "--repeats", run.pick("1", "3"), "--out", os.path.join("target", "papers"))["rows"]
    return {side: [row for row in rows if row["side"] == side] for side in ("linux", "uncopy")}


def middle(values):
    values = sorted(values)
    return values[len(values) // 2] if values else 0


def cores(run):
    sides = proportional(run)
    most = max(row["clients"] for row in sides["uncopy"])
    used = {side: middle([row["server_cores"] for row in rows if row["clients"] == most]) for side, rows in sides.items()}
    lanes = {row["lanes"] for row in sides["uncopy"] if row["lanes"]}
    return [
        Part(
            f"cores in use at {most} clients, Linux over uncopy",
            None,
            used["linux"] / used["uncopy"] if used["uncopy"] else None,
            same=False,
            good=used["uncopy"] <= 1.05 * used["linux"],
            note=f"{used['linux']:.2f} and {used['uncopy']:.2f} cores; lanes {min(lanes)} to {max(lanes)}" if lanes else "",
        )
    ]


def moment(run):
    sides = proportional(run)
    most = max(row["clients"] for row in sides["uncopy"])
    parts = []
    for key, name in (("p50_us", "median"), ("p99_us", "99th percentile")):
        of = {side: middle([row[key] for row in rows if row["clients"] == most and row[key]]) for side, rows in sides.items()}
        if of["uncopy"]:
            parts.append(Part(f"latency at {most} clients, {name}, Linux over uncopy", None, of["linux"] / of["uncopy"], same=False, good=of["uncopy"] <= 1.1 * of["linux"], note=f"{of['linux']:.0f} and {of['uncopy']:.0f} us"))
    return parts


def edge(run):
    return zio.bypass(run, "512K", "0", None, 1.25, "512 KB, sent on")


ROWS = [
    Row("tas-cycles", "tas", "Table 2.1", "time of a request by layer (key-value store)", "93 % in the kernel", layers_of_a_request, seconds=15, why="Time by the software clock: no counters here."),
    Row("tas-misses", "tas", "Table 2.2", "misses of caches, branches, TLB for a request", "3.4 kc of L1 misses", absent="no hardware counters in this machine", impossible=True),
    Row("tas-state", "tas", "Table 3.1", "state of a flow", "102 bytes", state, seconds=1, why="Selective acknowledgements need state that TAS has not."),
    Row("tas-peers", "tas", "Table 3.2", "100 flows between Linux and TAS", "line rate in all combinations", bulk, seconds=30),
    Row("tas-connections", "tas", "Fig. 3.4", "RPCs over connections", "5.1x at 1,000", connections, seconds=25, why="The paper's wire is 40 Gbit/s and a polling core is not shared; here both ends share two cores."),
    Row("tas-unmodified", "tas", "Fig. 3.4", "the same, unmodified programs over a device", "5.1x at 1,000", unmodified, seconds=40, why="A relay copies between the wire and the program's ring."),
    Row("tas-short", "tas", "Fig. 3.5", "short connections", "a gain from 4 requests on", short, seconds=15, why="A connection is opened by Linux first, and comes to a ring after some calls."),
    Row("tas-in", "tas", "Fig. 3.6", "one-way RPCs, received", "4.5x at 64 B, 4x at 2 KB", one_way("in", 4.5, 4.0), seconds=10, why="One client thread of Linux' is the limit, not the server."),
    Row("tas-out", "tas", "Fig. 3.6", "one-way RPCs, sent", "12.4x at 64 B, 6.1x at 2 KB", one_way("out", 12.4, 6.1), seconds=10, why="The paper's server sends on a link, ours to a program on the same two cores, which is the limit."),
    Row("tas-tx", "tas", "Table 3.3", "what sending a message costs, by layer", "7,276 to 1,388 cycles (5.2x)", one_way_layers("out", 5.2), seconds=10),
    Row("tas-rx", "tas", "Table 3.4", "what receiving a message costs, by layer", "4,575 to 1,430 cycles (3.2x)", one_way_layers("in", 3.2), seconds=10),
    Row("tas-loss", "tas", "Fig. 3.7", "packet loss", "-1.5 % at 1 %, -13 % at 5 %", loss, seconds=40),
    Row("tas-store", "tas", "Fig. 3.8", "key-value store over cores", "7.0x (sockets), 9.6x (own calls)", store_rate, seconds=20, why="Two cores, one for each end; the paper's servers have up to 16."),
    Row("tas-distribution", "tas", "Fig. 3.9", "distribution of latencies", "TAS left of Linux everywhere", distribution, seconds=5, why="One request under way in place of a load of 15 %."),
    Row("tas-latency", "tas", "Table 3.5", "latency of the store", "5.7x median, 5.9x 99th percentile", latency, seconds=5, why="One request under way in place of a load of 15 %."),
    Row("tas-split", "tas", "Table 3.6", "cores of store and stack", "2 fewer for the stack by its own calls", absent="a machine with 16 cores is needed", impossible=True),
    Row("tas-hot", "tas", "Table 3.7", "one hot key", "3.9x (sockets), 5.7x (own calls)", hot_key, seconds=15, why="One core on each side."),
    Row("tas-flexstorm", "tas", "Fig. 3.10, Table 3.8", "FlexStorm", "throughput and latency of tuples", absent="the program is not published; its role (a server that answers small messages) is that of the store above"),
    Row("tas-link", "tas", "Fig. 3.11", "one link of 10 Gbit/s, simulated", "very similar to DCTCP", simulated("3.11", single_link), seconds=15, why="Rates change at intervals only: a flow that begins waits for its first one."),
    Row("tas-tree", "tas", "Fig. 3.12", "fat tree of 2,560 servers, simulated", "similar to DCTCP", simulated("3.12", fat_tree, long=True), seconds=180, why="As for the single link."),
    Row("tas-incast", "tas", "Fig. 3.13", "incast", "99 % within 1.6 to 2.8 of the median", incast, seconds=30),
    Row("tas-cores", "tas", "Fig. 3.14", "cores while load changes", "1 to 9 cores", cores, seconds=15, why="A lane polls, and so takes a core at any load; Linux' threads sleep."),
    Row("tas-moment", "tas", "Fig. 3.15", "latency while cores are added", "+30 % for a moment", moment, seconds=15, why="Client, server and lane share two cores."),
    Row("tas-rdma", "tas", "Fig. 4.10", "Demikernel over RDMA", "+59 % at 1 MB", absent="no RDMA device", impossible=True),
    Row("tas-edge", "tas", "Fig. 4.11", "echo of 512 KB over the bypass stack, without its copies", "1.25x", edge, seconds=10),
]
