#!/usr/bin/env python3
"""Mixed load on redis, nginx and an echo server under uncopy, for minutes, with clients killed at random.

Every answer is compared byte for byte with what was sent. Three times the load stops (after the warm-up, in the middle, at the end),
and what the servers hold then must be what they held before: resident memory, mappings, descriptors, threads, and the extents of
the library's own counters (read from the process's memory). Prints the figures; exit status 1 on a violation.

    tests/soak/soak.py [--minutes 15] [--seed N] [--plain]      UNCOPY names the command (default target/release/uncopy)

--plain runs the servers without uncopy: what of the growth is their own.
"""

import argparse
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
UNCOPY = os.environ.get("UNCOPY", os.path.join(REPO, "target/release/uncopy"))
# Eager: every copy that can be elided is, also where a user's options would leave it alone.
OPTIONS = ["--threshold=16K", "--backoff=no"]
LARGEST = 768 << 10
WRONG = 3

BLOB = random.Random(20).randbytes(2 << 20)


def content(r, largest=LARGEST):
    """A value that says itself what it must be: where in BLOB it lies, and how long it is."""
    length = r.choice([r.randrange(16, 4096), r.randrange(4096, 65536), r.randrange(65536, largest)])
    start = r.randrange(len(BLOB) - length)
    return struct.pack("!II", start, length) + BLOB[start : start + length]


def is_right(value):
    if len(value) < 8:
        return False
    start, length = struct.unpack("!II", value[:8])
    return len(value) == 8 + length and value[8:] == BLOB[start : start + length]


def wrong(what):
    print(f"soak: WRONG BYTE: {what}", file=sys.stderr, flush=True)
    os._exit(WRONG)


