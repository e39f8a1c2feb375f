#!/usr/bin/env python3
"""CPU that today's servers need for a request: plainly, plainly with glibc told not to trim, and under uncopy.

For each server and size three processes live side by side on one core, the load on the other; they take turns, so that what
else the machine does meets all alike. Figures are medians of the turns' own CPU per request (schedstat of all threads); `gain` is
plain over uncopy (range: the medians of the rounds), `elision` is the untrimmed plain one over uncopy: what is left when the
allocator's share is taken away.
Before timing, and after it, every answer is verified against what was sent.

    bench/apps/apps.py                      all servers at 64 KB and 1 MB
    bench/apps/apps.py --only aiohttp       one of them
    bench/apps/apps.py --fail-below 0.98    exit status 1 where anything is slower

Installs into target/bench-apps what PyPI has of them (aiohttp, uvicorn, grpcio); nginx, node and PostgreSQL come from
`bench/apps/apps.py --install` (Debian packages)."""

import argparse
import contextlib
import glob
import hashlib
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import memory  # noqa: E402

STATE = os.path.join(ROOT, "target", "bench-apps")
VENV = os.path.join(STATE, "venv")
PYTHON = os.path.join(VENV, "bin", "python")
PIP = ["aiohttp", "uvicorn", "h11", "grpcio"]
PACKAGES = {"nginx": "nginx-light", "node": "nodejs", "postgres": "postgresql"}
UNTRIMMED = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"
MODES = ("plain", "untrimmed", "uncopy")
CONNECTIONS = 4
HOLD = 3 << 30


class Failure(Exception):
    """What went wrong, in words for the user."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def payload(size, seed=1):
    return random.Random(seed * 1_000_003 + size).randbytes(size)


def connect(port, patience=60):
    end = time.monotonic() + patience
    while True:
        try:
            s = socket.create_connection(("127.0.0.1", port), timeout=patience)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return s
        except OSError as why:
            if time.monotonic() > end:
                raise Failure(f"nothing answers on port {port}: {why}") from None
            time.sleep(0.05)


def http_answer(s, want=None):
    """Reads an answer; returns its body."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        part = s.recv(1 << 18)
        if not part:
            raise Failure("the server closed the connection")
        data += part
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise Failure(f"the server answered {head.splitlines()[0]!r}")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    length = int(fields[b"content-length"])
    rest = bytearray(body)
    while len(rest) < length:
        part = s.recv(1 << 18)
        if not part:
            raise Failure("the answer ends early")
        rest += part
    return bytes(rest)


class Upload:
    """POST of a body; the answer is its length."""

    def __init__(self, port, size):
        self.port, self.size = port, size
        self.request = self.head("/") + payload(size)

    def head(self, path):
        return f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {self.size}\r\n\r\n".encode()

    def open(self):
        return connect(self.port)

    def one(self, s):
        s.sendall(self.request)
        if http_answer(s) != str(self.size).encode():
            raise Failure("the server read another length")

    def verify(self):
        with self.open() as s:
            for seed in range(2, 8):
                body = payload(self.size, seed)
                s.sendall(self.head("/?digest") + body)
                if http_answer(s).decode() != hashlib.sha256(body).hexdigest():
                    raise Failure(f"the server's digest of upload {seed} is wrong")


class Download:
    """GET through a proxy of what the origin makes."""

    def __init__(self, port, size):
        self.port, self.size = port, size
        self.request = f"GET /{size} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()

    def open(self):
        return connect(self.port)

    def one(self, s):
        s.sendall(self.request)
        if len(http_answer(s)) != self.size:
            raise Failure("the answer has another length")

    def verify(self):
        with self.open() as s:
            for _ in range(6):
                s.sendall(self.request)
                if http_answer(s) != random.Random(self.size).randbytes(self.size):
                    raise Failure("the answer is not what the origin sent")


class Echo:
    """Messages of one length, sent back."""

    def __init__(self, port, size):
        self.port, self.size = port, size
        self.message = payload(size)

    def open(self):
        s = connect(self.port)
        s.sendall(self.size.to_bytes(8, "little"))
        return s

    def exchange(self, s, message):
        sender = threading.Thread(target=s.sendall, args=(message,))
        sender.start()
        got = bytearray()
        while len(got) < len(message):
            part = s.recv(1 << 18)
            if not part:
                raise Failure("the echo ends early")
            got += part
        sender.join()
        return got

    def one(self, s):
        self.exchange(s, self.message)

    def verify(self):
        with self.open() as s:
            for seed in range(2, 8):
                message = payload(self.size, seed)
                if self.exchange(s, message) != message:
                    raise Failure(f"echo {seed} differs from what was sent")


