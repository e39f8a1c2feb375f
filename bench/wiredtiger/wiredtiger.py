#!/usr/bin/env python3
"""The MongoDB row of zIO (OSDI '22, 5.4): YCSB's load phase into WiredTiger, documents of 1 MB in 10 fields, plain and under uncopy.

server/insert.py stands for mongod: it receives BSON documents over loopback into memory of their own, copies them element by
element into a document, and inserts that into a collection and its key into an index, in one transaction, with mongod's settings
for tables, transactions and eviction threads; keys are YCSB's ("user" and a hash), fields are random bytes. What of MongoDB is not
there: its own copies and validation (one copy of each element stands for them), replication and its log, block compression (the bytes
are random). Each turn inserts so many more documents and ends with a checkpoint, whose CPU counts as well; the turns before timing
fill WiredTiger's cache, so that eviction keeps pace, as it does in a long load. Databases are in /dev/shm, about a gigabyte each: writes
to files are copies into the page cache of a memory file system, and no disk is measured.

For each of checksums on and off, journal on and off, three servers live side by side on one core, the load on the other: plainly,
plainly with glibc told not to trim, and under uncopy. They take turns. CPU is the process's own clock, of all its threads, by document;
figures are medians of the turns; `gain` (plain over uncopy) and `elision` (untrimmed over uncopy) are medians of the turns' own ratios, of
which the quartiles are shown: single turns differ by factors, because eviction comes in bursts and its threads work by the clock.
With the journal on and checksums off, the journal still has a checksum of each record: WiredTiger has no setting for it.

Every byte is verified: all documents are read back through the server that inserted them; then all from the closed database, by a plain
server; and with the journal on, further ones after a server was killed without a checkpoint. `elided` and `faults` by document are
uncopy's counters before any of that reading.

    bench/wiredtiger/wiredtiger.py --install        builds the release of WiredTiger into target/, about five minutes
    bench/wiredtiger/wiredtiger.py                  all four rows
    bench/wiredtiger/wiredtiger.py --python PYTHON  with an interpreter that has the module `wiredtiger`

PyPI has WiredTiger as a source package, whose setup makes a debug build with diagnostics (it overwrites all that it frees, among others);
--install asks its cmake for a release. Needs Debian's swig, cmake and ninja-build, and a C compiler."""

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
STATE = os.path.join(ROOT, "target", "bench-wiredtiger")
PYTHON = os.path.join(STATE, "venv", "bin", "python")
PACKAGE = "wiredtiger==11.3.1"
UNTRIMMED = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"
MODES = ("plain", "untrimmed", "uncopy")
ROWS = [(checksum, journal) for journal in ("off", "on") for checksum in ("on", "off")]
INSERT, READ, CREATE, CHECKPOINT, FLUSH, CLOSE = range(1, 7)
HEADER = struct.Struct("<IIII")
COUNTERS = ("elided_copies", "elided_bytes", "faults", "moves")
FIELDS = 10
LOADED, KILLED = 0, 1  # tables


class Failure(Exception):
    """What went wrong, in words for the user."""


def note(text):
    print(text, file=sys.stderr, flush=True)


# ---- documents ----


def key_of(number):
    """YCSB's key: the number, hashed by FNV-1a in 64 bits."""
    hashed = 0xCBF29CE484222325
    for _ in range(8):
        hashed = ((hashed ^ (number & 255)) * 0x100000001B3) & (1 << 64) - 1
        number >>= 8
    return b"user%d" % hashed


def document(table, number):
    """The BSON document; its bytes follow from the seed, the table and the number."""
    r = random.Random((OPTIONS.seed << 64) | (table << 32) | number)
    key, size = key_of(number), OPTIONS.size // FIELDS
    parts = [b"\x02_id\0", struct.pack("<i", len(key) + 1), key, b"\0"]
    for i in range(FIELDS):
        parts += [b"\x05field%d\0" % i, struct.pack("<iB", size, 0), r.randbytes(size)]
    return b"".join([struct.pack("<i", 5 + sum(map(len, parts))), *parts, b"\0"])


