#!/usr/bin/env python3
"""Redis, for real: Debian's redis-server plainly and under `uncopy run --`.

First every byte is verified with a client of this script's own: values of 1 byte to 3 MB, pipelined and in partial
writes, changed by APPEND, SETRANGE, MULTI and others, after BGSAVE under load and a restart from the RDB file, after a
restart from the append-only file, after BGREWRITEAOF under load. A mismatch is an error that names key and offset.

Then redis-benchmark measures SET and GET, plain and uncopy in turns, append-only file off and on: requests per second,
CPU of the server per request (from /proc/PID/stat), resident size (all medians of the repeats), and, from the counters
that the preload library prints at exit, elided copies per request. `ratio` is uncopy over plain for requests per second
and plain over uncopy for CPU, above 1 is a gain in both; it is the median of the repeats' own ratios, because a repeat's
two servers are measured in alternating turns, after one of each that does not count (memory is touched for the first time
then, and uncopy finds out what pays). Files are in /dev/shm when it has room, so that the append-only file's
rows show memory and not a disk; --dir puts them elsewhere.

    bench/redis/redis.py                    all of it, about ten minutes
    bench/redis/redis.py --quick            two sizes, three short repeats: about a minute
    bench/redis/redis.py --verify           only the verification
    bench/redis/redis.py --json >redis.json

Needs redis-server and redis-benchmark (scripts/install-test-deps) and nothing but Python's standard library.
"""

import argparse
import contextlib
import csv
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import memory  # noqa: E402

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TICK = os.sysconf("SC_CLK_TCK")
MODES = ("plain", "uncopy")
COUNTERS = ("elided_copies", "elided_bytes", "faults", "moves")
# Memory that is kept from the host, in bytes: what two servers and their files use.
HOLD = 3 << 30


class Failure(Exception):
    """Something that ends the run, said in one line."""


def note(text):
    """Progress, for people only."""
    print(text, file=sys.stderr, flush=True)


# ---- the client ----


class ReplyError(Exception):
    pass


