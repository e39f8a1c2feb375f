"""What the measurements of this directory share: programs of C, the sides they run on, turns, and medians.

A *side* is a way to run the same programs: plainly, plainly once more (what these two differ by is noise), under `uncopy run`, and
under `uncopy run --tcp`, where connections of this host go through rings, by a service of this side's own. All sides are alive at
once and take short turns, each time in another order, so that what else the machine does meets all alike. Processor time is that of
whole processes (helper threads too), and of the service.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from frame import Unmeasured

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from machine import answers, control, descendants, free_port, size_of  # noqa: E402, F401

STATE = os.path.join(ROOT, "target", "bench-papers")
UNCOPY = os.environ.get("UNCOPY", os.path.join(ROOT, "target", "release", "uncopy"))
# side: options of `uncopy run`; None: plainly.
SIDES = {
    "plain": None,
    "again": None,
    "uncopy": [],
    "shims": ["--elide=no", "--lend=no", "--allocator=no", "--copies=libc"],
    "kept": ["--file-memory=256M"],
    "rings": ["--tcp", "--require"],
    "references": ["--tcp", "--require", "--tcp-references=yes"],
}
# A program that says nothing for so many seconds never will.
PATIENCE = 60
SHUTDOWNS = "TLB shootdowns"


class Failure(Unmeasured):
    """What went wrong, in one line for the user."""


def program(name, *flags):
    """Where the program of programs/NAME.c lies, built if it is older than its source."""
    source, made = os.path.join(HERE, "programs", name + ".c"), os.path.join(STATE, name)
    if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(source):
        os.makedirs(STATE, exist_ok=True)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            raise Failure("there is no C compiler here: apt-get install gcc libc6-dev")
        fresh = f"{made}.{os.getpid()}"
        done = subprocess.run([compiler, "-O2", "-Wall", "-o", fresh, source, "-lpthread", *flags], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(f"{source}: {done.stderr.strip().splitlines()[-1]}")
        os.rename(fresh, made)
    return made


def installed(name, package):
    """Where a program of the distribution lies."""
    found = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if not found:
        raise Failure(f"{name} is not installed: apt-get install {package}")
    return found


def cores():
    """The first for servers and senders, the second for what drives them."""
    found = sorted(os.sched_getaffinity(0))
    return found[0], found[1] if len(found) > 1 else found[0]


def congestion(name):
    """See `machine.control`. Reno instead of CUBIC in a network namespace that is not allowed that (without loss they do the same)."""
    text = "cannot make {} the congestion control ({}): that is root's"
    return control(name, lambda *why: Failure(text.format(*why)), ["reno"] if name == "cubic" else [])


def wait_port(port, process, side, patience=30):
    """Until a program of this side answers at the port."""
    if not answers(port, patience, lambda: process.poll() is None):
        raise Failure(f"nothing answers on port {port}: {side.said()}")


def cpu(pid):
    """Nanoseconds that a process and all that it started have run: their threads, those that ended too (clock_getcpuclockid(3))."""
    total = 0
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            total += time.clock_gettime_ns((~each << 3) | 2)
    return total


def shootdowns(text=None):
    """TLB shootdowns of all processors since the machine started."""
    if text is None:
        with open("/proc/interrupts") as f:
            text = f.read()
    line = next((line for line in text.splitlines() if line.endswith(SHUTDOWNS)), None)
    return sum(int(word) for word in line.split()[1:] if word.isdigit()) if line else 0


def die_with_us():
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)


class Side:
    """Starts programs the way of one side, and ends them, by their pids, in the reverse order."""

    def __init__(self, name, options=(), user=(), env=()):
        self.name, self.options, self.user = name, list(options), list(user)
        self.directory = tempfile.mkdtemp(prefix="uncopy-papers-")
        os.chmod(self.directory, 0o777)
        self.children, self.service = [], None
        self.env = dict(os.environ, **dict(env))
        if self.is_rings:
            self.env["UNCOPY_TCP_SERVICE"] = f"papers-{os.getpid()}-{id(self):x}"
            self.service = self.popen([*self.user, UNCOPY, "tcp", "serve", "--name", self.env["UNCOPY_TCP_SERVICE"]], cores()[0])
            time.sleep(0.3)

    @property
    def is_rings(self):
        return "--tcp" in (SIDES[self.name] or [])

    def words(self, command):
        options = SIDES[self.name]
        under = [] if options is None else [UNCOPY, "run", *options, *self.options, "--"]
        return [*self.user, *under, *map(str, command)]

    def popen(self, words, core, **how):
        # (The directory is the side's own: what a program leaves behind goes with it.)
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "cwd": self.directory} | how
        with open(os.path.join(self.directory, "said"), "ab") as said:
            pinned = {core} if isinstance(core, int) else set(core)
            child = subprocess.Popen(
                [str(word) for word in words], stderr=said, env=self.env, preexec_fn=lambda: (os.sched_setaffinity(0, pinned), die_with_us()), **how
            )
        self.children.append(child)
        return child

    def start(self, command, core, **how):
        return self.popen(self.words(command), core, **how)

    def talk(self, command, core):
        """A program that is told what to do in lines, and answers in lines."""
        return Talker(self, self.start(command, core, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def service_cpu(self):
        return cpu(self.service.pid) if self.service else 0

    def said(self):
        with open(os.path.join(self.directory, "said"), errors="replace") as f:
            return " ".join(f.read().split())[-300:]

    def end(self):
        for child in self.children[::-1]:
            for pipe in filter(None, (child.stdin, child.stdout)):
                with contextlib.suppress(OSError):
                    pipe.close()
            if child.poll() is None:
                # (The service ends all that it has at SIGINT; who is told by the end of its input has ended.)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(0.05)
                if child.poll() is None:
                    child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            if child.poll() is None:
                child.kill()
                child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Talker:
    def __init__(self, side, process):
        self.side, self.process, self.pid = side, process, process.pid

    def line(self):
        said = self.process.stdout.readline()
        if not said:
            self.process.wait(PATIENCE)
            raise Failure(f"{self.side.name}: {self.process.args[-8:]} ended with status {self.process.returncode}: {self.side.said()}")
        return said.strip()

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.line())

    def cpu(self):
        return cpu(self.pid)


@contextlib.contextmanager
def sides(names, **how):
    """Side objects by name; ended whatever happens."""
    found = {}
    try:
        for name in names:
            found[name] = Side(name, **how)
        yield found
    finally:
        for side in reversed(found.values()):
            side.end()


def in_turns(names, count, turn, warm=1):
    """`turn(name)` is called `count` times for each name, in an order that goes round; what `warm` rounds before gave is left out.
    Returns what it gave, by name, in the order of the rounds."""
    names, found = list(names), {name: [] for name in names}
    for nth in range(-warm, count):
        first = nth % len(names)
        for name in names[first:] + names[:first]:
            gave = turn(name)
            if nth >= 0:
                found[name].append(gave)
    return found


def alike(turns, control):
    """Fails where the connections of a side did not have this congestion control, as they say themselves."""
    for side, of in turns.items():
        had = {turn["control"] for turn in of} - {control}
        if had:
            raise Failure(f"the connections of {side} had {', '.join(sorted(had)) or 'none'}, not {control}: the sides would not be alike")


def ratio(turns, side, key, other="plain"):
    """Median of what `other` took over what `side` took, turn by turn: above 1 is a gain of `side`. `key(turn)`: what it took."""
    return statistics.median(key(a) / key(b) for a, b in zip(turns[other], turns[side]))


def median(turns, side, key):
    return statistics.median(key(turn) for turn in turns[side])


# Two plain sides that are further apart say nothing of a third.
APART = 0.5


def noise(again):
    """How far a second plain side was from the first, as a fraction; where that is far, there is no figure."""
    apart = abs(again - 1)
    if apart > APART:
        raise Failure(f"two plain sides were {apart:.0%} apart: the machine is busy with something else")
    return round(apart, 3)


def give_back(where):
    """The pages of redis' append-only file below `where`: what comes next is written into memory that was written before."""
    folder = os.path.join(where, "appendonlydir")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if name.endswith(".incr.aof") and os.path.getsize(path):
            subprocess.run(["fallocate", "-p", "-o", "0", "-l", str(os.path.getsize(path)), path], check=True)


def main(measure):
    """Prints what `measure()` gives, as JSON; a failure in one line."""
    # (A signal that ends this ends what it started, too, and finds the congestion control as it
    # was.)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        print(json.dumps(measure()))
    except (Failure, OSError, subprocess.SubprocessError) as why:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {why}")