class Stream:
    """A connection that reads lines and exact lengths."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed")
        return line[:-2]

    def exactly(self, n):
        data = self.file.read(n)
        if len(data) != n:
            raise ConnectionError("the server closed")
        return data


class Redis(Stream):
    def command(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        line = self.line()
        if line[:1] == b"$":
            n = int(line[1:])
            return None if n < 0 else self.exactly(n + 2)[:-2]
        if line[:1] == b"-":
            wrong(f"redis: {line}")
        return line[1:]


def redis_client(port, r):
    """Its keys are its own; what an earlier one that was killed left there is whole or not there."""
    server = Redis(port)
    mine = [f"{sys.argv[4]}:{i}" for i in range(8)]
    for key in mine:
        value = server.command("GET", key)
        if value is not None and not is_right(value):
            wrong(f"redis: {key} as a killed client left it ({len(value)} bytes)")
    while True:
        key, value = r.choice(mine), content(r)
        if server.command("SET", key, value) != b"OK":
            wrong("redis: SET refused")
        for _ in range(r.randrange(3)):
            if server.command("GET", key) != value:
                wrong(f"redis: {key} of {len(value)} bytes")
        if r.random() < 0.3:
            # Another key: what a client that is killed here leaves does not say what it is.
            patched = f"{sys.argv[4]}:patched"
            server.command("SET", patched, value)
            at = r.randrange(len(value))
            part = r.randbytes(min(len(value) - at, r.randrange(1, 100_000)))
            server.command("SETRANGE", patched, at, part)
            if server.command("GET", patched) != value[:at] + part + value[at + len(part) :]:
                wrong(f"redis: {patched} after SETRANGE {at}, {len(part)} bytes")
        if r.random() < 0.2:
            server.command("DEL", key)
        time.sleep(0.002)


class Http(Stream):
    def ask(self, method, path, body=None):
        length = f"Content-Length: {len(body)}\r\n" if body is not None else ""
        self.send(f"{method} {path} HTTP/1.1\r\nHost: soak\r\n{length}\r\n".encode() + (body or b""))
        status = int(self.line().split()[1])
        n = 0
        while line := self.line():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                n = int(value)
        return status, self.exactly(n)


def nginx_client(port, r):
    server = Http(port)
    mine = f"/upload/{sys.argv[4]}"
    while True:
        where = r.choice(["/static", "/proxy"])
        status, body = server.ask("GET", f"{where}/{r.randrange(4)}")
        if status != 200 or not is_right(body):
            wrong(f"nginx: {where}: status {status}, {len(body)} bytes")
        value = content(r)
        status, _ = server.ask("PUT", mine, value)
        if status not in (201, 204):
            wrong(f"nginx: upload: status {status}")
        status, body = server.ask("GET", mine)
        if status != 200 or body != value:
            wrong(f"nginx: uploaded {len(value)} bytes, status {status}, {len(body)} bytes")
        time.sleep(0.002)


def echo_client(port, r):
    server = Stream(port)
    while True:
        value = content(r, 250 << 10)
        server.send(value)
        if server.exactly(len(value)) != value:
            wrong(f"echo of {len(value)} bytes")
        time.sleep(0.002)


CLIENTS = {"redis": redis_client, "nginx": nginx_client, "echo": echo_client}


def client_main():
    """soak.py --client KIND PORT NAME SEED"""
    kind, port, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[5])
    try:
        CLIENTS[kind](port, random.Random(seed))
    except (ConnectionError, TimeoutError) as e:
        print(f"soak: {kind}: {e}", file=sys.stderr, flush=True)
        os._exit(4)


# ------------------------------------------------------------------ servers


def counter_names():
    source = open(os.path.join(REPO, "crates/counters/src/counters.rs")).read()
    block = source[source.index("\ncounters! {") :]
    return re.findall(r"^    (\w+),$", block[: block.index("\n}")], re.M)


# Bytes before the counters (crates/counters/src/stats_page.rs).
HEADER = 56


class Counters:
    """The library's counters in a running process: plain 64-bit words at the beginning of its one value."""

    def __init__(self):
        self.library = os.path.realpath(os.path.join(os.path.dirname(UNCOPY), "libuncopy.so"))
        if not os.path.exists(self.library):
            self.library = os.path.realpath(os.path.join(os.path.dirname(UNCOPY), "../lib/uncopy/libuncopy.so"))
        symbols = subprocess.run(["nm", "-C", self.library], capture_output=True, text=True, check=True).stdout
        found = re.search(r"^([0-9a-f]+) \w uncopy::process::PROCESS$", symbols, re.M)
        if not found:
            sys.exit(f"soak: {self.library} has no symbols: its counters cannot be found")
        self.offset = int(found[1], 16) + HEADER
        self.names = counter_names()

    def of(self, pid):
        for line in open(f"/proc/{pid}/maps"):
            if line.rstrip().endswith(self.library):
                base = int(line.split("-")[0], 16) - int(line.split()[2], 16)
                break
        else:
            return None
        with open(f"/proc/{pid}/mem", "rb") as memory:
            memory.seek(base + self.offset)
            words = struct.unpack(f"={len(self.names)}Q", memory.read(8 * len(self.names)))
        return dict(zip(self.names, words))


def children(pid):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(entry))
        except OSError:
            pass
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log warn;
events {{ worker_connections 128; }}
http {{
    sendfile off; access_log off; client_max_body_size 4m; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; output_buffers 2 256k;
    client_body_buffer_size 512k; keepalive_requests 100000;
    server {{
        listen 127.0.0.1:{port};
        location /static/ {{ root {dir}; }}
        location /upload/ {{ root {dir}; dav_methods PUT; create_full_put_path on; }}
        location /proxy/ {{ proxy_pass http://127.0.0.1:{port}/static/; proxy_buffering on; proxy_buffers 8 64k; proxy_buffer_size 64k;
                            proxy_busy_buffers_size 128k; }}
    }}
}}
"""


class Server:
    def __init__(self, name, port, process):
        self.name, self.port, self.process = name, port, process

    def pids(self):
        """The processes that serve: nginx's worker, the others themselves."""
        if self.name != "nginx":
            return [self.process.pid]
        workers = children(self.process.pid)
        return [self.process.pid] + workers


