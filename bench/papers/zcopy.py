"""The rows of "Revisiting Software Zero-Copy for Web-caching Applications with Twin Memory Allocation" (Song and others, APSys 2012)."""

import json

import turns
from frame import Part, Row

RANGES = ((8192, 16384), (8192, 65536), (65536, 1 << 20), (1 << 20, 4 << 20))


def servers(run, server, *words):
    quick = ("--turns", "7", "--seconds", "0.06")
    return json.loads(run.python("bench/papers/servers.py", server, *words, *run.pick(quick, ("--turns", "25", "--seconds", "0.15"))))["rows"]


def part(name, theirs, row, side, same=True):
    """Answers a second of the side over plain's; its server has a core of its own that it saturates, as the paper's does."""
    sides = row["sides"]
    plain, ours = sides["plain"], sides[side]
    note = f"{plain['per_s']:,.0f} a second plain, {ours['per_s']:,.0f}; processor time of both ends {ours['both_ratio']:.2f} times better"
    return Part(name, theirs, ours["rate_ratio"], noise=turns.noise(sides["again"]["rate_ratio"]), same=same, note=note)


def served(run, server, sizes):
    parts = []
    for mode, words in (("keep", "connections stay"), ("close", "a connection for each request")):
        for row in servers(run, server, "--sizes", ",".join(sizes), "--mode", mode):
            theirs = next(gain for word, gain in sizes.items() if turns.size_of(word) == row["size"])
            for side, how in (("uncopy", "uncopy"), ("rings", "over rings")):
                parts.append(part(f"{row['size']:,} bytes, {words}, {how}", theirs, row, side, same=side == "uncopy"))
    return parts


def figure_8(run):
    return served(run, "memcached", {"512": 1.408, "1K": 1.308})


def figure_10(run):
    return served(run, "varnish", {"6K": 1.078})


def datagrams(run):
    sizes = "512,768,1024,1472,4096,9000,65000"
    return {row["size"]: row for row in json.loads(run.command([turns.program("udp"), "127.0.0.1", sizes]))}


def by_reference(found, size, theirs, name):
    row = found[size]
    best = min(row["splice"], row["zerocopy"])
    note = f"{row['send']:,} ns by send, {row['splice']:,} by vmsplice and splice, {row['zerocopy']:,} with MSG_ZEROCOPY"
    return Part(name, theirs, round(row["send"] / best, 3), same=False, note=note)


def figure_6(run):
    found = datagrams(run)
    theirs = {512: 1.287, 768: 1.411}
    return [by_reference(found, size, theirs.get(size), f"a datagram of {size:,} bytes by Linux' best way by reference") for size in (512, 768, 9000, 65000)]


def figure_7(run):
    return [by_reference(datagrams(run), 1024, 1.47, "what the sender pays for a datagram of 1,024 bytes, copied over by reference")]


def figure_9(run):
    parts = []
    for row in servers(run, "memcached", "--sizes", "512,1K", "--mode", "keep"):
        for side, how in (("uncopy", "uncopy"), ("rings", "over rings")):
            plain, ours = row["sides"]["plain"], row["sides"][side]
            note = f"{plain['cpu_us']:.2f} us of the server and the service for a request plain, {ours['cpu_us']:.2f}"
            noise = turns.noise(row["sides"]["again"]["cpu_ratio"])
            parts.append(Part(f"{row['size']:,} bytes, {how}", None, ours["cpu_ratio"], noise=noise, same=side == "uncopy", note=note))
    return parts


def answers(said):
    """Of `uncopy doctor --json`: us until a touched page is there, by where the thread that answers runs; and of a call of the kernel."""
    took = {(of["work"], of["bytes"]): of["ns"] / 1e3 for of in said["measured"]}
    return took["fault_same_core", 4096], took["fault_other_core", 4096], took["system_call", 0]


