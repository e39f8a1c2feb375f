#!/usr/bin/env python3
"""Power is lost under a file system with logged files, at any write of its disk; then recovery, and what is there is judged.

    power.py [--seconds N] [--seed S] [--kind ext4|xfs|btrfs] [--states N] [--recover 0|1] [--works WORK,...]

Programs run on a loop device over a disk that remembers each write and flush (disk.py). A state is what such a disk may have at
one moment: all that it had at its last flush, and of what was written since all, nothing, some writes, or some sectors of
them. Each is mounted as in another boot, `uncopy log recover` runs, and files are compared with what had been acknowledged by
then (changes.py). Some recoveries lose power, too, and are begun again. Needs root, FUSE and loop devices.
"""

import argparse
import bisect
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import changes  # noqa: E402
import disk  # noqa: E402
import stores  # noqa: E402

UNCOPY = os.environ.get("UNCOPY", os.path.join(REPO, "target/release/uncopy"))
MAKE = {
    "ext4": (160, "mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 -J size=8"),
    "xfs": (320, "mkfs.xfs -q -f"),
    "btrfs": (320, "mkfs.btrfs -q -f -m single"),
}
# (Not in /dev/shm, which is another one for each boot.)
BOOTS = tempfile.mkdtemp()
OPTIONS = {"xfs": "loop,nouuid"}


def sh(script, **more):
    return subprocess.run(["sh", "-c", script], check=True, **more)


class Recorder:
    """A disk with the bytes of `image`, mounted as a file system."""

    def __init__(self, ground, image, kind):
        self.directory = os.path.join(ground, "disk")
        self.place = os.path.join(ground, "files")
        self.trace = os.path.join(ground, "trace")
        os.makedirs(self.directory, exist_ok=True)
        os.makedirs(self.place, exist_ok=True)
        with open("/proc/uptime", encoding="ascii") as file:
            self.up = int(float(file.read().split()[0]))
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(KeyboardInterrupt):
                disk.serve(image, self.directory, self.trace)
            os._exit(0)
        until = time.monotonic() + 10
        while not os.path.ismount(self.directory) and time.monotonic() < until:
            time.sleep(0.001)
        options = OPTIONS.get(kind, "loop")
        sh(f"mount -t {kind} -o {options} '{self.directory}/disk' '{self.place}'")

    def end(self):
        for place in (self.place, self.directory):
            for _ in range(100):
                if subprocess.run(["umount", place], capture_output=True, check=False).returncode == 0:
                    break
                time.sleep(0.02)
            else:
                raise RuntimeError(f"{place} cannot be unmounted")
        os.waitpid(self.pid, 0)


def apply(image, writes):
    for at, data in writes:
        os.pwrite(image, data, at)


class Disk:
    """What a disk was told, and what it may have after a loss of power."""

    def __init__(self, base, trace, until):
        self.base = base
        self.events = [event for event in disk.traced(trace) if event[0] <= until]
        self.flushed = 0  # Events that `base` has.

    def moment(self, count):
        """When power was lost after so many events, at the latest."""
        return self.events[count][0] if count < len(self.events) else self.events[-1][0]

    def advance(self, count):
        """`base` gets what is durable for sure after `count` events. Returns what was written since."""
        last = max((i for i in range(self.flushed, count) if self.events[i][2] is None), default=self.flushed)
        apply(self.base, [(at, data) for _, at, data in self.events[self.flushed : last] if data])
        self.flushed = last
        return [(at, data) for _, at, data in self.events[last:count] if data]


def torn(chance, writes, unit):
    """Pieces of `writes`. (A file system's own blocks are written whole: of these only the log's may be torn.)"""
    pieces = []
    for at, data in writes:
        step = unit if data.startswith(b"uc") or data.startswith(b"uncopylg") else 4096
        pieces += [(at + i, data[i : i + step]) for i in range(0, len(data), step) if chance.random() < 0.5]
    return pieces


def kept(chance, writes):
    """What of `writes` has come to the disk."""
    ways = ["all", "none", "some", "sectors", "blocks", "all but one"]
    # (A flush of the log that is under way.)
    is_log = writes and writes[-1][1].startswith(b"uc")
    way = chance.choice(["sectors", *ways] if is_log else ways)
    if way == "none" or not writes:
        return way, []
    if way == "some":
        return way, [write for write in writes if chance.random() < 0.5]
    if way == "all but one":
        out = chance.randrange(len(writes))
        return way, writes[:out] + writes[out + 1 :]
    if way in ("sectors", "blocks"):
        return way, torn(chance, writes, 512 if way == "sectors" else 4096)
    return "all", writes