def start_servers(plain, directory):
    before = [] if plain else [UNCOPY, "run", "--require", *OPTIONS, "--"]

    def start(*command, **more):
        return subprocess.Popen([*before, *command], stdin=subprocess.PIPE, cwd=directory, **more)

    # Debian's servers are in a directory that users do not search.
    path = os.environ["PATH"] + ":/usr/local/sbin:/usr/sbin:/sbin"
    redis, nginx = shutil.which("redis-server", path=path), shutil.which("nginx", path=path)
    if not redis or not nginx:
        sys.exit("soak: redis-server and nginx are needed: scripts/install-test-deps")
    subprocess.run(["cc", "-O2", "-fno-builtin", "-o", f"{directory}/echo", f"{HERE}/echo.c"], check=True)
    quiet = {"stdout": subprocess.DEVNULL}
    port = free_port()
    servers = [Server("redis", port, start(redis, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                           "--enable-debug-command", "yes", **quiet))]
    port = free_port()
    os.makedirs(f"{directory}/static")
    os.makedirs(f"{directory}/upload")
    r = random.Random(7)
    for i, size in enumerate([1000, 70_000, 300_000, 700_000]):
        with open(f"{directory}/static/{i}", "wb") as f:
            f.write(struct.pack("!II", i, size) + BLOB[i : i + size])
    with open(f"{directory}/nginx.conf", "w") as f:
        # As root, nginx's worker becomes another user, who may not read here.
        f.write(("user root;" if os.geteuid() == 0 else "") + NGINX.format(dir=directory, port=port))
    servers.append(Server("nginx", port, start(nginx, "-p", directory, "-c", f"{directory}/nginx.conf", **quiet)))
    process = start(f"{directory}/echo", stdout=subprocess.PIPE)
    servers.append(Server("echo", int(process.stdout.readline()), process))
    for server in servers:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", server.port)).close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            sys.exit(f"soak: {server.name} does not answer")
    return servers


# --------------------------------------------------------------------- load


class Load:
    """Clients of every server, one of them killed now and then."""

    def __init__(self, servers, r, clients_each):
        self.servers, self.r, self.each = servers, r, clients_each
        self.running = []
        self.killed = self.started = 0
        self.failures = []

    def start_one(self, server, number):
        command = [sys.executable, __file__, "--client", server.name, str(server.port), f"{server.name}{number}",
                   str(self.r.getrandbits(32))]
        self.running.append((server, number, subprocess.Popen(command)))
        self.started += 1

    def run(self, seconds):
        for server in self.servers:
            for number in range(self.each):
                self.start_one(server, number)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.failures:
            time.sleep(self.r.uniform(0.2, 1.5))
            self.look()
            if self.running and not self.failures:
                self.kill(self.r.randrange(len(self.running)), again=True)
        for _ in range(len(self.running)):
            self.kill(0, again=False)
        self.look()

    def kill(self, i, again):
        server, number, process = self.running.pop(i)
        process.kill()
        status = process.wait()
        self.killed += 1
        if status != -signal.SIGKILL:
            self.failures.append(f"a client of {server.name} ended by itself with status {status}")
        if again:
            self.start_one(server, number)

    def look(self):
        for server, _, process in self.running:
            if process.poll() is not None:
                self.failures.append(f"a client of {server.name} ended by itself with status {process.returncode}")
        for server in self.servers:
            if server.process.poll() is not None:
                self.failures.append(f"{server.name} ended with status {server.process.returncode}")


def figures(pid, counters):
    status = open(f"/proc/{pid}/status").read()
    found = {
        "rss_kb": int(re.search(r"^VmRSS:\s+(\d+)", status, re.M)[1]),
        "maps": sum(1 for _ in open(f"/proc/{pid}/maps")),
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "tasks": len(os.listdir(f"/proc/{pid}/task")),
    }
    library = counters.of(pid) if counters else None
    for name in ("extents", "extent_bytes", "pool_free_bytes", "registered_ranges", "elided_copies", "input_bytes"):
        found[name] = library[name] if library else None
    return found