class Redis:
    """The Redis protocol over one connection; replies are read in the order of the calls."""

    def __init__(self, port, timeout=60.0, receive_buffer=None):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", buffering=65536)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    @staticmethod
    def encode(*args):
        parts = [b"*%d\r\n" % len(args)]
        for arg in args:
            data = arg if isinstance(arg, (bytes, bytearray)) else str(arg).encode()
            parts += (b"$%d\r\n" % len(data), data, b"\r\n")
        return b"".join(parts)

    def send(self, *args):
        self.socket.sendall(self.encode(*args))

    def _exactly(self, n):
        data = self.file.read(n)
        if data is None or len(data) != n:
            raise Failure("the server closed the connection in the middle of a reply")
        return data

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Failure("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise ReplyError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if int(rest) < 0:
                return None
            data = self._exactly(int(rest) + 2)
            if data[-2:] != b"\r\n":
                raise Failure("a reply does not end where its length says")
            return data[:-2]
        if kind == b"*":
            return None if int(rest) < 0 else [self.reply() for _ in range(int(rest))]
        raise Failure(f"a reply begins with {line[:20]!r}")

    def call(self, *args):
        self.send(*args)
        return self.reply()

    def pipeline(self, commands):
        """Sends all of them while reading the replies, so that neither side has to wait for the other's buffer."""
        commands = list(commands)
        failed = []

        def feed():
            try:
                for command in commands:
                    self.send(*command)
            except OSError as e:
                failed.append(e)

        sender = threading.Thread(target=feed, daemon=True)
        sender.start()
        replies = [self.reply() for _ in commands]
        sender.join()
        if failed:
            raise failed[0]
        return replies


# ---- the server ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """One redis-server; `with` ends it by its pid whatever happens."""

    def __init__(self, options, mode, directory, aof, core=None):
        self.mode, self.directory = mode, directory
        self.port = free_port()
        self.log = os.path.join(directory, "server.log")
        self.errors = os.path.join(directory, "server.err")
        command = [options.redis_server, "--port", self.port, "--bind", "127.0.0.1", "--daemonize", "no"]
        command += ["--dir", directory, "--logfile", self.log, "--save", "", "--appendonly", "yes" if aof else "no"]
        command += ["--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0", "--protected-mode", "yes"]
        env = dict(os.environ)
        if mode == "uncopy":
            command = [options.uncopy, "run", *options.uncopy_option, "--", *command]
            env["UNCOPY_VERBOSE"] = "counters"  # prints at start and at exit only
        if core is not None:
            command = ["taskset", "-c", core, *command]
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=env
            )
        self.pid = self.process.pid

    def __enter__(self):
        try:
            self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_):
        self._end()

    def _end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def connect(self, **how):
        return Redis(self.port, **how)

    def said(self):
        """The end of what the server wrote, for an error message."""
        lines = []
        for path in (self.errors, self.log):
            with contextlib.suppress(OSError), open(path, errors="replace") as f:
                lines += [line.rstrip() for line in f][-6:]
        return "\n  ".join(["", *lines])

    def _wait(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failure(f"redis-server ({self.mode}) ended with {self.process.returncode}:{self.said()}")
            try:
                with self.connect(timeout=5) as client:
                    client.call("PING")
                    return
            except ReplyError as e:
                if not str(e).startswith("LOADING"):
                    raise
            except (OSError, Failure):
                pass
            time.sleep(0.02)
        raise Failure(f"redis-server ({self.mode}) did not answer in a minute:{self.said()}")

    def shutdown(self):
        """By the command; returns the counters that the preload library printed."""
        with self.connect() as client:
            client.send("SHUTDOWN", "NOSAVE")
            try:
                client.reply()
            except ReplyError as e:
                raise Failure(f"SHUTDOWN: {e}") from None
            except (OSError, Failure):
                pass
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:
            raise Failure(f"redis-server ({self.mode}) did not end after SHUTDOWN:{self.said()}") from None
        if status:
            raise Failure(f"redis-server ({self.mode}) ended with {status} after SHUTDOWN:{self.said()}")
        with open(self.errors, errors="replace") as f:
            lines = [line for line in f if line.startswith("uncopy:")]
        return {name: int(value) for line in lines for name, value in re.findall(r"(\w+)=(-?\d+)\b", line)}

    def give_back_file(self):
        """Punches out what the append-only file holds: the next turn writes into memory that was written before. Without
        this the file's fresh pages (several times as dear on a virtual machine) decide which side looks faster."""
        folder = os.path.join(self.directory, "appendonlydir")
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.endswith(".incr.aof"):
                path = os.path.join(folder, name)
                subprocess.run(["fallocate", "-p", "-o", "0", "-l", str(max(1, os.path.getsize(path))), path], check=True)

    def cpu(self):
        """Seconds of CPU so far, all threads, user and system."""
        with open(f"/proc/{self.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def rss(self):
        with open(f"/proc/{self.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) * 1024


# ---- verification ----

EDGES = [1, 2, 15, 44, 45, 100, 1000, 4095, 4096, 4097, 8191, 8192, 12345, 16383, 16384, 16385, 20000]
EDGES += [32767, 32768, 32769, 65535, 65536, 65537, 100003, 262144, 262145, 524287, 524288, 524289]
EDGES += [1000003, 1048575, 1048576, 1048577, 3 * 1048576 + 17]


class Verification:
    """What every key must hold, and the steps that bring it there. Every stage ends with a look at every byte."""

    def __init__(self, options, mode, quick):
        self.options, self.mode = options, mode
        self.random = random.Random(options.seed)
        self.values = {}  # key -> bytes
        self.maybe = {}  # key -> the values it may have
        self.edges = EDGES[::2] + EDGES[-1:] if quick else EDGES
        self.checked = self.checked_bytes = 0
        self.stage = ""

    def compare(self, key, got, *wanted):
        if got in wanted:
            self.checked += 1
            self.checked_bytes += len(got)
            return
        want, where = wanted[-1], f"under {self.mode}, {self.stage}, seed {self.options.seed}: key {key!r}"
        if got is None:
            raise Failure(f"{where} is missing; it must have {len(want)} bytes")
        at = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
        wrong = f"has {len(got)} bytes of {len(want)}, different from offset {at} on"
        have, must = got[at : at + 16].hex(), want[at : at + 16].hex()
        raise Failure(f"{where} {wrong}: there is {have or 'nothing'}, not {must or 'nothing'}")

    def expect(self, what, got, want):
        if got != want:
            where = f"under {self.mode}, {self.stage}, seed {self.options.seed}"
            raise Failure(f"{where}: {what} answered {repr(got)[:80]}, not {repr(want)[:80]}")

    def all(self, server, stage):
        """Reads every value, in an order of its own: singly, pipelined, and slowly through a small buffer."""
        self.stage = stage
        keys = sorted(self.values)
        self.random.shuffle(keys)
        third = len(keys) // 3
        with server.connect() as one:
            self.expect("DBSIZE", one.call("DBSIZE"), len(self.values) + len(self.maybe))
            for key in keys[:third]:
                self.compare(key, one.call("GET", key), self.values[key])
            rest = keys[third : 2 * third]
            for key, got in zip(rest, one.pipeline(("GET", key) for key in rest)):
                self.compare(key, got, self.values[key])
            for key, wanted in self.maybe.items():
                self.compare(key, one.call("GET", key), *wanted)
        with server.connect(receive_buffer=4096) as slow:
            for key in keys[2 * third :]:
                slow.send("GET", key)
                time.sleep(0.002)
                self.compare(key, slow.reply(), self.values[key])

    def value(self, size=None):
        if size is None:
            size = self.random.choice(self.edges) + self.random.randrange(0, 50)
        return self.random.randbytes(size)

    def set_all(self, server):
        """Every size three times: singly, pipelined, and in partial writes."""
        self.stage = "SET"
        r = self.random
        for size in self.edges:
            for way in ("one", "pipe", "part"):
                self.values[f"{way}:{size}"] = r.randbytes(size)
        by_way = {w: [(k, v) for k, v in self.values.items() if k.startswith(w)] for w in ("one", "pipe", "part")}
        with server.connect() as client:
            for key, value in by_way["one"]:
                self.expect("SET", client.call("SET", key, value), b"OK")
            r.shuffle(by_way["pipe"])
            replies = client.pipeline(("SET", key, value) for key, value in by_way["pipe"])
            self.expect("SET", replies, [b"OK"] * len(replies))
        with server.connect() as a, server.connect() as b:  # two requests, piece by piece, in turns
            for (key, value), (key2, value2) in zip(by_way["part"], reversed(by_way["part"])):
                wires = [[a, a.encode("SET", key, value)], [b, b.encode("SET", key2 + ":b", value2)]]
                self.values[key2 + ":b"] = value2
                while any(data for _, data in wires):
                    for wire in wires:
                        cut = r.choice((1, 7, 100, 4096, 16384, 40000, 65537, 200000))
                        wire[0].socket.sendall(wire[1][:cut])
                        wire[1] = wire[1][cut:]
                        if r.random() < 0.1:
                            time.sleep(0.001)
                self.expect("SET", [a.reply(), b.reply()], [b"OK", b"OK"])

    def change(self, server):
        """Commands that change, join and carry values about inside the server."""
        self.stage = "changes"
        r, values = self.random, self.values
        with server.connect() as client:
            call = client.call
            for key in sorted(values):
                old, what = values[key], r.randrange(9)
                if what == 0:
                    more = self.value()
                    values[key] = old + more
                    self.expect("APPEND", call("APPEND", key, more), len(values[key]))
                elif what == 1:
                    piece, at = self.value(r.randrange(1, 70000)), r.randrange(0, len(old) + 3000)
                    new = old.ljust(at, b"\0")
                    values[key] = new[:at] + piece + new[at + len(piece) :]
                    self.expect("SETRANGE", call("SETRANGE", key, at, piece), len(values[key]))
                elif what == 2:
                    first = r.randrange(len(old))
                    last = r.randrange(first, len(old))
                    self.compare(key + " GETRANGE", call("GETRANGE", key, first, last), old[first : last + 1])
                elif what == 3:
                    values[key] = self.value()
                    self.expect("SET", call("SET", key, values[key]), b"OK")
                elif what == 4:
                    values[key] = self.value()
                    self.compare(key + " GETSET", call("GETSET", key, values[key]), old)
                elif what == 5:
                    self.expect("COPY", call("COPY", key, key + ":copy"), 1)
                    values[key + ":copy"] = old
                    values[key] = old + b"x"
                    self.expect("APPEND", call("APPEND", key, "x"), len(old) + 1)
                elif what == 6:
                    self.expect("RENAME", call("RENAME", key, key + ":moved"), b"OK")
                    values[key + ":moved"] = values.pop(key)
                elif what == 7:
                    packed = call("DUMP", key)
                    self.expect("RESTORE", call("RESTORE", key + ":restored", 0, packed), b"OK")
                    values[key + ":restored"] = old
                    self.expect("DEL", call("DEL", key), 1)
                    del values[key]
                else:
                    self.expect("DEL", call("DEL", key), 1)
                    values[key] = self.value(len(old))
                    self.expect("SET", call("SET", key, values[key]), b"OK")
            keys = r.sample(sorted(values), 8)  # a transaction, with what it answers
            self.expect("MULTI", call("MULTI"), b"OK")
            want = []
            for i, key in enumerate(keys):
                new = self.value()
                if i % 2:
                    values[key] = new
                    self.expect("queued", call("SET", key, new), b"QUEUED")
                    want.append(b"OK")
                else:
                    self.expect("queued", call("GET", key), b"QUEUED")
                    want.append(values[key])
            for key, got, must in zip(keys, call("EXEC"), want):
                self.compare(key + " EXEC", got, must)
            keys = r.sample(sorted(values), 6)
            fresh = {key: self.value() for key in keys}
            values.update(fresh)
            self.expect("MSET", call("MSET", *(x for pair in fresh.items() for x in pair)), b"OK")
            for key, got in zip(keys, call("MGET", *keys)):
                self.compare(key + " MGET", got, values[key])
            items = [self.value() for _ in range(6)]  # not only strings
            self.expect("RPUSH", call("RPUSH", "list", *items), len(items))
            for item, got in zip(items, call("LRANGE", "list", 0, -1)):
                self.compare("list LRANGE", got, item)
            self.compare("list LPOP", call("LPOP", "list"), items[0])
            self.compare("list RPOPLPUSH", call("RPOPLPUSH", "list", "list"), items[-1])
            self.expect("HSET", call("HSET", "hash", "a", items[1], "b", items[2]), 2)
            self.compare("hash HGET", call("HGET", "hash", "b"), items[2])
            self.expect("DEL", call("DEL", "hash", "list"), 2)

    def load(self, server, stop, errors, index):
        """Overwrites and reads keys of its own until told to stop; keeps every value a key ever had."""
        r, name = random.Random(self.options.seed * 1000 + index), f"load{index}"
        try:
            with server.connect() as client:
                while not stop.is_set():
                    key = f"{name}:{r.randrange(12)}"
                    value = r.randbytes(r.choice((100, 5000, 16384, 70000, 300000, 1048576)))
                    before = self.maybe[key][-1]
                    self.maybe[key].append(value)
                    self.compare(key, client.call("GET", key), before)
                    self.expect("SET", client.call("SET", key, value), b"OK")
                    time.sleep(0.001)
        except Exception as e:  # told to the main thread
            errors.append(e)

    def background(self, server, command, field):
        """BGSAVE or BGREWRITEAOF while two clients go on writing; waits for its end."""
        self.stage = f"{command} under load"
        stop, errors = threading.Event(), []
        with server.connect() as client:
            for index in range(2):
                for i in range(12):
                    key = f"load{index}:{i}"
                    self.maybe[key] = [self.value(300000)]
                    self.expect("SET", client.call("SET", key, self.maybe[key][-1]), b"OK")
            threads = [threading.Thread(target=self.load, args=(server, stop, errors, i)) for i in range(2)]
            for thread in threads:
                thread.start()
            try:
                time.sleep(0.1)
                client.call(command)
                deadline = time.monotonic() + 120
                while True:
                    info = client.call("INFO", "persistence").decode()
                    if f"{field}_in_progress:0" in info and "scheduled:1" not in info:
                        break
                    if time.monotonic() > deadline:
                        raise Failure(f"under {self.mode}: {command} did not end in two minutes")
                    time.sleep(0.02)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
        if errors:
            raise errors[0]
        last = "rdb_last_bgsave_status" if field == "rdb_bgsave" else "aof_last_bgrewrite_status"
        if f"{last}:ok" not in info:
            raise Failure(f"under {self.mode}: {command} failed:{server.said()}")

    def settle(self):
        """From here on the keys under load have the value written last."""
        self.values.update((key, wanted[-1]) for key, wanted in self.maybe.items())
        self.maybe = {}

    def rdb(self, directory):
        with Server(self.options, self.mode, directory, False) as server:
            self.set_all(server)
            self.all(server, "after SET")
            self.change(server)
            self.all(server, "after changes")
            self.background(server, "BGSAVE", "rdb_bgsave")
            live = {key: wanted[-1:] for key, wanted in self.maybe.items()}
            snapshot, self.maybe = self.maybe, live
            self.all(server, "after BGSAVE")
            self.maybe = snapshot
            server.shutdown()
        for mode in (self.mode, "plain"):  # the second reads what the first wrote, without uncopy's help
            with Server(self.options, mode, directory, False) as server:
                self.all(server, f"after a restart ({mode}) from the RDB file")
                server.shutdown()

    def aof(self, directory):
        with Server(self.options, self.mode, directory, True) as server:
            self.set_all(server)
            self.all(server, "after SET, append-only")
            self.change(server)
            server.shutdown()
        with Server(self.options, self.mode, directory, True) as server:
            self.all(server, "after a restart from the append-only file")
            for preamble in ("yes", "no"):
                with server.connect() as client:
                    client.call("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
                self.background(server, "BGREWRITEAOF", "aof_rewrite")
                self.settle()
                self.all(server, "after BGREWRITEAOF under load")
            server.shutdown()
        for mode in (self.mode, "plain"):
            with Server(self.options, mode, directory, True) as server:
                self.all(server, f"after a restart ({mode}) from the rewritten append-only file")
                server.shutdown()


def verify(options):
    done = []
    for mode in options.modes:
        for aof in options.aof:
            started = time.monotonic()
            check = Verification(options, mode, options.quick)
            with tempfile.TemporaryDirectory(prefix="uncopy-redis-") as directory:
                (check.aof if aof else check.rdb)(directory)
            row = {"mode": mode, "aof": aof, "values": check.checked, "bytes": check.checked_bytes}
            done.append(row)
            seconds = time.monotonic() - started
            what = "append-only file" if aof else "RDB file"
            size = check.checked_bytes / 1e6
            note(f"verified {mode}, {what}: {check.checked} values, {size:.0f} MB, all right ({seconds:.1f} s)")
    return done


# ---- measurement ----


def warm(options):
    """Memory that this machine's host does not take back while we measure (see bench/memory.py)."""
    with open("/proc/meminfo") as f:
        available = int(re.search(r"MemAvailable:\s+(\d+)", f.read())[1]) * 1024
    options.held = memory.hold(min(HOLD, available // 4))


def keys_for(size):
    return max(16, min(4096, (64 << 20) // size))


def populate(server, size, seed):
    """All keys that redis-benchmark will ask for."""
    r = random.Random(seed)
    with server.connect() as client:
        data = r.randbytes(size)
        keys = keys_for(size)
        for first in range(0, keys, 64):
            client.pipeline(("SET", f"key:{i:012d}", data) for i in range(first, min(keys, first + 64)))
    return keys


def benchmark(options, server, op, size, requests):
    """One run of redis-benchmark; returns its figures and the server's CPU."""
    command = ["taskset", "-c", options.load_core, options.redis_benchmark, "-h", "127.0.0.1", "-p", server.port]
    command += ["-t", op, "-d", size, "-r", keys_for(size), "-n", requests, "-c", options.clients, "--csv"]
    before = server.cpu()
    done = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    cpu = server.cpu() - before
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or len(lines) < 2:
        output = (done.stderr + done.stdout).strip()
        raise Failure(f"redis-benchmark {op} failed ({done.returncode}): {output[-300:]}{server.said()}")
    row = next(csv.DictReader(lines))
    return {
        "seconds": requests / float(row["rps"]),
        "cpu": cpu,
        "p50_us": float(row["p50_latency_ms"]) * 1000,
        "p99_us": float(row["p99_latency_ms"]) * 1000,
    }


@contextlib.contextmanager
def measured_server(options, mode, aof):
    with tempfile.TemporaryDirectory(prefix="uncopy-redis-", dir=options.dir) as directory:
        with Server(options, mode, directory, aof, core=options.server_core) as server:
            yield server


def requests_for(options, aof, size):
    """So many that a turn takes about --seconds, found by a short run."""
    if options.requests:
        return {op: max(1, options.requests // options.turns) for op in ("set", "get")}
    counts = {}
    with measured_server(options, "plain", aof) as server:
        populate(server, size, options.seed)
        for op in ("set", "get"):
            seconds = benchmark(options, server, op, size, 320)["seconds"]
            requests = max(320, int(64 / seconds))
            rate = requests / benchmark(options, server, op, size, requests)["seconds"]
            # (A virtual machine's host takes freed memory back within seconds: short turns write their file into
            # the memory that the last one gave back.)
            most = (512 << 20) // size if aof and op == "set" else 1 << 30
            counts[op] = max(64, min(int(rate * options.seconds), most) // options.turns)
        server.shutdown()
    return counts


def repeat(options, aof, size, requests, order):
    """One server of each kind, both alive; they take turns, so that what else the machine does meets both alike."""
    figures = {}
    with measured_server(options, "plain", aof) as plain, measured_server(options, "uncopy", aof) as uncopy:
        servers = {"plain": plain, "uncopy": uncopy}
        for mode in order:
            populate(servers[mode], size, options.seed)
            servers[mode].give_back_file()
        for op in ("set", "get"):
            runs = {mode: [] for mode in MODES}
            for turn in range(1 + options.turns):
                for mode in order if turn % 2 == 0 else order[::-1]:
                    figures_of_turn = benchmark(options, servers[mode], op, size, requests[op])
                    servers[mode].give_back_file()
                    if turn > 0:
                        runs[mode].append(figures_of_turn)
            for mode in MODES:
                total = requests[op] * options.turns
                figures[mode, op] = {
                    "req_per_s": total / sum(run["seconds"] for run in runs[mode]),
                    "cpu_us_per_req": sum(run["cpu"] for run in runs[mode]) * 1e6 / total,
                    "p50_us": statistics.median(run["p50_us"] for run in runs[mode]),
                    "p99_us": statistics.median(run["p99_us"] for run in runs[mode]),
                    "rss_bytes": servers[mode].rss(),
                }
        for server in servers.values():
            server.shutdown()
    return figures


def counted(options, aof, size, requests):
    """Counters per request, from runs of their own: filling alone, then filling and one operation."""
    totals = {}
    for op in (None, "set", "get"):
        with measured_server(options, "uncopy", aof) as server:
            populate(server, size, options.seed)
            if op:
                benchmark(options, server, op, size, requests[op])
            totals[op] = server.shutdown()
    per = {}
    for op in ("set", "get"):
        here, before = totals[op], totals[None]
        per[op] = {
            f"{name}_per_req": (here[name] - before[name]) / requests[op] if name in here and name in before else None
            for name in COUNTERS
        }
    return per


def quotient(a, b):
    return a / b if b else None


def middle(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def measure(options):
    rows = []
    for aof in options.aof:
        for size in options.sizes:
            requests = requests_for(options, aof, size)
            orders = [MODES if i % 2 == 0 else MODES[::-1] for i in range(options.repeats)]
            repeats = [repeat(options, aof, size, requests, order) for order in orders]
            counters = counted(options, aof, size, requests)
            for op in ("set", "get"):
                row = {"op": op, "size": size, "aof": aof, "requests": requests[op] * options.turns}
                pairs = [(figures["plain", op], figures["uncopy", op]) for figures in repeats]
                for i, mode in enumerate(MODES):
                    row[mode] = {name: statistics.median(pair[i][name] for pair in pairs) for name in pairs[0][i]}
                row["uncopy"].update(counters[op])
                row["ratios"] = [u["req_per_s"] / p["req_per_s"] for p, u in pairs]
                row["ratio"] = middle(row["ratios"])
                row["cpu_ratio"] = middle(quotient(p["cpu_us_per_req"], u["cpu_us_per_req"]) for p, u in pairs)
                row["rss_ratio"] = middle(u["rss_bytes"] / p["rss_bytes"] for p, u in pairs)
                rows.append(row)
                what = f"{op} {show_size(size)}, append-only file {'on' if aof else 'off'}"
                low, high = min(row["ratios"]), max(row["ratios"])
                note(f"measured {what}: ratio {row['ratio']:.2f} ({low:.2f} to {high:.2f})")
    return rows


def show_size(size):
    for unit, name in ((1 << 20, " MB"), (1 << 10, " KB")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size} B"


def table(rows):
    head = ["", "aof", "size", "req/s", "uncopy", "ratio", "CPU us/req", "uncopy", "ratio"]
    head += ["p99 us", "uncopy", "RSS MB", "uncopy", "elided/req", "faults/req"]
    lines = [head]
    for row in rows:
        plain, uncopy = row["plain"], row["uncopy"]

        def number(value, digits):
            return "-" if value is None else f"{value:,.{digits}f}"

        lines.append(
            [row["op"].upper(), "on" if row["aof"] else "off", show_size(row["size"])]
            + [number(x["req_per_s"], 0) for x in (plain, uncopy)]
            + [number(row["ratio"], 2)]
            + [number(x["cpu_us_per_req"], 1) for x in (plain, uncopy)]
            + [number(row["cpu_ratio"], 2)]
            + [number(x["p99_us"], 0) for x in (plain, uncopy)]
            + [number(x["rss_bytes"] / 1e6, 0) for x in (plain, uncopy)]
            + [number(uncopy["elided_copies_per_req"], 2), number(uncopy["faults_per_req"], 3)]
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for n, line in enumerate(lines):
        cells = (f"{cell:>{width}}" if i > 1 else f"{cell:<{width}}" for i, (cell, width) in enumerate(zip(line, widths)))
        print("  ".join(cells))
        if n == 0:
            print("  ".join("-" * width for width in widths))
    if all(row["uncopy"]["elided_copies_per_req"] is None for row in rows):
        print("(no counters: the preload library printed no summary on the server's standard error)")


# ---- the frame ----


def size_of(text):
    match = re.fullmatch(r"(\d+)\s*([kKmM]?)[bB]?", text.strip())
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 16K, 1M or 4096")
    return int(match[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[match[2].lower()]


def sizes_of(text):
    return [size_of(part) for part in text.split(",")]


def positive(kind):
    def parse(text):
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError(f"{text!r} must be above 0")
        return value

    return parse


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true", help="64K and 512K only, 3 repeats of 0.5 s, fewer values verified")
    p.add_argument("--json", action="store_true", help="print JSON instead of a table")
    p.add_argument("--verify", action="store_true", help="verify only, measure nothing")
    p.add_argument("--no-verify", action="store_true", help="measure only")
    p.add_argument("--sizes", type=sizes_of, metavar="LIST", help="sizes of values (16K,64K,512K,1M)")
    p.add_argument("--seconds", type=positive(float), help="about so long for each operation and server in a repeat (1.5)")
    p.add_argument("--requests", type=positive(int), help="so many requests a repeat, instead of --seconds")
    p.add_argument("--repeats", type=positive(int), help="repeats with new servers; medians count (5)")
    p.add_argument("--turns", type=positive(int), help="turns that the two servers take in a repeat (6)")
    p.add_argument("--clients", type=positive(int), default=16, help="connections of redis-benchmark (16)")
    p.add_argument("--aof", choices=("off", "on", "both"), default="both", help="append-only file (both)")
    p.add_argument("--modes", choices=("plain", "uncopy", "both"), default="both", help="what is verified (both)")
    p.add_argument("--seed", type=int, help="of the values verified; random and printed when not given")
    p.add_argument("--server-core", type=int, default=0, help="core of the servers (0)")
    p.add_argument("--load-core", type=int, default=1, help="core of redis-benchmark (1)")
    p.add_argument("--dir", help="where measured servers keep their files (/dev/shm with 8 GB free, else the temp directory)")
    p.add_argument("--no-warm", action="store_true", help="do not touch 3 GB of memory first")
    p.add_argument("--fail-below", type=float, metavar="RATIO", help="exit 1 when a ratio of requests is below")
    p.add_argument("--uncopy", default=os.path.join(REPO, "target/release/uncopy"), help="the command (target/release/uncopy)")
    p.add_argument("--uncopy-option", action="append", default=[], metavar="OPTION", help="for `uncopy run`, repeatable")
    p.add_argument("--redis-server", default="redis-server", help="name or path")
    p.add_argument("--redis-benchmark", default="redis-benchmark", help="name or path")
    o = p.parse_args()
    o.sizes = o.sizes or ([65536, 524288] if o.quick else [16384, 65536, 524288, 1048576])
    o.seconds = o.seconds or (0.5 if o.quick else 1.5)
    o.repeats = o.repeats or (3 if o.quick else 5)
    o.turns = o.turns or (4 if o.quick else 6)
    o.aof = {"off": [False], "on": [True], "both": [False, True]}[o.aof]
    o.modes = MODES if o.modes == "both" else (o.modes,)
    if o.seed is None:
        o.seed = random.SystemRandom().randrange(1 << 31)
    if o.dir is None:
        o.dir = tempfile.gettempdir()
        with contextlib.suppress(OSError):
            shm = os.statvfs("/dev/shm")
            if shm.f_bavail * shm.f_frsize >= 8 << 30 and os.access("/dev/shm", os.W_OK):
                o.dir = "/dev/shm"
    elif not os.path.isdir(o.dir):
        p.error(f"--dir: {o.dir} is no directory")
    if o.verify and o.no_verify:
        p.error("--verify and --no-verify exclude each other")
    return o


def find(options):
    """The programs, or one line that says what to do."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    for name in ("redis_server", "redis_benchmark"):
        given = getattr(options, name)
        found = shutil.which(given, path=path)
        if not found:
            raise Failure(f"{given} is not here: run scripts/install-test-deps")
        setattr(options, name, found)
    if options.verify and options.modes == ("plain",):
        return
    found = shutil.which(options.uncopy)
    if not found:
        raise Failure(f"no uncopy at {options.uncopy}: build it with `cargo build --release`, or give --uncopy PATH")
    options.uncopy = os.path.abspath(found)


def version(options):
    text = subprocess.run([options.redis_server, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"v=(\S+)", text)
    return match[1] if match else text.strip()


def check_cores(options):
    for name in ("server_core", "load_core"):
        if getattr(options, name) not in os.sched_getaffinity(0):
            raise Failure(f"core {getattr(options, name)} (--{name.replace('_', '-')}) is not one of this machine's")


def run(options):
    find(options)
    result = {"bench": "redis", "redis": version(options), "seed": options.seed}
    note(f"redis-server {result['redis']}, seed {options.seed}")
    if not options.no_verify:
        result["verified"] = verify(options)
    if not options.verify:
        check_cores(options)
        if not options.no_warm:
            warm(options)
        result.update(dir=options.dir, repeats=options.repeats, clients=options.clients)
        result["rows"] = measure(options)
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        if "verified" in result:
            values, size = (sum(row[name] for row in result["verified"]) for name in ("values", "bytes"))
            print(f"verified: {values} values, {size / 1e6:.0f} MB, every byte right (seed {options.seed})")
        if "rows" in result:
            table(result["rows"])
    low = [row for row in result.get("rows", []) if options.fail_below and row["ratio"] < options.fail_below]
    if low:
        names = ", ".join(f"{r['op']} {show_size(r['size'])} ({r['ratio']:.2f})" for r in low)
        raise Failure(f"ratios below {options.fail_below}: {names}")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(arguments())
    except (Failure, ReplyError, OSError, subprocess.SubprocessError) as e:
        print(f"redis.py: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
