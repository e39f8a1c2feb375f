#!/usr/bin/env python3
"""Small requests between two unmodified programs of this host: over Linux' loopback, and under `uncopy run --tcp`.

redis with redis-benchmark, memcached with memcslap, nginx with wrk, PostgreSQL with pgbench. Three servers of each live side by side on
one core: plain, plain again (what these differ by is noise), and under --tcp. The clients run on another core, one at a time and in turns,
each a fresh process; uncopy's is under --tcp too. CPU is that of server, client and service for a request, its start included, the
services' own handshakes too. Ratios are medians of the turns' own: requests a second of the side over plain's, CPU of plain over the
side's; above 1 is a gain. That the answers are the same byte for byte is tested elsewhere (tests/connections, tests/matrix): these clients
do not compare them.

    bench/tcp/programs.py                        all of it, about ten minutes
    bench/tcp/programs.py --only redis --turns 15
    chrt -r 3 bench/tcp/programs.py              where others use the machine (as root)

Needs what scripts/install-test-deps installs, and wrk and libmemcached-tools."""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apps"))
import apps  # noqa: E402
import harness  # noqa: E402
from loads import Failure, connect  # noqa: E402
from machine import descendants, free_port, living_cpu  # noqa: E402

# side: options of `uncopy run`; None: plainly.
SIDES = {"plain": None, "again": None, "uncopy": ["--tcp", "--require", "--elide=no"]}
# Seconds until a server listens.
STARTS = 30
OPTIONS = None


@dataclasses.dataclass
class Case:
    """What is measured: a name; the server's command and the client's; what the client's words say of requests and seconds; whose programs
    they are (the words that make them his), and what is to be done once before."""

    name: str
    server: object
    client: object
    read: object
    needs: tuple
    user: tuple = ()
    prepare: object = lambda port, directory: None


def found(pattern, text):
    match = re.search(pattern, text)
    if not match:
        raise Failure(f"the client said nothing like {pattern!r}: {text[-300:]!r}")
    return float(match.group(1))


def redis_server(port, directory):
    return ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", directory]