class Work:
    """A program that ran once, and what it said: when each of its operations had returned."""

    def __init__(self, kind, ground, place, number, seed, seconds, under, answers):
        self.kind, self.seed, self.name = kind, seed, f"f{number}"
        self.told = os.path.join(ground, f"told.{number}")
        self.place = self.name if kind == "changes" else f"{kind}.{number}"
        words = [sys.executable, os.path.join(HERE, "stores.py"), kind, os.path.join(place, self.place), str(seed), str(seconds)]
        if kind == "changes":
            words = [sys.executable, os.path.join(HERE, "changes.py"), place, self.name, str(seed), str(seconds)]
        else:
            os.mkdir(os.path.join(place, self.place))
            sh(f"sync -f '{place}'")
        served = kind in stores.SERVED
        if served:
            # (Answers wait in a queue only by TCP.)
            port = 21000 + seed % 10000 if answers or kind != "redis" else 0
            program = stores.compiled(ground) if kind == "kv" else None
            words, address = stores.server(kind, os.path.join(place, self.place), seed, port, program)
        with open(self.told, "wb") as out, open(os.devnull, "wb") as nothing:
            self.process = subprocess.Popen(under + words, stdout=nothing if served else out, start_new_session=True)
        self.client = None
        if served:
            self.client = threading.Thread(target=self.ask, args=(address, time.monotonic() + seconds))
            self.client.start()

    def ask(self, address, end):
        with open(self.told, "wb", buffering=0) as out:
            stores.asks(self.kind, address, self.seed, end, lambda number, at: out.write(b"%d %d\n" % (number, at)))

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.client:
            self.client.join()

    def read(self, until):
        with open(self.told, "rb") as file:
            lines = [tuple(map(int, line.split())) for line in file.read().split(b"\n")[:-1]]
        lines = sorted((line for line in lines if line[1] <= until), key=lambda line: line[1])
        self.times, self.numbers = [line[1] for line in lines], [line[0] for line in lines]
        if self.kind == "changes":
            self.inodes = {line[0]: line[2] for line in lines}
            self.models = changes.simulated(self.seed, len(lines))

    def faults(self, place, moment, strict):
        """What is wrong with its files there, if power was lost at that moment."""
        count = bisect.bisect_left(self.times, moment)
        if self.kind != "changes":
            where = os.path.join(place, self.place)
            # (It may not have begun.)
            if not count and not os.path.isdir(where):
                return []
            told = self.numbers[:count]
            why = stores.fault(self.kind, where, self.seed, max(told, default=0), told) if os.path.isdir(where) else "its directory is not there"
            return [f"{self.place} (seed {self.seed}): {why}"] if why else []
        found, there, returned = [], {}, count - 1
        if returned < 0:
            return []
        for name in os.listdir(place):
            path = os.path.join(place, name)
            if os.path.isfile(path):
                there[os.stat(path).st_ino] = path
        for model in (model for model in self.models if model.born <= returned):
            path = there.get(self.inodes[model.born])
            # (An inode's number comes again.)
            if model.unlinked is not None and model.unlinked <= returned + 1:
                continue
            if path is None:
                found.append(f"{self.name} (seed {self.seed}): the file made by operation {model.born} is not there")
                continue
            with open(path, "rb") as file:
                why = model.fault(file.read(), returned, strict)
            if why:
                where = f"(seed {self.seed}, born {model.born}, {returned} operations had returned)"
                found.append(f"{os.path.basename(path)} {where}: {why}")
        return found


