"""The rows of "Zero-Copy TCP in Solaris" (Chu, USENIX 1996): ttcp, FTP, and what a copy costs."""

import json

import turns
from frame import Part, Row, Unmeasured

SMALL = ("--length", "16K", "--buffers", "9")
LARGE = ("--length", "1M", "--buffers", "8")


def ttcp(run, *words, sides="uncopy,rings"):
    quick = ("--turns", "5", "--bytes", "128M")
    return json.loads(run.python("bench/papers/ttcp.py", *words, "--sides", sides, *run.pick(quick, ("--turns", "15", "--bytes", "512M"))))["sides"]


def web(run, *words):
    quick = ("--turns", "7", "--seconds", "0.06")
    said = run.python("bench/papers/web.py", *words, *run.pick(quick, ("--turns", "25", "--seconds", "0.15")))
    return json.loads(said)["rows"]


def part(name, theirs, found, side, key, same=True, note=""):
    """One end's processor time, plain over the side's."""
    plain, ours = found["plain"], found[side]
    shown = f"{plain[key + '_ns']:,.0f} ns for 8 KB plain, {ours[key + '_ns']:,.0f}"
    return Part(name, theirs, ours[key + "_ratio"], noise=turns.noise(found["again"][key + "_ratio"]), same=same, note=f"{shown}{note}")


def figure_1(run):
    found = json.loads(run.python("bench/papers/share.py", "ttcp", "--seconds", run.pick("1", "5")))["rows"]
    theirs = {9180: 60.0}
    parts = []
    for row in found:
        ours = row["kernel"] + row["program"]
        parts.append(Part(f"packets of {row['mtu']:,} bytes", theirs.get(row["mtu"]), round(ours, 1), unit="%", same=False))
    return parts


def table_2(run):
    made = turns.program("copies")
    found = json.loads(run.command([made, "8192"]))
    parts = []
    for state, theirs in (("hot", 37.0), ("cold", 257.0), ("dirty", 330.0)):
        us = found[state] / 1e3
        parts.append(Part(f"8 KB, {state}", theirs, round(us, 3), unit="us", same=False, good=us <= theirs))
    for state, theirs in (("cold", 257 / 37), ("dirty", 330 / 37)):
        ours = found[state] / found["hot"]
        parts.append(Part(f"{state} over hot", round(theirs, 1), round(ours, 1), unit="times", same=False))
    return parts


def both_ends(run, words, sends, receives):
    """What sender and receiver gain, by 16 KB and 1 MB writes; `sends`, `receives`: the paper's figure, and what its row is called."""
    small, large = ttcp(run, *SMALL, *words), ttcp(run, *LARGE, *words)
    (sent, sender), (received, receiver) = sends, receives
    return [
        part(sender.format(" 16 KB"), sent, small, "uncopy", "sender"),
        part(sender.format(" 1 MB"), sent, large, "uncopy", "sender"),
        part(sender.format(" 16 KB") + ", over rings", sent, small, "rings", "sender", same=False),
        part(receiver, received, small, "uncopy", "receiver"),
        part(receiver + ", over rings", received, small, "rings", "receiver", same=False),
    ]


def table_3(run):
    parts = both_ends(run, (), (1.42, "send, one processor,{} writes"), (1.51, "receive, one processor, 64 KB reads"))
    mapped = ttcp(run, *LARGE, "--reads", "1M", sides="references")
    name = "receive, one processor, 1 MB reads, over rings with --tcp-references"
    return [*parts, part(name, 1.51, mapped, "references", "receiver", same=False)]


def table_3_touch(run):
    return both_ends(run, ("--touch",), (1.11, "send, all written before,{}"), (1.25, "receive, all read after, 16 KB"))


def table_5(run):
    return both_ends(run, ("--free",), (1.13, "send,{} writes"), (1.38, "receive"))


def column(name, theirs, row, which, again, same=True, note=""):
    columns = row["columns"]
    first, ours = next(iter(columns.values())), columns[which]
    shown = f"{first['cpu_us']:,.0f} us of the server for an answer plain, {ours['cpu_us']:,.0f}; rate {ours['rate_ratio']:.2f}"
    return Part(name, theirs, ours["cpu_ratio"], noise=turns.noise(columns[again]["cpu_ratio"]), same=same, note=shown + note)


