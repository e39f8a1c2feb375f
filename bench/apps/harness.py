"""Servers side by side, in turns: plain, plain again (what these differ by is noise), plain with glibc told to keep its memory, uncopy's
allocator alone, uncopy without elision and sending by reference, and uncopy.

For each server and size six fresh processes live side by side on one core, the load on another; all are warmed for as long, then they take
short turns, so that what else the machine does meets all alike. Each is driven with one connection, four and sixty-four. CPU is that of all
the server's living threads (schedstat: the ticks of /proc/PID/stat are too coarse for short turns). Ratios are medians of the turns' own: CPU of plain over
that of the side, requests a second of the side over plain's; above 1 is a gain. `elision` is uncopy without elision over uncopy: its own
gain; `copies` the allocator alone over uncopy without elision, which copies faster. Before timing, and after it, every answer is verified against what it must be.

Congestion control is the same on both sides of a ratio: with `--congestion cubic,bbr` all is measured under each, set as the kernel's default
while a side's connections are made (as root). Where BBR is it, uncopy sets Reno for its listeners on loopback. Then a plain server with Reno is
measured beside (`switched`): plain over it is what the switch itself brings, and it over uncopy (`same`) what uncopy gains with the same
congestion control on both sides. Which one the server's connections have, they say themselves (getsockopt); a row without `same` has no such side.

With `--apart` the load's connections come over a device: apart.py.

With `--budget` it ends by itself: time that is left is shared out among the servers and sizes that are left; load before the timing is
shortened (so uncopy may be timed while it still learns) and turns are dropped, never the verification. A server whose program is missing is named, with how to install it."""

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import loads  # noqa: E402
import machine  # noqa: E402
import memory  # noqa: E402
from apart import Apart  # noqa: E402
from loads import Failure, Wrong, connect  # noqa: E402
from machine import default_control, descendants, free_port, living_cpu, size_of  # noqa: E402

STATE = os.path.join(ROOT, "target", "bench-apps")
VENV = os.path.join(STATE, "venv")
PYTHON = os.path.join(VENV, "bin", "python")
# Package of PyPI: the module that it brings.
PYPI = {"aiohttp": "aiohttp", "uvicorn": "uvicorn", "h11": "h11", "grpcio": "grpc"}
# Program: Debian's package.
DEBIAN = {
    "nginx": "nginx-light",
    "node": "nodejs",
    "postgres": "postgresql",
    "memcached": "memcached",
    "varnishd": "varnish",
    "redis-server": "redis-server",
    "haproxy": "haproxy",
}
PATHS = "/usr/sbin:/sbin"
KEEP = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"
UNELIDED = ["--elide=no", "--lend=no"]
# Those under uncopy, by what is switched off.
UNDER = {"placed": [*UNELIDED, "--copies=libc"], "no_elision": UNELIDED, "uncopy": []}
SIDES = ("plain", "again", "kept", *UNDER)
# The congestion control that uncopy sets instead of BBR, and a plain server with it from the
# beginning.
SWITCHED, RENO = "switched", "reno"
# With `--parts`: uncopy with one part switched off, and with all of them off but the shims.
PARTS = {
    "no_allocator": ["--allocator=no"],
    "no_lending": ["--lend=no"],
    "libcs_copies": ["--copies=libc"],
    "shims": [*UNELIDED, "--allocator=no", "--copies=libc"],
}
HOLD = 3 << 30
# A server that does not listen after so many seconds never will.
STARTS = 30
# A turn of one side, in seconds: short against what else a shared machine does, for 50 to 300 ms at a time. (One plain redis beside another,
# 5 s for each: 15 turns of 0.3 s differ by 8%, 80 of 0.06 s by 1%.)
TURN = 0.06
# Load before turns are timed comes in pieces of so many seconds.
PIECE = 0.25
# Fewer turns have no median worth the name; more in one round say less than another round of fresh processes.
TURNS = (5, 40)

OPTIONS = None


@dataclasses.dataclass
class Server:
    """What it is to a user (a report's first table has the first of each kind); how it is started (port, directory -> command and a
    helper's command), what drives it, which programs it needs, and options of `uncopy run`."""

    words: str
    start: object
    load: object
    needs: tuple
    options: tuple = ()


def python_server(script, interpreter=PYTHON):
    return lambda port, directory: ([interpreter, os.path.join(HERE, "servers", script), str(port)], None)


def origin():
    """A helper that answers GETs, and its port."""
    port = free_port()
    script = os.path.join(HERE, "servers", "origin.py")
    return port, ["taskset", "-c", str(OPTIONS.load_core), sys.executable, script, str(port)]