def settle(servers, counters):
    """Empties redis, lets the servers notice that their clients are gone, and looks at every process."""
    redis = Redis(next(s.port for s in servers if s.name == "redis"))
    redis.command("FLUSHALL")
    redis.command("MEMORY", "PURGE")
    redis.socket.close()
    time.sleep(4)
    found = {}
    for server in servers:
        for i, pid in enumerate(server.pids()):
            name = server.name if i == 0 else f"{server.name} worker"
            if server.name == "nginx" and i == 0:
                name = "nginx master"
            found[name] = figures(pid, counters)
    return found


# Allocators keep some of what they once had, and the library its pool; a leak goes on growing.
RSS_SLACK_KB = 24 << 10
MAPS_SLACK = 96
EXTENTS_SLACK = 8


def violations(name, first, last):
    if last["rss_kb"] > first["rss_kb"] * 1.15 + RSS_SLACK_KB:
        yield f"{name}: resident size went from {first['rss_kb']} to {last['rss_kb']} KB"
    if last["maps"] > first["maps"] * 1.25 + MAPS_SLACK:
        yield f"{name}: mappings went from {first['maps']} to {last['maps']}"
    if last["fds"] > first["fds"]:
        yield f"{name}: descriptors went from {first['fds']} to {last['fds']}"
    if last["tasks"] > max(first["tasks"], 1) and last["tasks"] > first["tasks"] + (last["elided_copies"] is not None):
        yield f"{name}: threads went from {first['tasks']} to {last['tasks']}"
    if first["extents"] is not None and last["extents"] > first["extents"] + EXTENTS_SLACK:
        yield f"{name}: extents went from {first['extents']} to {last['extents']}"
    if first["extents"] is not None and last["extent_bytes"] > first["extent_bytes"] + (4 << 20):
        yield f"{name}: bytes of extents went from {first['extent_bytes']} to {last['extent_bytes']}"


def table(samples):
    columns = list(next(iter(samples[0][1].values())))
    print(f"| process | after | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 2) + "|")
    for name in samples[0][1]:
        for minute, sample in samples:
            row = [str(sample[name][c]) if sample[name][c] is not None else "-" for c in columns]
            print(f"| {name} | {minute:.1f} min | {' | '.join(row)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--clients", type=int, default=2, help="of each server (default 2)")
    parser.add_argument("--plain", action="store_true", help="without uncopy")
    options = parser.parse_args()
    command = f"tests/soak/soak.py --minutes {options.minutes:g} --seed {options.seed}" + " --plain" * options.plain
    print(f"soak: repeat with: {command}", flush=True)
    counters = None if options.plain else Counters()
    directory = tempfile.mkdtemp(prefix="uncopy-soak.")
    r = random.Random(options.seed)
    servers, problems, samples = [], [], []
    try:
        servers = start_servers(options.plain, directory)
        load = Load(servers, r, options.clients)
        begun = time.monotonic()
        warm_up = min(options.minutes / 5, 2)
        rest = (options.minutes - warm_up) / 2
        for part in (warm_up, rest, rest):
            load.run(part * 60)
            if load.failures:
                break
            samples.append(((time.monotonic() - begun) / 60, settle(servers, counters)))
        problems += load.failures
        if not problems:
            first, last = samples[0][1], samples[-1][1]
            for name in first:
                problems += violations(name, first[name], last[name])
            if counters:
                elided = {n: last[n]["elided_copies"] for n in ("redis", "echo")}
                problems += [f"{n}: no copy was elided: nothing was tested" for n, e in elided.items() if not e]
        for server in servers:
            for line in open(f"{directory}/error.log") if server.name == "nginx" else []:
                if any(f"[{level}]" in line for level in ("alert", "emerg", "crit")):
                    problems.append(f"nginx: {line.strip()}")
        if samples:
            table(samples)
        print(f"soak: {load.started} clients started, {load.killed} killed")
    finally:
        for server in servers:
            server.process.terminate()
        for server in servers:
            try:
                server.process.wait(20)
            except subprocess.TimeoutExpired:
                problems.append(f"{server.name} does not end when it is told to")
                server.process.kill()
        shutil.rmtree(directory, ignore_errors=True)
    for problem in problems:
        print(f"FAIL  {problem}")
    print(f"soak: {'FAIL' if problems else 'ok'}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        client_main()
    else:
        main()
