"""docs/papers.md from measured rows."""

from frame import MOST, VERDICTS, verdict

PAPERS = {
    "zio": "zIO: Accelerating IO-Intensive Applications with Transparent Zero-Copy IO (OSDI 2022)",
    "tas": "TAS, and what the dissertation adds to zIO (Stamler)",
    "zcopy": "ZCopy: twin memory allocation",
    "solaris": "Zero-copy TCP in Solaris (USENIX 1996)",
    "article": "Zero copy: principle and implementation",
}
MEANING = {
    "better": "at least the paper's number, both meaning the same",
    "mixed": "some of its numbers",
    "in kind": "the same mechanism in another set-up, and a gain where the paper has one",
    "worse": "below the paper's number, or a loss where the paper gains",
    "missing": "not measured",
    "impossible": "this machine lacks what it needs",
}


def number(value, unit):
    if value is None:
        return "–"
    if unit == "x":
        return f"{value:.2f}x"
    digits = 0 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def escaped(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def noisy(part):
    """What else belongs to a number, and how far two plain sides were apart where that is much."""
    apart = f"two plain sides {100 * part.noise:.0f} % apart" if part.noise and part.noise > MOST else ""
    return "; ".join(filter(None, [part.note, apart]))


def cells(row, result):
    """Lines of a row's table: a part each."""
    word = verdict(row, result)
    first = [f"{row.figure}", row.what, row.theirs]
    if row.measure is None or result is None or not result.parts:
        why = row.absent or (result.failed if result else "") or "not measured in this run"
        return [[*first, "–", "–", "–", word, why]]
    lines = []
    for i, part in enumerate(result.parts):
        head = first if i == 0 else ["", "", ""]
        own = part.verdict()
        lines.append([
            *head,
            part.name,
            number(part.theirs, part.unit) if part.theirs is not None else "–",
            number(part.ours, part.unit),
            f"**{word}**" if i == 0 else (own if own != word else ""),
            noisy(part),
        ])
    return lines


def table(lines):
    head = ["figure", "what", "the paper's headline", "number", "theirs", "ours", "verdict", "besides"]
    out = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return out + ["| " + " | ".join(escaped(cell) for cell in line) + " |" for line in lines]


def sentences(rows, results):
    """A line for each row that is worse or mixed: why."""
    out = []
    for row in rows:
        word = verdict(row, results.get(row.key))
        if word in ("worse", "mixed"):
            out.append(f"- {PAPERS[row.paper].split(':')[0].split(',')[0]}, {row.figure} ({row.what}), {word}: {row.why or 'The cause is not known.'}")
    return out


def page(rows, results, about):
    """The whole document. `about`: host, kernel, commit, command, date, seconds."""
    words = [verdict(row, results.get(row.key)) for row in rows]
    counts = {word: words.count(word) for word in VERDICTS}
    out = [
        "# The papers' figures, and ours",
        "",
        f"Written by `{about['command']}`: nothing here is written by hand.",
        "",
        "|  |  |",
        "| --- | --- |",
        *[f"| {name} | {escaped(about[name])} |" for name in ("processor", "memory", "kernel", "congestion control", "commit", "date", "took")],
        "",
        "Ratios are the paper's system, or uncopy, over what it is compared with in the same run: above 1 is a gain.",
        "Where the paper's hardware or load differs, only the direction is judged (*in kind*).",
        "",
        "## In short",
        "",
        "| verdict | rows | meaning |",
        "| --- | --- | --- |",
        *[f"| {word} | {counts[word]} | {MEANING[word]} |" for word in VERDICTS],
        f"| all | {len(rows)} |  |",
        "",
        "Why rows are worse, or mixed:",
        "",
        *(sentences(rows, results) or ["- (none is)"]),
    ]
    for paper, title in PAPERS.items():
        of = [row for row in rows if row.paper == paper]
        if not of:
            continue
        out += ["", f"## {title}", ""]
        out += table([line for row in of for line in cells(row, results.get(row.key))])
    out += ["", "## Commands", "", "One row again: `bench/papers/reproduce.py --only KEY`.", "", "| key | figure | commands | took |", "| --- | --- | --- | --- |"]
    for row in rows:
        result = results.get(row.key)
        if result and result.commands:
            said = "<br>".join(f"`{escaped(command)}`" for command in result.commands)
            out.append(f"| {row.key} | {row.figure} | {said} | {result.seconds:.0f} s |")
    others = [row for row in rows if row.why and verdict(row, results.get(row.key)) in ("in kind", "better")]
    if others:
        out += ["", "## Where the set-up differs", ""]
        out += [f"- {PAPERS[row.paper].split(':')[0].split(',')[0]}, {row.figure} ({row.what}): {row.why}" for row in others]
    return "\n".join(out) + "\n"