def find(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":" + PATHS) or next(iter(postgres_bin(program)), None)


def postgres_bin(program):
    root = "/usr/lib/postgresql"
    versions = sorted(os.listdir(root), reverse=True) if program in ("postgres", "initdb") and os.path.isdir(root) else []
    paths = (os.path.join(root, version, "bin", program) for version in versions)
    return [path for path in paths if os.path.exists(path)]


def has_module(module):
    return subprocess.run([PYTHON, "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def missing(server):
    """Why it can't be started here, if so."""
    for need in server.needs:
        if need in PYPI:
            why = python_package(need)
            if why:
                return why
        elif not find(need):
            return f"{need} is not installed: apt-get install {DEBIAN[need]} (or bench/apps/all.py --install)"
    return None


def python_package(package):
    try:
        if not os.path.exists(PYTHON):
            os.makedirs(STATE, exist_ok=True)
            subprocess.run([sys.executable, "-m", "venv", VENV], check=True, stdout=sys.stderr)
        if not has_module(PYPI[package]):
            subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", package], check=True, stdout=sys.stderr, cwd=STATE)
    except (OSError, subprocess.CalledProcessError) as why:
        return f"{package} is not installed: {VENV}/bin/pip install {package} ({why})"
    return None


def control(name):
    """See `machine.control`."""
    text = "cannot make {} the congestion control ({}): --congestion is root's, outside of containers"
    return machine.control(name, lambda *why: Failure(text.format(*why)))


PIDFD_GETFD = 438


def controls(pids, port):
    """The congestion control of each connection that these processes have accepted at the port, as their sockets say."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            process = os.pidfd_open(pid)
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                        continue
                    own = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, int(fd), 0)
                    if own < 0:
                        continue
                    with socket.socket(fileno=own) as s:
                        if s.family in (socket.AF_INET, socket.AF_INET6) and s.getsockname()[1] == port and s.getpeername():
                            found.add(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode())
            os.close(process)
    return sorted(found)


@dataclasses.dataclass
class Turn:
    """CPU of the server for a request in us, requests a second, latencies in us."""

    cpu: float
    rate: float
    latencies: list
    controls: list = ()


class Process:
    """One server; ended by its pid whatever happens."""

    def __init__(self, server, side, size, stack):
        self.directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="uncopy-apps-"))
        self.port = free_port()
        self.server, self.side = server, side
        command, helper = server.start(self.port, self.directory)
        env = dict(os.environ)
        if side == "kept":
            env["GLIBC_TUNABLES"] = ":".join(filter(None, [env.get("GLIBC_TUNABLES"), KEEP]))
        if side in UNDER or side in PARTS:
            options = [*server.options, *OPTIONS.uncopy_option, *(UNDER | PARTS)[side]]
            command = [OPTIONS.uncopy, "run", "--verbose=counters", *options, "--", *command]
        self.said = os.path.join(self.directory, "said")
        self.children = []
        stack.callback(self.end)
        with open(self.said, "ab") as said:
            if helper:
                self.children.append(subprocess.Popen(helper, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
            command = ["taskset", "-c", str(OPTIONS.server_core), *command]
            self.main = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env)
        self.children.append(self.main)
        if helper:
            connect(int(helper[-1])).close()
        end = time.monotonic() + STARTS
        while True:
            with contextlib.suppress(Failure):
                connect(self.port, 0.5).close()
                break
            if self.main.poll() is not None:
                raise Failure(f"with {side} it ended with status {self.main.returncode}: {self.last_words()}")
            if time.monotonic() > end:
                raise Failure(f"with {side} nothing answers on port {self.port} after {STARTS} s: {self.last_words()}")
        self.load = server.load(self.port, size)

    def last_words(self):
        with open(self.said, errors="replace") as f:
            return f.read()[-400:].strip()

    def cpu(self):
        return living_cpu(descendants(self.main.pid))

    def control(self):
        """While it is this one's turn."""
        return control(RENO if self.side == SWITCHED else getattr(OPTIONS, "control", None))

    def connections(self, n):
        with self.control():
            self.load.connections(n)

    def verify(self):
        with self.control():
            self.load.verify()

    def run(self, seconds):
        before = self.cpu()
        with self.control():
            timed = self.load.run(seconds)
        requests = len(timed.latencies)
        return Turn((self.cpu() - before) / 1e3 / requests, requests / timed.elapsed, [t * 1e6 for t in timed.latencies])

    def end(self):
        if hasattr(self, "load"):
            self.load.close()
        if OPTIONS.show and self.side == "uncopy" and hasattr(self, "main"):
            for pid in descendants(self.main.pid):
                subprocess.run([OPTIONS.uncopy, "stat", "-p", str(pid)], check=False, stdout=sys.stderr)
        for child in self.children[::-1]:
            ended(child)


def ended(child, how=signal.SIGTERM):
    """Has a process of ours end, and waits for it."""
    child.send_signal(how)
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def sides():
    return SIDES + tuple(PARTS) if OPTIONS.parts else SIDES


def started():
    """What is started: where BBR is the congestion control, also a plain server with what uncopy sets instead."""
    return (*sides(), SWITCHED) if OPTIONS.control.startswith("bbr") else sides()


def round_of_turns(name, server, size, share):
    """Fresh processes; their turns for each number of connections. `share`: seconds for all of it, or None."""
    began = time.monotonic()
    found = {}
    with contextlib.ExitStack() as stack:
        processes = {}
        try:
            for side in started():
                processes[side] = Process(server, side, size, stack)
            before = time.monotonic()
            for p in processes.values():
                p.verify()
            verifying = time.monotonic() - before
            for i, connections in enumerate(OPTIONS.connections):
                left = None if share is None else share - (time.monotonic() - began) - verifying
                part = left and left / (len(OPTIONS.connections) - i)
                # (Most of what there is to learn it has learned with the first.)
                warm = OPTIONS.warm if i == 0 else OPTIONS.warm / 2
                # A third of what time there is.
                warm = warm if part is None else min(warm, max(TURN, part / 3 / len(processes)))
                found[connections] = turns_of(processes, connections, warm, part)
            for p in processes.values():
                p.verify()
        except (Failure, OSError) as why:
            for side, p in processes.items():
                print(f"{name}, {side}, said: {p.last_words()}", file=sys.stderr)
            raise (why if isinstance(why, Wrong) else Failure(why)) from None
    return found


def turns_of(processes, connections, warm, share):
    began = time.monotonic()
    for p in processes.values():
        p.connections(connections)
    # All for as long: a server that is older may take more for a request, as varnish does, whose log goes round. (In pieces: uvicorn and Node
    # close connections that say nothing for five seconds.)
    pieces = max(1, round(warm / PIECE))
    for _ in range(pieces):
        for p in processes.values():
            p.run(warm / pieces)
    turns = []
    while True:
        first = len(turns) % len(processes)
        order = [*processes][first:] + [*processes][:first]
        before = time.monotonic()
        turn = {side: processes[side].run(OPTIONS.turn) for side in order}
        turns.append(turn)
        took = time.monotonic() - before
        if len(turns) >= (OPTIONS.turns if share is None else TURNS[1]):
            break
        if share is not None and len(turns) >= TURNS[0] and time.monotonic() - began + took > share:
            break
    for side, p in processes.items():
        turns[-1][side].controls = controls(descendants(p.main.pid), p.port)
        p.connections(0)
    return turns


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def same(turns):
    """The plain side whose connections have the congestion control that uncopy's have, as all of them say."""
    told = {side: {c for t in turns for c in t[side].controls} for side in turns[0]}
    return next((side for side in ("plain", SWITCHED) if side in told and len(told[side]) == 1 and told[side] == told["uncopy"]), None)


def row(name, server, size, connections, turns):
    found = {}
    for side in started():
        ratios = [t["plain"].cpu / t[side].cpu for t in turns]
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        found[side] = {
            "cpu_us": round(statistics.median(t[side].cpu for t in turns), 2),
            "per_s": round(statistics.median(t[side].rate for t in turns), 1),
            "p99_us": round(percentile([late for t in turns for late in t[side].latencies], 0.99), 1),
            "cpu_ratio": round(statistics.median(ratios), 3),
            "rate_ratio": round(statistics.median(t[side].rate / t["plain"].rate for t in turns), 3),
            "cpu_spread": [round(quartiles[0], 3), round(quartiles[2], 3)],
        }
    switched, beside = found.pop(SWITCHED, None), same(turns)
    return {
        "congestion": OPTIONS.control,
        "controls": {side: sorted({c for t in turns for c in t[side].controls}) for side in turns[0]},
        "switched": switched,
        "switch_cpu": switched and switched["cpu_ratio"],
        "same_cpu": beside and round(statistics.median(t[beside].cpu / t["uncopy"].cpu for t in turns), 3),
        "name": name,
        "words": server.words,
        "size": size,
        "connections": connections,
        "sides": found,
        "copies_cpu": round(statistics.median(t["placed"].cpu / t["no_elision"].cpu for t in turns), 3),
        "elision_cpu": round(statistics.median(t["no_elision"].cpu / t["uncopy"].cpu for t in turns), 3),
        "options": [*server.options, *OPTIONS.uncopy_option],
        "turns": len(turns),
    }


def measure(name, server, size, share):
    """Two processes of one program differ by what memory they happen to have: where there is time, more rounds of fresh ones."""
    began = time.monotonic()
    found = {connections: [] for connections in OPTIONS.connections}
    rounds = 0
    while True:
        left = None if share is None else max(0.0, share - (time.monotonic() - began))
        before = time.monotonic()
        for connections, turns in round_of_turns(name, server, size, left).items():
            found[connections] += turns
        rounds += 1
        took = time.monotonic() - before
        if share is None and rounds >= OPTIONS.rounds or share is not None and time.monotonic() - began + took > share:
            return [row(name, server, size, connections, turns) for connections, turns in found.items()]


HEADER = (
    f"{'server':34} {'size':>6} {'conns':>5} {'plain us':>9} | CPU: {'again':>5} {'kept':>5} {'placed':>6} {'no el.':>6} {'uncopy':>6} {'(middle half)':>14} "
    f"{'control':>8} {'switch':>6} {'same':>5} "
    f"own: {'copies':>6} {'elision':>7} | rate: {'again':>5} {'uncopy':>6} | p99: {'plain':>8} {'again':>8} {'uncopy':>8}"
)


def ratio(value):
    return "-" if value is None else f"{value:.2f}"


def text(r):
    def cpu(side):
        return r["sides"][side]["cpu_ratio"]

    low, high = r["sides"]["uncopy"]["cpu_spread"]
    late = [r["sides"][side]["p99_us"] for side in ("plain", "again", "uncopy")]
    rate = [r["sides"][side]["rate_ratio"] for side in ("again", "uncopy")]
    return (
        f"{r['name']:34} {r['size'] >> 10:>4} K {r['connections']:5} {r['sides']['plain']['cpu_us']:9.1f} |      {cpu('again'):5.2f} "
        f"{cpu('kept'):5.2f} {cpu('placed'):6.2f} {cpu('no_elision'):6.2f} {cpu('uncopy'):6.2f} ({low:5.2f} to {high:4.2f}) "
        f"{r['congestion']:>8} {ratio(r['switch_cpu']):>6} {ratio(r['same_cpu']):>5}      "
        f"{r['copies_cpu']:6.2f} {r['elision_cpu']:7.2f} |       "
        f"{rate[0]:5.2f} {rate[1]:6.2f} |      {late[0]:8.0f} {late[1]:8.0f} {late[2]:8.0f}"
        + "".join(f"\n{'CPU with ' + ' '.join(PARTS[side]):>70} {cpu(side):5.2f}" for side in r["sides"] if side in PARTS)
    )


def arguments(about, sizes="64K,1M"):
    cores = sorted(os.sched_getaffinity(0))
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="servers whose names contain one of these")
    p.add_argument("--sizes", default=sizes, help=f"sizes of bodies, values and messages ({sizes})")
    p.add_argument("--connections", default="1,4,64", help="numbers of connections (1,4,64)")
    p.add_argument("--rounds", type=int, default=3, help="times that the processes are started (3)")
    p.add_argument("--turns", type=int, default=30, help="turns of each process in a round (30)")
    p.add_argument("--turn", type=float, default=TURN, metavar="SECONDS", help=f"length of a turn ({TURN})")
    p.add_argument("--warm", type=float, default=2.0, metavar="SECONDS", help="of load on each process before timing (2)")
    p.add_argument("--budget", type=float, metavar="SECONDS", help="for all of it: as many turns and rounds as fit")
    p.add_argument("--server-core", type=int, default=cores[0])
    p.add_argument("--load-core", type=int, default=cores[-1] if len(cores) < 2 else cores[1])
    p.add_argument("--uncopy", default=os.path.join(ROOT, "target", "release", "uncopy"))
    p.add_argument("--uncopy-option", action="append", default=[], metavar="OPTION", help="handed to `uncopy run`")
    p.add_argument("--fail-below", type=float, metavar="GAIN", help="exit status 1 where a gain in CPU is lower")
    p.add_argument("--parts", action="store_true", help="also uncopy with one part switched off, and the shims alone")
    p.add_argument("--show", action="store_true", help="print the counters and call sites of the server under uncopy (`uncopy stat -p`)")
    p.add_argument("--json", action="store_true", help="print an object for each row, one a line")
    p.add_argument("--congestion", metavar="LIST", help="congestion controls, under each of which all is measured (the kernel's default)")
    p.add_argument("--apart", action="store_true", help="connections come over a veth, from a network namespace of their own (root; not gRPC's)")
    p.add_argument("--install", action="store_true", help="install the servers (Debian packages) first")
    return p.parse_args()


def command():
    """What this is started with: without where uncopy lies, and how it is printed."""
    words = sys.argv[1:]
    if "--uncopy" in words:
        at = words.index("--uncopy")
        del words[at : at + 2]
    kept = [word for word in words if word != "--json" and not word.startswith("--uncopy=")]
    return shlex.join([os.path.relpath(sys.argv[0], ROOT), *kept])


def this_run():
    """Of which commit and machine all rows are, and when they were begun: a table is of one run, or says which rows are older."""
    words = subprocess.run([OPTIONS.uncopy, "--version"], capture_output=True, text=True, check=False).stdout
    with open("/proc/cpuinfo") as f:
        model = next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), "unknown")
    commit = next((line.partition(":")[2].strip() for line in words.splitlines() if line.startswith("commit:")), "unknown")
    return {"commit": commit, "cpu": model, "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}


def say(row=None, missing=None):
    if OPTIONS.json:
        print(json.dumps({"row": row} if row else {"missing": missing}), flush=True)
    elif row:
        print(text(row), flush=True)
    else:
        print(f"{missing['name']:34} not measured: {missing['why']}", flush=True)


def main(servers, about, sizes="64K,1M"):
    """Measures those of `servers` (name: Server) that are asked for; the exit status."""
    global OPTIONS
    OPTIONS = arguments(about, sizes)
    congestions = (OPTIONS.congestion or default_control()).split(",")
    for name in congestions:
        with control(name):
            pass
    OPTIONS.connections = [int(n) for n in OPTIONS.connections.split(",")]
    # A signal that ends this ends the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = {name: s for name, s in servers.items() if any(part.lower() in name.lower() for part in OPTIONS.only)}
    if OPTIONS.install:
        wanted = sorted({DEBIAN[need] for s in chosen.values() for need in s.needs if need in DEBIAN})
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *wanted], check=True, stdout=sys.stderr)
    end = None if OPTIONS.budget is None else time.monotonic() + OPTIONS.budget
    groups = []
    for name, server in chosen.items():
        why = missing(server)
        if why:
            say(missing={"name": name, "why": why})
        else:
            groups += [(name, server, size, c) for size in map(size_of, OPTIONS.sizes.split(",")) for c in congestions]
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    held = memory.hold(min(HOLD, available // 4))
    os.sched_setaffinity(0, {OPTIONS.load_core})
    apart = Apart() if OPTIONS.apart else None
    if apart:
        loads.PLACE = apart.inside
    print(json.dumps({"command": command()}) if OPTIONS.json else HEADER, flush=True)
    if OPTIONS.json:
        print(json.dumps({"run": this_run()}), flush=True)
    bad = False
    for i, (name, server, size, OPTIONS.control) in enumerate(groups):
        if end is not None and time.monotonic() >= end:
            say(missing={"name": f"{name}, {size >> 10} KB", "why": "no time was left"})
            continue
        share = None if end is None else (end - time.monotonic()) / (len(groups) - i)
        if OPTIONS.json:
            print(f"uncopy: {name}, {size >> 10} KB ({i + 1} of {len(groups)})", file=sys.stderr)
        try:
            rows = measure(name, server, size, share)
        except Wrong as why:
            if OPTIONS.json:
                print(json.dumps({"wrong": f"{name}, {size} bytes: {why}"}), flush=True)
            raise
        except Failure as why:
            say(missing={"name": f"{name}, {size >> 10} KB", "why": str(why)})
            bad = True
            continue
        for r in rows:
            say(r)
            bad |= OPTIONS.fail_below is not None and r["sides"]["uncopy"]["cpu_ratio"] < OPTIONS.fail_below
    held.close()
    if apart:
        apart.close()
    return 1 if bad and not OPTIONS.json else 0


def run(servers, about, sizes="64K,1M"):
    """`main`, with a failure in words."""
    try:
        sys.exit(main(servers, about, sizes))
    except Failure as why:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {why}")