class Grpc:
    """The client is a process of its own, with the library that this script must not depend on."""

    CLIENT = """
import grpc, sys, random
port, size = int(sys.argv[1]), int(sys.argv[2])
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
call = grpc.insecure_channel(f"127.0.0.1:{port}", options).unary_unary("/bench/Echo")
message = random.Random(size).randbytes(size)
for line in sys.stdin:
    for i in range(int(line)):
        if call(message, wait_for_ready=True, timeout=60) != message:
            print("differs", flush=True); sys.exit(1)
    print("done", flush=True)
"""

    def __init__(self, port, size):
        command = ["taskset", "-c", str(OPTIONS.load_core), PYTHON, "-c", self.CLIENT, str(port), str(size)]
        self.client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def many(self, n):
        self.client.stdin.write(f"{n}\n")
        self.client.stdin.flush()
        if self.client.stdout.readline().strip() != "done":
            raise Failure("an echo differs from what was sent, or the call failed")

    def verify(self):
        self.many(6)

    def close(self):
        self.client.stdin.close()
        self.client.wait()


def nginx(port, directory):
    origin = free_port()
    conf = os.path.join(directory, "nginx.conf")
    with open(conf, "w") as f:
        f.write(
            f"daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;\n"
            "events { worker_connections 256; }\n"
            "http { access_log off; keepalive_requests 1000000;\n"
            + "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            + f"upstream origin {{ server 127.0.0.1:{origin}; keepalive 8; }}\n"
            f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://origin; proxy_http_version 1.1;\n"
            'proxy_set_header Connection ""; proxy_buffers 64 32k; proxy_buffer_size 32k; proxy_busy_buffers_size 1m; } } }\n'
        )
    helper = ["taskset", "-c", str(OPTIONS.load_core), sys.executable, os.path.join(HERE, "servers", "origin.py"), str(origin)]
    return ["nginx", "-p", directory, "-c", conf], helper


def server(name):
    return lambda port, directory: ([PYTHON, os.path.join(HERE, "servers", name), str(port)], None)


def node(port, directory):
    return ["node", os.path.join(HERE, "servers", "node_concat.js"), str(port)], None


POSTGRES = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
# PostgreSQL refuses to be root; a userfaultfd that serves the kernel's accesses too needs this one capability.
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
WITH_USERFAULTFD = ["--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"]


def postgresql(port, directory):
    if not POSTGRES:
        raise Failure("no PostgreSQL: bench/apps/apps.py --install")
    data = os.path.join(directory, "data")
    os.chmod(directory, 0o755)
    os.mkdir(data)
    shutil.chown(data, "postgres", "postgres")
    tool = [*AS_POSTGRES, POSTGRES[-1] + "/initdb", "-A", "trust", "-N", "-D", data]
    subprocess.run(tool, check=True, stdout=subprocess.DEVNULL, cwd="/")
    with open(data + "/postgresql.conf", "a") as f:
        f.write(f"unix_socket_directories = '{data}'\nshared_buffers = 64MB\nautovacuum = off\nlogging_collector = off\n")
    return [*AS_POSTGRES, *WITH_USERFAULTFD, POSTGRES[-1] + "/postgres", "-D", data, "-p", str(port)], None


class Select:
    """SELECT of one bytea, as bytes, by PostgreSQL's protocol 3."""

    def __init__(self, port, size):
        self.port, self.size = port, size
        self.body = payload(size, 1)
        with self.open() as s:
            self.ask(s, b"CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, data bytea)")
            self.ask(s, b"ALTER TABLE t ALTER data SET STORAGE EXTERNAL")
            self.store(s, self.body)

    @staticmethod
    def message(kind, body):
        return kind + struct.pack("!i", len(body) + 4) + body

    @staticmethod
    def exactly(s, n):
        got = bytearray()
        while len(got) < n:
            part = s.recv(min(1 << 18, n - len(got)))
            if not part:
                raise Failure("PostgreSQL closed the connection")
            got += part
        return bytes(got)

    def answer(self, s):
        """Reads until it is ready for the next query; returns the last row's one value."""
        value = None
        while True:
            kind, length = struct.unpack("!ci", self.exactly(s, 5))
            body = self.exactly(s, length - 4)
            if kind == b"E":
                raise Failure(f"PostgreSQL says {body!r}")
            if kind == b"D":
                value = body[6:]
            if kind == b"Z":
                return value

    def ask(self, s, query):
        s.sendall(self.message(b"Q", query + b"\0"))
        return self.answer(s)

    def store(self, s, body):
        self.ask(s, b"DELETE FROM t; INSERT INTO t VALUES (1, '\\x" + body.hex().encode() + b"')")

    def open(self):
        for _ in range(100):
            s = connect(self.port)
            start = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0\0"
            s.sendall(struct.pack("!i", len(start) + 4) + start)
            try:
                self.answer(s)
                return s
            except Failure as why:
                if "starting up" not in str(why):
                    raise
            s.close()
            time.sleep(0.1)
        raise Failure("PostgreSQL does not come up")

    def select(self, s):
        parse = self.message(b"P", b"\0SELECT data FROM t WHERE id = 1\0\0\0")
        bind = self.message(b"B", b"\0\0" + struct.pack("!hhhh", 0, 0, 1, 1))
        s.sendall(parse + bind + self.message(b"E", b"\0" + bytes(4)) + self.message(b"S", b""))
        return self.answer(s)

    def one(self, s):
        if len(self.select(s)) != self.size:
            raise Failure("the value is of another length")

    def verify(self):
        with self.open() as s:
            for seed in range(2, 8):
                body = payload(self.size, seed)
                self.store(s, body)
                if self.select(s) != body:
                    raise Failure(f"value {seed} came back otherwise")
            self.store(s, self.body)