class Session:
    """Programs that ran once, and the moments at which power may have been lost."""

    def __init__(self, ground, kind, seed, seconds, works, plain, under="", answers=False):
        self.ground, self.kind = ground, kind
        megabytes, make = MAKE[kind]
        self.image = os.path.join(ground, "image")
        with open(self.image, "wb") as file:
            file.truncate(megabytes << 20)
        sh(f"{make} '{self.image}' >/dev/null")
        recorder = Recorder(ground, self.image, kind)
        place = recorder.place
        wait = ["--log-sync=answers"] if answers else []
        under = under.split() if plain else [UNCOPY, "run", f"--log={place}/log", "--log-size=4M", *wait, "--"]
        self.works = [Work(what, ground, place, i, seed * 5 + i, seconds, under, answers) for i, what in enumerate(works)]
        time.sleep(seconds + 0.5)
        self.died = [work.name for work in self.works if work.process.poll() is not None]
        status = subprocess.run([UNCOPY, "log", "status", f"{place}/log"], capture_output=True, text=True, check=False).stdout
        held = [line for line in status.splitlines() if line.startswith(("held", "plain"))]
        reasons = ("opened-later", "ends", "not-appended", "no-gain", "no-log", "shared", "busy")
        self.held = sum(line.startswith("held") or any(f": {name} (" in line for name in reasons) for line in held)
        self.answers = [line for line in status.splitlines() if line.startswith(("answers wait", "syncs are as ever"))]
        until = time.monotonic_ns()
        for work in self.works:
            work.end()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().split(b"\0")[1:3] == [b"__log-service", os.fsencode(f"{place}/log")]:
                    os.kill(int(pid), signal.SIGKILL)
        recorder.end()
        # (In another boot the disk may have another number.)
        other = os.path.join(ground, "other")
        with open(other, "wb") as file:
            file.truncate(1 << 20)
        taken = sh(f"losetup -f --show '{other}'", capture_output=True, text=True).stdout.strip()
        # (It is free again once this process has it open no more, however that ends.)
        self.taken = os.open(taken, os.O_RDONLY)
        sh(f"losetup -d {taken}")
        for work in self.works:
            work.read(until)
        self.operations = sum(len(work.times) for work in self.works)
        self.fd = os.open(self.image, os.O_RDWR)
        self.disk = Disk(self.fd, recorder.trace, until)

    def end(self):
        os.close(self.fd)
        os.close(self.taken)

    def faults(self, place, moment, strict):
        return [fault for work in self.works for fault in work.faults(place, moment, strict)]


