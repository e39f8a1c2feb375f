"""The rows of "Zero-copy: Principle and Implementation" (Zhang, 2024): its experiment in Java, and its counts."""

import json

from frame import Part, Row, Unmeasured


def figure_6(run):
    words = ["--sizes", "64K", "--to", "file", "--ways", "read", "--repeats", "1", "--seconds", "0.1"]
    size = run.pick(["--java-size", "88M"], ["--java-size", "880M", "--java-repeats", "3"])
    java = run.bench("file", "--java", *size, *words)["java"]
    if java is None or java["refused"]:
        raise Unmeasured(f"{java and java['refused']}: apt-get install default-jdk-headless")
    parts = []
    for method in java["methods"]:
        if method["article"] is None:
            continue
        theirs = method["article"] * 100
        for side in ("plain", "uncopy"):
            of = method[side]
            ours = round(of["saved"] * 100, 1)
            parts.append(
                Part(f"{method['name']}, {side}: time saved", theirs, ours, unit="%", good=ours >= theirs,
                     note=f"{of['ms']:,.0f} ms for {java['size'] >> 20} MB, {of['cpu_ms']:,.0f} ms of processor time")
            )
    return parts


# method: (copies by the processor, switches), as the article counts them.
COUNTS = {"read": (2, 4), "mmap": (1, 4), "sendfile": (0, 2)}
WORDS = {"read": "read and write", "mmap": "mmap and write", "sendfile": "sendfile with gather"}


def counts(run):
    found = json.loads(run.python("bench/papers/calls.py", "--times", run.pick("100", "400")))["rows"]
    parts = []
    for method, (copies, switches) in COUNTS.items():
        of = found[method]
        ours = of["kernel"] + of["program"]
        calls = ", ".join(f"{n:g} {name}" for name, n in of["calls"].items())
        # (The article counts making the mapping and not removing it.)
        made = round(2 * sum(n for name, n in of["calls"].items() if name != "munmap"), 1)
        parts.append(Part(f"{WORDS[method]}: copies by the processor", copies, ours, unit="copies", good=ours <= copies))
        parts.append(Part(f"{WORDS[method]}: switches of mode", switches, made, unit="switches", good=made <= switches, note=calls))
    kept = found["kept"]
    calls = ", ".join(f"{n:g} {name}" for name, n in sorted(kept["calls"].items(), key=lambda call: -call[1]))
    parts.append(Part("read and write under uncopy, file kept: switches of mode", 4, kept["switches"], unit="switches", good=kept["switches"] <= 4, note=calls))
    return parts


ROWS = [
    Row("article-fig-6", "article", "Fig. 6", "a file copied in Java", "mmap saves 81% of the time, sendfile 91%", figure_6,
        why="The methods are Java's own and save the same under uncopy, which does not see loops of compiled code.", seconds=12),
    Row("article-counts", "article", "Counts", "copies and switches from a file to a socket", "2 copies by the processor and 4 switches, 1 and 4, 0 and 2", counts,
        why="uncopy saves bytes, not calls: a kept file costs three small calls for one large one, and a send by reference makes several where `send` is one.", seconds=8),
]