# name: how it is started, how it is driven
SERVERS = {
    "aiohttp upload": (server("aiohttp_upload.py"), Upload),
    "uvicorn upload": (server("uvicorn_upload.py"), Upload),
    "asyncio readexactly echo": (server("asyncio_echo.py"), Echo),
    "gRPC bytes echo": (server("grpc_echo.py"), Grpc),
    "Node Buffer.concat": (node, Upload),
    "nginx proxy, 64 x 32k buffers": (nginx, Download),
    "PostgreSQL SELECT of bytea": (postgresql, Select),
}


def descendants(pid):
    found = [pid]
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as f:
        for child in f.read().split():
            found += descendants(int(child))
    return found


class Process:
    """One server; ended by its pid whatever happens."""

    def __init__(self, name, mode, size, stack):
        start, drive = SERVERS[name]
        self.directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="uncopy-apps-"))
        self.port = free_port()
        command, helper = start(self.port, self.directory)
        env = dict(os.environ)
        env.pop("GLIBC_TUNABLES", None)
        if mode == "untrimmed":
            env["GLIBC_TUNABLES"] = UNTRIMMED
        if mode == "uncopy":
            command = [OPTIONS.uncopy, "run", "--verbose=counters", *OPTIONS.uncopy_option, "--", *command]
        self.said = os.path.join(self.directory, "said")
        self.children = []
        self.mode = mode
        with open(self.said, "ab") as said:
            if helper:
                self.children.append(subprocess.Popen(helper, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
                connect(int(helper[-1])).close()
            command = ["taskset", "-c", str(OPTIONS.server_core), *command]
            self.main = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env)
        self.children.append(self.main)
        stack.callback(self.end)
        connect(self.port).close()
        self.load = drive(self.port, size)
        self.open = []
        if hasattr(self.load, "one"):
            self.open = [self.load.open() for _ in range(CONNECTIONS)]

    def cpu(self):
        """CPU seconds of all living threads, in ns (the ticks of /proc/PID/stat are too coarse for short turns)."""
        total = 0
        for pid in descendants(self.main.pid):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat") as f:
                    total += int(f.read().split()[0])
        return total / 1e9

    def run(self, requests):
        """CPU seconds of the server for so many requests."""
        before = self.cpu()
        if self.open:
            errors = []

            def work(s, n):
                try:
                    for _ in range(n):
                        self.load.one(s)
                except (Failure, OSError) as why:
                    errors.append(why)

            each = max(1, requests // len(self.open))
            threads = [threading.Thread(target=work, args=(s, each)) for s in self.open]
            [t.start() for t in threads]
            [t.join() for t in threads]
            if errors:
                raise Failure(str(errors[0]))
            requests = each * len(self.open)
        else:
            self.load.many(requests)
        return (self.cpu() - before) / requests

    def end(self):
        for s in getattr(self, "open", ()):
            s.close()
        if hasattr(getattr(self, "load", None), "close"):
            self.load.close()
        if OPTIONS.show and getattr(self, "mode", "") == "uncopy":
            for pid in descendants(self.main.pid):
                subprocess.run([OPTIONS.uncopy, "stat", "-p", str(pid)], check=False)
        for child in self.children[::-1]:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def round_of_turns(name, size):
    """Fresh processes; what each needed for a request in each turn (CPU seconds)."""
    with contextlib.ExitStack() as stack:
        processes = {mode: Process(name, mode, size, stack) for mode in MODES}
        try:
            for p in processes.values():
                p.load.verify()
                p.run(64)
            once = max(1e-6, processes["plain"].run(64))
            requests = max(16, min(20_000, int(OPTIONS.seconds / once)))
            # (In turns already: servers close connections that lie idle for seconds.)
            warming = time.monotonic() + OPTIONS.warm * len(processes)
            while time.monotonic() < warming:
                for p in processes.values():
                    p.run(requests)
            turns = []
            for turn in range(OPTIONS.turns):
                order = MODES if turn % 2 == 0 else MODES[::-1]
                turns.append({mode: processes[mode].run(requests) for mode in order})
            for p in processes.values():
                p.load.verify()
        except Failure as why:
            heard = "".join(open(p.said, errors="replace").read()[-800:] for p in processes.values())
            raise Failure(f"{name}, {size} bytes: {why}\n{heard}") from None
        return turns


def measure(name, size):
    """Two processes of one program differ by what memory they happen to have: fresh ones in each round show that as spread."""
    rounds = [round_of_turns(name, size) for _ in range(OPTIONS.rounds)]
    turns = [turn for turns in rounds for turn in turns]

    def gain(over, turns):
        return statistics.median(t[over] / max(t["uncopy"], 1e-9) for t in turns)

    row = {mode: statistics.median(t[mode] for t in turns) * 1e6 for mode in MODES}
    row["gain"], row["elision"] = gain("plain", turns), gain("untrimmed", turns)
    of_rounds = sorted(gain("plain", turns) for turns in rounds)
    row["low"], row["high"] = of_rounds[0], of_rounds[-1]
    return row


def prepare():
    if not os.path.exists(PYTHON):
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    probe = "import aiohttp, uvicorn, h11, grpc"
    if subprocess.run([PYTHON, "-c", probe], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *PIP], check=True, cwd=STATE)


def size_of(text):
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    return int(text.rstrip("kKmM")) * unit


def arguments(sizes="64K,1M", about=__doc__):
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="servers whose names contain one of these")
    p.add_argument("--sizes", default=sizes, help=f"sizes of bodies and messages ({sizes})")
    p.add_argument("--rounds", type=int, default=3, help="times that the processes are started (3)")
    p.add_argument("--turns", type=int, default=15, help="turns of each process in a round (15)")
    p.add_argument("--seconds", type=float, default=0.2, help="about so much CPU of the plain server in a turn (0.2)")
    p.add_argument("--warm", type=float, default=2.0, metavar="SECONDS", help="of load on each process before timing (2)")
    p.add_argument("--server-core", default=0)
    p.add_argument("--load-core", default=1)
    p.add_argument("--uncopy", default=os.path.join(ROOT, "target", "release", "uncopy"))
    p.add_argument("--uncopy-option", action="append", default=[], metavar="OPTION", help="handed to `uncopy run`")
    p.add_argument("--fail-below", type=float, metavar="GAIN", help="exit status 1 where a gain is lower")
    p.add_argument("--show", action="store_true", help="print the counters and call sites of the server under uncopy (`uncopy stat -p`)")
    p.add_argument("--install", action="store_true", help="install nginx, node and PostgreSQL (Debian) first")
    return p.parse_args()