def recover(place, boot, up):
    """As another boot does, which began when `up`: nothing in /dev/shm, another boot's number and clock."""
    script = f"mount -t tmpfs none /dev/shm && mount --bind '{boot}' /proc/sys/kernel/random/boot_id && exec '{UNCOPY}' log recover '{place}/log'"
    words = ["unshare", "-m", "-T", f"--boottime=-{up}", "sh", "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def other_boot():
    path = os.path.join(BOOTS, "boot")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{uuid.uuid4()}\n")
    return path


def judged(session, chance, image, moment, what, counts, depth, options):
    """Recovers what `image` has, and judges it. Now and then the power is lost meanwhile, and again."""
    ground = os.path.join(session.ground, f"state.{depth}")
    os.makedirs(ground, exist_ok=True)
    recorder = Recorder(ground, image, session.kind)
    faults = []
    # (Stores write when they are looked at.)
    looks = options.recover and all(work.kind == "changes" for work in session.works)
    try:
        if options.plain:
            faults += session.faults(recorder.place, moment, options.strict)
        elif os.path.isdir(f"{recorder.place}/log"):
            before = session.faults(recorder.place, moment, False) if looks and chance.random() < 0.3 else None
            counts["looked at before"] += before is not None
            counts["needed it"] += bool(before)
            if options.recover:
                done = recover(recorder.place, other_boot(), recorder.up)
                counts["came from the log"] += "came from the log" in done.stdout + done.stderr
                if done.returncode != 0:
                    faults.append(f"recovery says {done.returncode}: {done.stdout} {done.stderr}")
                lost = f"{recorder.place}/log/lost"
                if os.path.isdir(lost) and os.listdir(lost):
                    faults.append(f"{os.listdir(lost)} in lost/")
            faults += session.faults(recorder.place, moment, options.strict)
    finally:
        if faults and options.keep:
            shutil.copytree(recorder.place, os.path.join(options.keep, "files"), dirs_exist_ok=True)
            shutil.copy(image, os.path.join(options.keep, "image"))
            faults.append(subprocess.run(f"stat {recorder.place}/f*; date +%s.%N", shell=True, capture_output=True, text=True).stdout)
        ended = time.monotonic_ns()
        recorder.end()
    counts["states"] += 1
    counts["recoveries that lost power"] += depth > 0
    if faults:
        return [f"{what}: {fault}" for fault in faults]
    if depth < 2 and options.recover and not options.plain and chance.random() < 0.15:
        inner = os.path.join(ground, "inner")
        shutil.copy(image, inner)
        fd = os.open(inner, os.O_RDWR)
        try:
            of = Disk(fd, recorder.trace, ended)
            count = chance.randrange(len(of.events) + 1) if of.events else 0
            way, writes = kept(chance, of.advance(count))
            apply(fd, writes)
        finally:
            os.close(fd)
        return judged(session, chance, inner, moment, f"{what}, then {count} of its recovery, {way}", counts, depth + 1, options)
    return []


def states(session, chance, number, options, end):
    """Up to `number` of them."""
    counts = dict.fromkeys(["states", "came from the log", "looked at before", "needed it", "recoveries that lost power"], 0)
    total = len(session.disk.events)
    # (Not before the directory is there.)
    first = total // 20
    logs = [i + 1 for i in range(first, total) if (session.disk.events[i][2] or b"").startswith(b"uc")]
    moments = sorted(chance.choice(logs) if logs and chance.random() < 0.4 else chance.randrange(first, total + 1) for _ in range(number))
    faults = []
    for count in moments:
        if time.monotonic() > end or faults:
            break
        since = session.disk.advance(count)
        way, writes = kept(chance, since)
        what = f"{session.kind}, after {count} of {total} writes and flushes, {len(since)} since a flush, of these {way}"
        undo = [(at, os.pread(session.fd, len(data), at)) for at, data in writes]
        apply(session.fd, writes)
        faults += judged(session, chance, session.image, session.disk.moment(count), what, counts, 0, options)
        apply(session.fd, reversed(undo))
    return counts, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="for all sessions together")
    parser.add_argument("--run", type=float, default=2.5, help="seconds that programs run in a session")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--kind", choices=MAKE, default="ext4")
    parser.add_argument("--states", type=int, default=60, help="of each session")
    parser.add_argument("--works", default="changes,changes", help="what runs: changes, " + ", ".join((*stores.KINDS, *stores.SERVED[1:])))
    parser.add_argument("--recover", type=int, default=1, help="0: none, so that faults are to be found")
    parser.add_argument("--answers", action="store_true", help="answers wait for syncs: --log-sync=answers")
    parser.add_argument("--plain", action="store_true", help="no log at all: what the file system does")
    parser.add_argument("--under", default="", help="with --plain: words before each program's")
    parser.add_argument("--strict", action="store_true", help="zeros are nothing that may be left, also of what was not acknowledged")
    parser.add_argument("--keep", help="what is wrong is copied there")
    args = parser.parse_args()
    if os.environ.get("LOG_POWER") != "inside":
        # (Mounts of our own; whatever happens, nothing of it stays.)
        os.environ["LOG_POWER"] = "inside"
        words = ["unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words, check=False).returncode)
    sh("mount -t tmpfs none /dev/shm")
    grounds = tempfile.mkdtemp()
    sh(f"mount -t tmpfs none '{grounds}'")
    works = args.works.split(",")
    end, seed, faults, all_counts, sessions, operations, held = time.monotonic() + args.seconds, args.seed, [], {}, 0, 0, 0
    said = set()
    while time.monotonic() < end - args.run and not faults:
        with tempfile.TemporaryDirectory(dir=grounds) as ground:
            session = Session(ground, args.kind, seed, args.run, works, args.plain, args.under, args.answers)
            operations, held = operations + session.operations, held + session.held
            said.update(session.answers)
            if session.died:
                faults.append(f"{session.died} ended early")
            try:
                counts, found = states(session, random.Random(seed), args.states, args, end)
            finally:
                session.end()
            faults += [f"power: seed {seed}: {fault}" for fault in found]
        for name, count in counts.items():
            all_counts[name] = all_counts.get(name, 0) + count
        sessions, seed = sessions + 1, seed + 1
    print(f"power: {args.kind}: seed {args.seed}, {sessions} sessions, {operations} operations, held {held} times; {all_counts}")
    if said:
        print(f"power: {'; '.join(sorted(said))}")
    if args.answers and not faults:
        if operations == 0:
            faults.append("nothing was answered")
        if set(works) & set(stores.WAIT) and not any(line.startswith("answers wait for syncs") for line in said):
            faults.append("answers do not wait")
    for fault in faults:
        print(f"FAIL  {fault}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