# ---- the server ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """One server and its database; ended by its pid whatever happens."""

    def __init__(self, mode, checksum, journal, directory):
        self.mode, self.checksum, self.journal, self.directory = mode, checksum, journal, directory
        self.said = os.path.join(directory, "said")
        port, environment = free_port(), dict(os.environ)
        environment.pop("GLIBC_TUNABLES", None)
        command = [OPTIONS.python, os.path.join(HERE, "server", "insert.py")]
        command += [str(port), directory, checksum, journal, str(OPTIONS.cache)]
        if mode == "untrimmed":
            environment["GLIBC_TUNABLES"] = UNTRIMMED
        if mode == "uncopy":
            command = [OPTIONS.uncopy, "run", "--verbose=counters", *OPTIONS.uncopy_option, "--", *command]
        command = ["taskset", "-c", str(OPTIONS.server_core), *command]
        with open(self.said, "ab") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment)
        try:
            self.socket = self._connect(port)
            self.pid = HEADER.unpack(self._exactly(HEADER.size))[3]
        except BaseException:
            self.end()
            raise

    def _connect(self, port):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            try:
                s = socket.create_connection(("127.0.0.1", port), timeout=120)
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return s
            except OSError:
                time.sleep(0.05)
        raise Failure(f"the {self.mode} server does not answer:\n{self.heard()}")

    def heard(self):
        with open(self.said, errors="replace") as f:
            return f.read()[-1500:]

    def _exactly(self, length):
        data = bytearray(length)
        view = memoryview(data)
        while len(view):
            n = self.socket.recv_into(view)
            if not n:
                raise Failure(f"the {self.mode} server ended:\n{self.heard()}")
            view = view[n:]
        return bytes(data)

    def _send(self, operation, table, number, body):
        self.socket.sendall(HEADER.pack(len(body), operation, table, number))
        self.socket.sendall(body)

    def _answer(self, operation, table, number):
        length, *same = HEADER.unpack(self._exactly(HEADER.size))
        if same != [operation, table, number]:
            raise Failure(f"the {self.mode} server answered {same} to {operation, table, number}")
        return self._exactly(length)

    def call(self, operation, table=0, number=0, body=b""):
        try:
            self._send(operation, table, number, body)
            return self._answer(operation, table, number)
        except OSError as why:
            raise Failure(f"the {self.mode} server: {why}\n{self.heard()}") from None

    def insert(self, table, documents):
        """Each is on its way while the one before is inserted: WiredTiger's threads work by the clock too, so waiting counts."""
        sent = []
        try:
            for number, body in documents.items():
                self._send(INSERT, table, number, body)
                sent.append(number)
                if len(sent) > 1:
                    self._answer(INSERT, table, sent[-2])
            self._answer(INSERT, table, sent[-1])
        except OSError as why:
            raise Failure(f"the {self.mode} server: {why}\n{self.heard()}") from None

    def cpu(self):
        """Seconds of CPU, all threads, also those that have ended: the kernel's clock of the process, in nanoseconds."""
        return time.clock_gettime(~self.pid << 3 | 2)

    def load(self, table, documents):
        """Inserts documents, by number, and ends with a checkpoint; CPU seconds by document."""
        used = self.cpu()
        self.insert(table, documents)
        self.call(CHECKPOINT)
        return (self.cpu() - used) / len(documents)

    def verify(self, table, count, when):
        for number in random.Random(OPTIONS.seed + table).sample(range(count), count):
            got, want = self.call(READ, table, number, key_of(number)), document(table, number)
            if got != want:
                at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
                raise Failure(
                    f"{self.mode}, checksums {self.checksum}, journal {self.journal}, seed {OPTIONS.seed}: document {number} of "
                    f"table {table} {when} has {len(got)} bytes of {len(want)}, different from {at} on"
                )

    def counters(self):
        """What `uncopy stat` says of the server."""
        p = subprocess.run([OPTIONS.uncopy, "stat", "--json", "-p", str(self.pid)], capture_output=True, text=True)
        if p.returncode or not p.stdout:
            raise Failure(f"`uncopy stat` of the server under uncopy failed: {p.stderr.strip()}")
        return json.loads(p.stdout.splitlines()[0])["counters"]

    def close(self):
        """Closes the database; all must end well."""
        self.call(CLOSE)
        if self.process.wait(60):
            raise Failure(f"the {self.mode} server ended with {self.process.returncode}:\n{self.heard()}")
        self.end()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if hasattr(self, "socket"):
            self.socket.close()


