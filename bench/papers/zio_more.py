"""Rows of zIO (OSDI 2022) that have commands of their own here: shares of copies, Icecast, web servers over threads, huge pages, remapping."""

import json

import turns
from frame import Part, Row


def script(run, name, *words):
    return json.loads(run.python(f"bench/papers/{name}.py", *words))


def figure_1(run):
    parts = []
    theirs = {65536: 39.0, 524288: 60.0}
    for side, words in (("plain", "Linux"), ("uncopy", "under uncopy")):
        for row in script(run, "share", "redis", "--side", side, "--seconds", run.pick("1.5", "8"))["rows"]:
            ours = round(row["kernel"] + row["program"], 1)
            note = f"{row['program']}% in the program, {row['kernel']}% in the kernel"
            paper = theirs[row["size"]] if side == "plain" else None
            parts.append(Part(f"values of {row['size'] >> 10} KB, {words}", paper, ours, unit="%", same=False, note=note))
    return parts


def table_3(run):
    stored = ["icecast-file", "--sizes", "1100K", "--mode", "close", "--connections", "16", "--sides", "kept,rings"]
    rows = script(run, "servers", *stored, *run.pick(("--turns", "3", "--warm", "0"), ("--turns", "25", "--warm", "2")))["rows"]
    live = script(run, "icecast", *run.pick(("--turns", "3", "--bytes", "4M"), ("--turns", "15", "--bytes", "16M")))["sides"]
    parts = []
    for side, how in (("kept", "uncopy, file kept"), ("rings", "over rings")):
        sides = rows[0]["sides"]
        note = f"{sides['plain']['cpu_us']:,.0f} us of the server for a file plain, {sides[side]['cpu_us']:,.0f}"
        noise = turns.noise(sides["again"]["cpu_ratio"])
        parts.append(Part(f"storage to network, {how}", 1.25, sides[side]["cpu_ratio"], noise=noise, same=False, note=note))
    for side, how in (("uncopy", "uncopy"), ("rings", "over rings")):
        note = f"{live['plain']['cpu_us']:,.0f} us of the server for a MB to a listener plain, {live[side]['cpu_us']:,.0f}"
        noise = turns.noise(live["again"]["cpu_ratio"])
        parts.append(Part(f"listeners, {how}", 1.16, live[side]["cpu_ratio"], noise=noise, same=False, note=note))
    return parts


def web(run, *words):
    return script(run, "web", *words, *run.pick(("--turns", "7", "--seconds", "0.06"), ("--turns", "25", "--seconds", "0.15")))["rows"]


def figure_14(run):
    parts = []
    columns = "read,read:again,mmap,sendfile,mmapsendfile,read:kept"
    for piece in ("64K", "512K"):
        for row in web(run, "--threads", run.pick("1,2", "1,2,4"), "--piece", piece, "--columns", columns):
            of = row["columns"]
            ours = of["read:kept"]
            noise = turns.noise(of["read:again"]["cpu_ratio"])
            threads = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}, pieces of {piece[:-1]} KB"
            for against, theirs, words in (("mmap", 1.17, "a mapping"), ("sendfile", 1.07, "read and sendfile"), ("mmapsendfile", 1.3, "mapping and sendfile")):
                other = of[against]
                note = (
                    f"processor time of the server, {other['cpu_us']:,.0f} us over {ours['cpu_us']:,.0f}; rate {ours['rate_ratio'] / other['rate_ratio']:.2f}; "
                    f"shootdowns for an answer {ours['shootdowns']:g}, there {other['shootdowns']:g}"
                )
                parts.append(Part(f"{threads}, over {words}", theirs, round(ours["cpu_ratio"] / other["cpu_ratio"], 3), noise=noise, same=False, note=note))
    return parts