def figure_2(run):
    send = ["--size", "1M", "--threads", "1"]
    columns = ["--columns", "read,read:again,mmap,read:kept"]
    small = web(run, *send, "--piece", "8K", *columns)[0]
    large = web(run, *send, "--piece", "1M", *columns)[0]
    take = web(run, *send, "--piece", "8K", "--columns", "take,take:again,take:uncopy,take:rings")[0]
    cow = ttcp(run, "--length", "8K", "--buffers", "1", "--touch", sides="uncopy")
    return [
        column("a file to a socket, 8 KB at a time", 2.0, small, "read:kept", "read:again"),
        column("a file to a socket, 1 MB at a time", 2.0, large, "read:kept", "read:again"),
        column("a file to a socket, mapped, plain", None, small, "mmap", "read:again", same=False),
        column("a socket to /dev/null, 8 KB at a time", 1.4, take, "take:uncopy", "take:again"),
        column("a socket to /dev/null, 8 KB at a time, over rings", 1.4, take, "take:rings", "take:again", same=False),
        part("one 8 KB buffer, written again before each send", 0.5, cow, "uncopy", "sender"),
    ]


def figure_3(run):
    parts = []
    for pairs, theirs in ((1, 0.82), (2, 2.2), (8, 3.3)):
        found = ttcp(run, *LARGE, "--free", *(("--pairs", str(pairs)) if pairs > 1 else ()), sides="uncopy,rings")
        words = f"{pairs} sender{'s' if pairs > 1 else ''} at once"
        parts.append(part(words, theirs, found, "uncopy", "sender", same=False))
        parts.append(part(f"{words}, over rings", theirs, found, "rings", "sender", same=False))
    return parts


def table_6(run):
    found = ttcp(run, *LARGE, sides="uncopy,uncopy:protect")
    with_it, without = found["uncopy:protect"]["sender_ns"], found["uncopy"]["sender_ns"]
    if not without:
        raise Unmeasured("ttcp measured nothing")
    noise = turns.noise(found["again"]["sender_ratio"])
    shown = f"{with_it:,.0f} ns for 8 KB with two changes of protection for each send, {without:,.0f} without"
    ours = round(with_it / without, 3)
    return [
        Part("protecting what is sent costs, SS20", 1.34, ours, noise=noise, same=False, note=shown),
        Part("protecting what is sent costs, SS1000E", 1.74, ours, noise=noise, same=False, note=shown),
        part("sent without protection, SS20", 1.89, found, "uncopy", "sender"),
        part("sent without protection, SS1000E", 1.96, found, "uncopy", "sender"),
    ]


def row(figure, what, theirs, measure=None, **more):
    key = "solaris-" + figure.lower().replace(" ", "-").replace(",", "").replace(".", "")
    return Row(key, "solaris", figure, what, theirs, measure, **more)


ROWS = [
    row("Fig. 1", "share of copying in what a packet costs", "over 60% on ATM", figure_1,
        why="A processor of today copies faster beside what it does for a packet, and loopback needs no checksums: "
        "the share grows with the packet as it did there, and stays lower.", seconds=12),
    row("Table 2", "what a copy of 8 KB costs by the state of the cache", "37 us hot, 257 cold, 330 dirty", table_2,
        why="It is the processor's doing, not uncopy's: a miss costs more copies' worth than it did.", seconds=10),
    row("Table 3", "ttcp, one processor at each end", "+42% send, +51% receive", table_3,
        why="Linux' own sockets are sent from by reference only from some 92 KB on, where that costs less than the copy, and are received from by a copy: "
        "both small writes and reads gain over rings only.", seconds=16),
    row("Table 3, touch", "ttcp, every word written before and read after", "+11% send, +25% receive", table_3_touch,
        why="What is written before each send is copied: taking it away and giving it back would cost more than that.", seconds=16),
    row("Table 4", "ttcp on a HyperSPARC, whose caches need flushing", "+33% send, +37% receive", impossible=True,
        absent="No processor here has a cache that is indexed by virtual addresses."),
    row("Table 5", "ttcp on a server of several processors", "+13% send, +38% receive", table_5,
        why="As in table 3; the shares of cache misses are not here, because this machine has no counters of them.", seconds=16),
    row("Fig. 2", "FTP of a file of 1 MB", "nearly 2x send, +40% receive, half with copy-on-write faults", figure_2,
        why="Pieces of 8 KB are copied; a kept file gains in pieces of some 92 KB and more.", seconds=16),
    row("Fig. 3", "several ttcp at once", "single copies slow down, 115 to 500 us; zero copy stays flat", figure_3,
        why="The figure has the time of the copy alone, ours is all of a sender's; and there are two processors here.", seconds=20),
    row("Table 6", "sending without copy-on-write", "-25% to -43%", table_6,
        why="uncopy never protects what it sends, so this is what it would cost if it did.", seconds=8),
]