# ---- a row ----


def reopened(server, stack):
    """A plain server over the database of one that has ended."""
    plain = Server("plain", server.checksum, server.journal, server.directory)
    stack.callback(plain.end)
    return plain


def check(server, count, stack):
    """Whether the server holds what was inserted, and leaves it behind; closes it."""
    server.verify(LOADED, count, "after timing")
    server.close()
    after = reopened(server, stack)
    after.verify(LOADED, count, "read from the closed database")
    after.close()
    if server.journal == "off":
        return
    victim = Server(server.mode, server.checksum, server.journal, server.directory)
    stack.callback(victim.end)
    victim.call(CREATE, KILLED)
    victim.insert(KILLED, {number: document(KILLED, number) for number in range(OPTIONS.killed)})
    victim.call(FLUSH)
    os.kill(victim.pid, 9)
    victim.end()
    after = reopened(server, stack)
    after.verify(KILLED, OPTIONS.killed, "brought back by the journal")
    after.verify(LOADED, count, "read after the journal was replayed")
    after.close()


def quartiles(ratios):
    return statistics.quantiles(ratios, n=4, method="inclusive")[::2] if len(ratios) > 1 else ratios * 2


def measure(checksum, journal):
    with contextlib.ExitStack() as stack:
        servers, turns, count = {}, [], 0
        for mode in MODES:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"uncopy-wt-{mode}-", dir=OPTIONS.dir))
            servers[mode] = Server(mode, checksum, journal, directory)
            stack.callback(servers[mode].end)
            servers[mode].call(CREATE, LOADED)
        for turn in range(OPTIONS.warm + OPTIONS.turns):
            documents, took = {n: document(LOADED, n) for n in range(count, count + OPTIONS.documents)}, {}
            for mode in MODES if turn % 2 == 0 else MODES[::-1]:
                took[mode] = servers[mode].load(LOADED, documents)
            count += len(documents)
            if turn >= OPTIONS.warm:
                turns.append(took)
        counters = servers["uncopy"].counters()
        for server in servers.values():
            check(server, count, stack)
            shutil.rmtree(server.directory)
            os.mkdir(server.directory)
    ratios = [t["plain"] / t["uncopy"] for t in turns]
    return {
        "checksums": checksum,
        "journal": journal,
        "us_per_document": {mode: statistics.median(t[mode] for t in turns) * 1e6 for mode in MODES},
        "gain": statistics.median(ratios),
        "gain_quartiles": quartiles(ratios),
        "elision": statistics.median(t["untrimmed"] / t["uncopy"] for t in turns),
        "counters_per_document": {name: counters.get(name, 0) / count for name in COUNTERS},
        "turns": turns,
    }


# ---- the whole ----