def figure_15(run):
    parts = []
    for row in web(run, "--threads", run.pick("1,2", "1,2,4"), "--piece", "32K", "--columns", "prefault,prefault:again,prefault:uncopy,prefault:rings"):
        of = row["columns"]
        noise = turns.noise(of["prefault:again"]["cpu_ratio"])
        for column, how in (("prefault:uncopy", "uncopy"), ("prefault:rings", "over rings")):
            ours = of[column]
            note = f"processor time of the server; rate {ours['rate_ratio']:.2f}; shootdowns for an answer {ours['shootdowns']:g}, plain {of['prefault']['shootdowns']:g}"
            words = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}, {how}"
            parts.append(Part(words, None, ours["cpu_ratio"], noise=noise, same=False, note=note))
    return parts


def huge_pages(run):
    sides = script(run, "redis_pages", "huge", "--turns", run.pick("5", "21"))["sides"]
    plain, ours = sides["plain"], sides["uncopy"]
    return [
        Part("share of memory in huge pages, plain", 40.0, round(plain["huge"] * 100, 1), unit="%", same=False),
        Part("share of memory in huge pages, uncopy", 35.0, round(ours["huge"] * 100, 1), unit="%", same=False, good=ours["huge"] >= plain["huge"] * 0.875),
        Part("processor time with huge pages on both sides", 1.3, ours["cpu_ratio"], noise=turns.noise(sides["again"]["cpu_ratio"]),
             note=f"{plain['cpu_us']:,.0f} us for a SET or GET of 512 KB plain, {ours['cpu_us']:,.0f}"),
    ]


def remapping(run):
    found = script(run, "redis_pages", "remap")
    words = {"copies": "copies in the program", "calls": "calls that read and write"}
    parts = [Part("all of a SET's bytes", 40.0, round(found["share"] * 100, 1), unit="%", same=False, good=found["share"] <= 0.4)]
    for key, of in found["rows"].items():
        parts.append(Part(f"by {words[key]}", None, round((of["share"] or 0) * 100, 1), unit="%", same=False, note=f"of {of['bytes'] / 1e6:,.0f} MB"))
    if found.get("elided") is not None:
        parts.append(Part("of its copies' bytes, what views can stand for", None, round(found["elided"] * 100, 1), unit="%", same=False))
    return parts


def row(figure, what, theirs, measure=None, **more):
    return Row("zio-" + figure.lower().replace(" ", "-").replace(".", ""), "zio", figure, what, theirs, measure, **more)


ROWS = [
    row("Fig. 1", "share of processor time in copies, redis SET with an append-only file", "39% at 64 KB, 60% at 512 KB", figure_1,
        why="Fresh memory costs more here than copying: redis gets each value's and each buffer's pages anew, in a virtual machine.", seconds=16),
    row("Table 3", "Icecast", "1.25x from storage, 1.16x listeners", table_3,
        why="Both of the paper's sides have a stack of the program's own; plain here is Linux. Icecast sends files in pieces of 4,096 bytes and a stream in pieces of 1,400: "
        "nothing to refer to, but the ring spares the kernel's part of each; a file has a connection of its own, which costs more over rings than the few calls on it gain.", seconds=65),
    row("Fig. 14", "a web server over threads", "+17% over mappings, +7% and +30% over sendfile", figure_14,
        why="Pieces of 64 KB, the paper's, are copied, because Linux sends by reference from some 92 KB on only; in one piece the file gains what the paper says, "
        "and a kept file's reads cost no shootdown where mappings do.", seconds=27),
    row("Fig. 15", "buffers that are faulted in before", "gains with few threads, loses with many (a curve)", figure_15,
        why="Pieces of 32 KB that are mapped for one use are not worth taking apart: uncopy leaves them alone, and its look at each mapping and call costs up to a tenth.", seconds=11),
    row("Huge pages", "redis with huge pages", "40% of memory in them, 35% with zIO; still 1.3x", huge_pages,
        why="A huge page is split when a part of it becomes a view, and jemalloc uses the same memory for values again and again.", seconds=7),
    row("Remapping", "what mapping pages elsewhere could save of redis' copies", "only about 40% of the bytes", remapping,
        why="Redis 7 has a head of its own before each value, so that no two buffers lie alike within their pages: views need no such luck.", seconds=2),
]
