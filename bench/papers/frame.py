"""What a row of docs/papers.md is, how it is measured, and how it is judged.

A row is one figure, table or headline of one of the five papers. It has parts: numbers that the paper prints, each beside ours. Both
are ratios that are larger where the paper's (or our) system is better, unless the part says that it is something else.

A part is *same* where both numbers mean the same thing, so the larger one is better whatever the hardware (a ratio of two sides on one
machine). It is *kind* where the mechanism is the same and the set-up is not (other cores, another load, no such device): then only the
direction is judged. A row without a measurement is *missing* where it could be built and *impossible* where this machine lacks what
it needs.
"""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BENCH = os.path.join(ROOT, "target", "release", "uncopy-bench")
UNCOPY = os.path.join(ROOT, "target", "release", "uncopy")
# A measurement that has not ended after so many seconds never will.
PATIENCE = 3600
# Ratios that differ by less are alike (a second plain side differs by as much). A second plain side that differs by more than MOST
# excuses no more than that: the row wants a quieter machine.
NOISE, MOST = 0.02, 0.06

VERDICTS = ("better", "mixed", "in kind", "worse", "missing", "impossible")


class Unmeasured(Exception):
    """Something that a measurement needs is not here, or it failed: what, and what to do."""


@dataclasses.dataclass
class Part:
    """One number of the paper's beside ours.

    name: what of the figure ("512 KB, 12 copies"). theirs, ours: None where there is none (the paper prints a curve without a number).
    unit: "x" for a ratio of which more is better; anything else is shown as it is and judged by `good`. noise: how far a second
    plain side was from the first, as a fraction. same: see above. good: whether ours is as good, where `unit` is not "x".
    note: what else belongs to this number (the plain side's value, processor time)."""

    name: str
    theirs: float | None
    ours: float | None
    unit: str = "x"
    noise: float | None = None
    same: bool = True
    good: bool | None = None
    note: str = ""

    def verdict(self):
        if self.ours is None:
            return "missing"
        if self.good is not None:
            return ("better" if self.same else "in kind") if self.good else "worse"
        margin = min(max(NOISE, self.noise or 0), MOST)
        if not self.same or self.theirs is None:
            # The direction: a gain there is one here, within the noise.
            return "worse" if self.theirs is not None and self.theirs > 1 and self.ours < 1 - margin else "in kind"
        return "better" if self.ours >= self.theirs * (1 - margin) else "worse"


@dataclasses.dataclass
class Row:
    """paper: key of `PAPERS`. figure: as the paper calls it. what: what it measures, in a few words. theirs: the paper's headline.
    measure: called with a `Run`, returns parts. why: why ours differs, a sentence; shown where it is worse or of another set-up.
    absent: why there is no measurement; impossible: whether that is this machine's doing. seconds: what `--quick` takes, about."""

    key: str
    paper: str
    figure: str
    what: str
    theirs: str
    measure: Callable | None = None
    why: str = ""
    absent: str = ""
    impossible: bool = False
    seconds: int = 10


@dataclasses.dataclass
class Result:
    """What a measurement said, as it is kept in JSON."""

    parts: list
    commands: list
    seconds: float
    failed: str = ""


def verdict(row, result):
    """One word for a row; `result` is None where it was not measured."""
    if row.measure is None:
        return "impossible" if row.impossible else "missing"
    if result is None or not result.parts:
        return "missing"
    # (Numbers that the paper does not have are shown, and judge nothing where there are others.)
    judged = [part for part in result.parts if part.theirs is not None or part.good is not None] or result.parts
    words = {part.verdict() for part in judged} - {"missing"}
    if not words:
        return "missing"
    if len(words) == 1:
        return words.pop()
    if "worse" in words:
        return "mixed"
    return "in kind" if "in kind" in words else "better"


class Run:
    """What measurements are given: commands by which everything is measured, and how much time there is."""

    def __init__(self, quick, show=sys.stderr):
        self.quick = quick
        self.show = show
        self.commands = []
        self.kept = {}

    def pick(self, quick, full):
        """One of two, by how much time there is."""
        return quick if self.quick else full

    def bench(self, *words):
        """Rows of `uncopy-bench WORDS --json`. The same words are measured once, whichever rows want them."""
        return json.loads(self.command([BENCH, *words, "--json"]))

    def python(self, script, *words):
        """What a script of bench/ prints: `script` by its path from the repository's root."""
        return self.command([sys.executable, os.path.join(ROOT, script), *words])

    def command(self, words, **more):
        """What a command prints. Raises Unmeasured where it fails, with what it said."""
        shown = shlex.join([os.path.relpath(w, ROOT) if str(w).startswith(ROOT) else "python3" if w == sys.executable else str(w) for w in words])
        if shown not in self.commands:
            self.commands.append(shown)
        if shown in self.kept:
            return self.kept[shown]
        print(f"    {shown}", file=self.show, flush=True)
        try:
            done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, **more)
        except FileNotFoundError as e:
            raise Unmeasured(f"{e.filename} is not here: `make bench` builds what measures") from e
        except subprocess.TimeoutExpired as e:
            raise Unmeasured(f"{shown}: has not ended after {PATIENCE} s") from e
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise Unmeasured(f"{shown}: {said[-1] if said else f'exit code {done.returncode}'}")
        self.kept[shown] = done.stdout
        return done.stdout


def measured(row, run):
    """Measures a row: never raises but for what is the script's own fault."""
    run.commands = []
    began = time.monotonic()
    try:
        parts, failed = row.measure(run), ""
    except Unmeasured as e:
        parts, failed = [], str(e)
    return Result(parts, list(run.commands), time.monotonic() - began, failed)


def to_json(results):
    return {key: dataclasses.asdict(result) for key, result in results.items()}


def from_json(kept):
    return {
        key: Result([Part(**part) for part in of["parts"]], of["commands"], of["seconds"], of["failed"])
        for key, of in kept.items()
    }