def redis(connections, pipeline):
    requests = 60_000 if connections == 1 and pipeline == 1 else 120_000 * (1 + pipeline // 4)
    return Case(
        f"redis GET of 64 B, -P {pipeline} -c {connections}",
        redis_server,
        lambda port: ["redis-benchmark", "-p", str(port), "-t", "get", "-d", "64", "-c", str(connections), "-P", str(pipeline), "-n", str(requests), "--csv"],
        lambda text: (requests, requests / found(r'"GET","([0-9.]+)"', text)),
        ("redis-server", "redis-benchmark"),
    )


def memcached_server(port, directory):
    return ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-u", "root"]


def memcached(connections):
    each = 20_000 if connections == 1 else 1_500
    return Case(
        f"memcached, connections: {connections}",
        memcached_server,
        lambda port: ["memcslap", "-s", f"127.0.0.1:{port}", "-t", "get", "-c", str(connections), "-e", str(each), "-l", str(each)],
        lambda text: (each * (connections + 1), found(r"Time to get .*?threads: +([0-9.]+)", text) * (connections + 1) / connections),
        ("memcached", "memcslap"),
    )


def with_wrk(name, server, connections):
    """A server of files, asked for one by wrk for a second."""
    return Case(
        name,
        server,
        lambda port: ["wrk", "-t", "1", "-c", str(connections), "-d", "1s", f"http://127.0.0.1:{port}/file"],
        lambda text: (found(r"(\d+) requests in", text), found(r"(\d+) requests in", text) / found(r"Requests/sec: +([0-9.]+)", text)),
        ("nginx", "wrk"),
    )


def nginx(size, connections):
    def server(port, directory):
        with open(directory + "/file", "wb") as file:
            file.write(os.urandom(size))
        with open(directory + "/nginx.conf", "w") as file:
            file.write(
                f"daemon off; master_process off; pid {directory}/pid; error_log {directory}/error crit; events {{ worker_connections 1024; }}\n"
                f"http {{ access_log off; sendfile on; tcp_nopush on; open_file_cache max=16; keepalive_requests 100000000; server {{ listen 127.0.0.1:{port}; root {directory}; }} }}\n"
            )
        return [harness.find("nginx"), "-p", directory, "-c", directory + "/nginx.conf"]

    return with_wrk(f"nginx, {size >> 10} KB, connections: {connections}", server, connections)


def pgbench(connections):
    as_user = (*apps.AS_POSTGRES, *apps.WITH_USERFAULTFD) if os.getuid() == 0 else ()

    def server(port, directory):
        command, _ = apps.postgresql(port, directory)
        return command[command.index(harness.find("postgres")) :]

    def prepare(port, directory):
        words = ["pgbench", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-i", "-s", "1", "-q", "postgres"]
        subprocess.run([*as_user, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    return Case(
        f"pgbench -S, connections: {connections}",
        server,
        lambda port: ["pgbench", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-S", "-n", "-j", "1", "-c", str(connections), "-T", "1", "postgres"],
        lambda text: (found(r"actually processed: (\d+)", text), found(r"actually processed: (\d+)", text) / found(r"tps = ([0-9.]+)", text)),
        ("postgres", "pgbench"),
        as_user,
        prepare,
    )


CASES = [
    *(redis(connections, pipeline) for pipeline in (1, 16) for connections in (1, 50)),
    *(memcached(connections) for connections in (1, 50)),
    *(nginx(size, connections) for size in (1 << 10, 16 << 10, 64 << 10) for connections in (1, 32)),
    *(pgbench(connections) for connections in (1, 16)),
]


class Side:
    """One server, its service if it has one, and its clients; ended by their pids whatever happens."""

    def __init__(self, case, options, stack):
        self.case, self.options = case, options
        self.directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="uncopy-tcp-"))
        os.chmod(self.directory, 0o755)
        self.port, self.children = free_port(), []
        self.env = dict(os.environ, UNCOPY_TCP_SERVICE=f"uncopy-bench-{os.getpid()}-{self.port}")
        stack.callback(self.end)
        if options is not None:
            self.start(self.plain([OPTIONS.uncopy, "tcp", "serve", "--name", self.env["UNCOPY_TCP_SERVICE"]]), OPTIONS.server_core)
            time.sleep(0.3)
        command = case.server(self.port, self.directory)
        self.main = self.start(self.words(command), OPTIONS.server_core)
        end = time.monotonic() + STARTS
        while True:
            with contextlib.suppress(Failure):
                connect(self.port, 0.5).close()
                break
            if self.main.poll() is not None or time.monotonic() > end:
                with open(self.directory + "/said", errors="replace") as said:
                    raise Failure(f"{command[0]} does not answer: {said.read()[-400:].strip()}")
        case.prepare(self.port, self.directory)
        self.run()

    def plain(self, command):
        return [*self.case.user, *command]

    def words(self, command):
        return self.plain(command if self.options is None else [OPTIONS.uncopy, "run", *self.options, "--", *command])

    def start(self, command, core):
        with open(self.directory + "/said", "ab") as said:
            child = subprocess.Popen(
                ["taskset", "-c", str(core), *command], stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.env, cwd="/"
            )
        self.children.append(child)
        return child

    def run(self):
        """One client. Returns CPU for a request in us, and requests a second."""
        servers = [pid for child in self.children for pid in descendants(child.pid)]
        before = living_cpu(servers)
        command = ["taskset", "-c", str(OPTIONS.client_core), *self.words(self.case.client(self.port))]
        with open(self.directory + "/client", "w+") as said:
            client = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.env, cwd="/")
            # (PostgreSQL has a process for each connection, which ends with it: what those used is the server's once they are waited for.)
            _, status, used = os.wait4(client.pid, 0)
            client.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read()
        if client.returncode != 0:
            raise Failure(f"{command[3:]} ended with status {client.returncode}: {text[-400:].strip()}")
        requests, seconds = self.case.read(text)
        took = (living_cpu(servers) - before) / 1000 + self.children_cpu() + (used.ru_utime + used.ru_stime) * 1e6
        return took / requests, requests / seconds

    def children_cpu(self):
        """Microseconds that ended children of the server have used since the last time this was asked."""
        with open(f"/proc/{self.main.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        now = (int(fields[13]) + int(fields[14])) * 1e6 / os.sysconf("SC_CLK_TCK")
        since, self.ended = now - getattr(self, "ended", 0), now
        return since

    def end(self):
        for child in reversed(self.children):
            harness.ended(child, signal.SIGINT)


def measure(case, options):
    """The row of a case, of sides with these options."""
    with contextlib.ExitStack() as stack:
        sides = {side: Side(case, how, stack) for side, how in options.items()}
        return {"name": case.name, **in_turns(OPTIONS.turns, lambda side: sides[side].run(), tuple(options))}


def in_turns(count, run, sides=tuple(SIDES)):
    """`run(side)` says what a turn took for an answer, in us, and answers a second. Returns the row of so many turns of each side."""
    turns = {side: [] for side in sides}
    for turn in range(count):
        for i in range(len(sides)):
            side = sides[(turn + i) % len(sides)]
            turns[side].append(run(side))
    median = statistics.median
    row = {"turns": count, "plain": {"cpu_us": median(t[0] for t in turns["plain"]), "per_s": median(t[1] for t in turns["plain"])}}
    for side in sides[1:]:
        pairs = list(zip(turns["plain"], turns[side]))
        row[side] = {"rate_ratio": median(b[1] / a[1] for a, b in pairs), "cpu_ratio": median(a[0] / b[0] for a, b in pairs)}
    return row


def header(sides, width):
    columns = " ".join(f"{side:>7}" for side in sides)
    return f"{'':{width}} {'plain/s':>9} {columns} | {'CPU us':>8} {columns}"


def say(row, sides, width):
    if OPTIONS.json:
        print(json.dumps(row), flush=True)
        return
    rates = " ".join(f"{row[side]['rate_ratio']:7.2f}" for side in sides)
    times = " ".join(f"{row[side]['cpu_ratio']:7.2f}" for side in sides)
    print(f"{row['name']:{width}} {row['plain']['per_s']:9.0f} {rates} | {row['plain']['cpu_us']:8.1f} {times}", flush=True)


def main(cases=CASES, options=SIDES, about=__doc__):
    """Measures these cases, on sides with these options of `uncopy run`."""
    global OPTIONS
    root = os.path.dirname(harness.HERE)
    cores = sorted(os.sched_getaffinity(0))
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--uncopy", default=os.path.join(os.path.dirname(root), "target", "release", "uncopy"))
    p.add_argument("--only", default="", help="cases whose names have one of these words, with commas")
    p.add_argument("--turns", type=int, default=7, help="clients of each side, one after the other [7]")
    p.add_argument("--server-core", type=int, default=cores[-1])
    p.add_argument("--client-core", type=int, default=cores[0])
    p.add_argument("--json", action="store_true", help="print an object for each row, one a line")
    OPTIONS = p.parse_args()
    OPTIONS.uncopy = os.path.abspath(OPTIONS.uncopy)
    # A signal that ends this ends the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sides, width = tuple(options)[1:], max(len(case.name) for case in cases)
    if not OPTIONS.json:
        print(header(sides, width), flush=True)
    bad = 0
    for case in cases:
        if not any(word.lower() in case.name.lower() for word in OPTIONS.only.split(",")):
            continue
        missing = [need for need in case.needs if not harness.find(need)]
        try:
            if missing:
                raise Failure(f"{missing[0]} is not installed (scripts/install-test-deps; wrk: wrk; memcslap: libmemcached-tools)")
            say(measure(case, options), sides, width)
        except Failure as why:
            print(f"{case.name:{width}} not measured: {why}", file=sys.stderr, flush=True)
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