def table_2(run):
    same, other, call = answers(json.loads(run.command([turns.UNCOPY, "doctor", "--json", "--no-cache"])))
    parts = []
    for where, us in (("the same core", same), ("another core", other)):
        note = f"2,802 cycles of 1.87 GHz there, 2.4 calls of getpid; here {us / call:.0f} calls of {call * 1e3:.0f} ns"
        parts.append(Part(f"a touch is answered by a thread on {where}", 1.5, round(us, 2), unit="us", good=us <= 1.5, note=note))
    return parts


def porting(run):
    # The memcached that is run here is the distribution's package as it is.
    version = run.command([turns.installed("memcached", "memcached"), "--version"]).strip()
    return [
        Part("memcached: lines changed", 10, 0, unit="lines", good=True, note=f"{version} as the distribution has it"),
        Part("varnish: lines changed", 3, 0, unit="lines", good=True),
    ]


def waste(run):
    made, parts = turns.program("waste"), []
    for least, most in RANGES:
        shares = {}
        for name, under in (("plain", []), ("uncopy", [turns.UNCOPY, "run", "--"])):
            said = json.loads(run.command([*under, made, run.pick(1 << 28, 1 << 30), least, most]))
            shares[name] = max(said["grew"] / said["asked"], said["grew_later"] / said["asked_later"]) * 100 - 100
        words = f"blocks of {least >> 10} to {most >> 10} KB" if most < 1 << 20 else f"blocks of {least >> 10} KB to {most >> 20} MB"
        ours = round(shares["uncopy"], 2)
        parts.append(Part(words, 6.25, ours, unit="%", good=ours <= 6.25, note=f"glibc's own {shares['plain']:.2f}%; all that the library has is counted"))
    return parts


def row(figure, what, theirs, measure=None, **more):
    key = "zcopy-" + figure.lower().replace(" ", "-").replace(",", "").replace(".", "")
    return Row(key, "zcopy", figure, what, theirs, measure, **more)


NO_COUNTERS = "This machine is a virtual one without hardware counters of cache misses."
ROWS = [
    row("Fig. 6", "memcached over UDP", "+28.7% at 512 B, +41.1% at 768 B", figure_6,
        why="uncopy sends datagrams as Linux does: one of up to 9 KB costs more by reference than its copy ([measured](decisions/datagrams-by-reference.md)).", seconds=4),
    row("Fig. 7", "what sending a datagram costs", "4,400 cycles copied, 3,000 by reference, at 1 KB", figure_7,
        why="Two calls, or a completion to be reaped, cost more than copying 1 KB does today.", seconds=1),
    row("Table 1", "misses of the second cache", "10% to 15% fewer", impossible=True, absent=NO_COUNTERS),
    row("Fig. 8", "memcached over TCP", "+40.8% at 512 B, +30.8% at 1 KB", figure_8,
        why="Values of that size are copied to Linux' sockets, which costs less than a reference; over rings the kernel's whole part goes, "
        "but a connection of one request pays for asking the service and stays with Linux.", seconds=30),
    row("Fig. 9", "time in tcp_sendmsg for a request", "less at all sizes (a curve)", figure_9,
        why="Ours is all of the server's time for a request: over rings there is no such function, and through Linux' sockets it is Linux' own.", seconds=1),
    row("Fig. 10", "varnish", "+7.8% at 6 KB", figure_10,
        why="As for memcached; varnish's own work and its threads take most of some 22 us a request, of which the rings spare about what uncopy's calls cost.", seconds=22),
    row("Table 2", "what a write to protected data costs", "2,802 cycles, 1.5 us", table_2,
        why="A touch is answered by a thread of the program's, not by the kernel: that takes two switches of threads.", seconds=7),
    row("Porting", "lines changed in a program", "10 in memcached, 3 in varnish", porting, seconds=1),
    row("Waste", "memory that the allocator takes beyond what is asked for", "at most 6.25%", waste,
        why="Blocks are rounded up to whole pages, an eighth at most.", seconds=3),
]