def install():
    subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", "swig", "cmake", "ninja-build"], check=True)
    os.makedirs(STATE, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", os.path.dirname(os.path.dirname(PYTHON))], check=True)
    pip = [PYTHON, "-m", "pip"]
    subprocess.run([*pip, "download", "-q", "--no-binary", "wiredtiger", "--no-deps", "-d", STATE, PACKAGE], check=True)
    name = PACKAGE.replace("==", "-")
    source = os.path.join(STATE, name)
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(os.path.join(STATE, name + ".tar.gz")) as archive:
        archive.extractall(STATE, filter="data")
    setup = os.path.join(source, "setup.py")
    with open(setup) as f:
        text = f.read()
    changed = text.replace("'cmake -B ", "'cmake -DCMAKE_BUILD_TYPE=Release -B ")  # it hands on no environment
    if changed == text:
        raise Failure(f"{setup} calls cmake in another way: the release cannot be asked for")
    with open(setup, "w") as f:
        f.write(changed)
    subprocess.run([*pip, "install", "-q", "--no-cache-dir", source], check=True)
    shutil.rmtree(source)


def build():
    """Which build is measured: the debug build must not pass for the release."""
    probe = "import wiredtiger as w; print(w.wiredtiger_version()[0], w.diagnostic_build(), sep='; diagnostics: ')"
    with tempfile.TemporaryDirectory() as empty:
        p = subprocess.run([OPTIONS.python, "-c", probe], capture_output=True, text=True, cwd=empty)
    if p.returncode:
        raise Failure(f"{OPTIONS.python} has no module wiredtiger (--install, or --python): {p.stderr.strip()[-200:]}")
    return p.stdout.strip()


def settle(directory):
    """Memory that a virtual machine never touched costs several times as much the first time: touch it now."""
    with tempfile.NamedTemporaryFile(dir=directory) as f:
        block = b"\1" * (1 << 20)
        for _ in range(OPTIONS.documents * (OPTIONS.warm + OPTIONS.turns + 2) * len(MODES) * 3 // 2):
            f.write(block)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--checksum", choices=("on", "off"), help="only these rows")
    p.add_argument("--journal", choices=("on", "off"), help="only these rows")
    p.add_argument("--turns", type=int, default=31, help="turns of each server (31)")
    p.add_argument("--documents", type=int, default=30, help="documents of a turn (30)")
    p.add_argument("--size", type=int, default=1 << 20, help="bytes of a document, all fields together (1 MB)")
    p.add_argument("--warm", type=int, default=12, help="turns before timing (12)")
    p.add_argument("--killed", type=int, default=40, help="documents that the journal must bring back (40)")
    p.add_argument("--cache", type=int, default=256, help="WiredTiger's cache, MB (256)")
    p.add_argument("--seed", type=int, default=None, help="of the documents (random, printed)")
    p.add_argument("--dir", default="/dev/shm", help="where the databases are (/dev/shm)")
    p.add_argument("--server-core", default=0)
    p.add_argument("--load-core", default=1)
    p.add_argument("--python", default=PYTHON, help="interpreter with the module wiredtiger")
    p.add_argument("--uncopy", default=os.path.join(ROOT, "target", "release", "uncopy"))
    p.add_argument("--uncopy-option", action="append", default=[], metavar="OPTION", help="handed to `uncopy run`")
    p.add_argument("--fail-below", type=float, metavar="GAIN", help="exit status 1 where a gain is lower")
    p.add_argument("--json", action="store_true", help="results as JSON, the table to standard error")
    p.add_argument("--install", action="store_true", help="build WiredTiger's release into target/, and end")
    options = p.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    return options


def main():
    if OPTIONS.install:
        return install()
    kind = build()
    os.sched_setaffinity(0, {int(OPTIONS.load_core)})
    settle(OPTIONS.dir)
    out = sys.stderr if OPTIONS.json else sys.stdout
    print(f"{kind}; seed {OPTIONS.seed}; {OPTIONS.turns} turns of {OPTIONS.documents} documents of {OPTIONS.size} bytes", file=out)
    print("us of CPU by document", file=out)
    print(f"{'checksums':>9} {'journal':>7} {'plain':>8} {'untrimmed':>9} {'uncopy':>8} {'gain':>6} {'(quartiles)':>14} {'elision':>8}"
          f" {'elided':>7} {'faults':>7}", file=out)  # fmt: skip
    rows = []
    for checksum, journal in ROWS:
        if OPTIONS.checksum not in (None, checksum) or OPTIONS.journal not in (None, journal):
            continue
        row = measure(checksum, journal)
        rows.append(row)
        us, by = row["us_per_document"], row["counters_per_document"]
        print(f"{checksum:>9} {journal:>7} {us['plain']:8.0f} {us['untrimmed']:9.0f} {us['uncopy']:8.0f} {row['gain']:6.2f} "
              f"({row['gain_quartiles'][0]:.2f} to {row['gain_quartiles'][1]:.2f}) {row['elision']:8.2f} {by['elided_copies']:7.1f} "
              f"{by['faults']:7.1f}", file=out, flush=True)  # fmt: skip
    if OPTIONS.json:
        print(json.dumps({"wiredtiger": kind, "seed": OPTIONS.seed, "size": OPTIONS.size, "rows": rows}, indent=1))
    return int(OPTIONS.fail_below is not None and any(r["gain"] < OPTIONS.fail_below for r in rows))


if __name__ == "__main__":
    OPTIONS = arguments()
    try:
        sys.exit(main())
    except Failure as why:
        sys.exit(f"wiredtiger.py: {why}")