def main():
    os.makedirs(STATE, exist_ok=True)
    if OPTIONS.install:
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES.values()], check=True)
    prepare()
    return rows()


def rows():
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    held = memory.hold(min(HOLD, available // 4))
    os.sched_setaffinity(0, {int(OPTIONS.load_core)})
    print(f"{'server':32} {'size':>6} {'plain us':>9} {'untrimmed':>9} {'uncopy':>9} {'gain':>6} {'(range)':>13} {'elision':>8}")
    bad = False
    for name in SERVERS:
        if not any(part.lower() in name.lower() for part in OPTIONS.only):
            continue
        for size in map(size_of, OPTIONS.sizes.split(",")):
            r = measure(name, size)
            print(
                f"{name:32} {size >> 10:>4} K {r['plain']:9.1f} {r['untrimmed']:9.1f} {r['uncopy']:9.1f} {r['gain']:6.2f} "
                f"({r['low']:.2f} to {r['high']:.2f}) {r['elision']:8.2f}",
                flush=True,
            )
            bad |= OPTIONS.fail_below is not None and r["gain"] < OPTIONS.fail_below
    held.close()
    return 1 if bad else 0


if __name__ == "__main__":
    OPTIONS = arguments()
    try:
        sys.exit(main())
    except Failure as why:
        sys.exit(f"apps.py: {why}")
