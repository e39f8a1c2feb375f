#!/usr/bin/env python3
"""Many connections through unmodified programs of this host: nginx with wrk, over Linux' loopback, and under `uncopy run --tcp`.

Pairs of one nginx and one wrk share the connections, 8,000 each: a process may have only so many descriptors, and from some 14,000 connections
to one address on Linux looks long for a free port (ip_local_port_range), which is not what is asked here. Plain, plain again
(what these differ by is noise) and uncopy take turns, each turn with fresh processes: nginx on one core, wrk on another. In the first turn
of each side, which is not timed, it is looked at how many connections there are, which way they go, and how much memory they take (of the
whole machine, the kernel's too, for both ends). Answers a second are those of a whole turn: that all connect is in it, and that they all
begin by Linux. So is it with CPU, which is that of all servers, clients and the service for an answer. Answers are 64 bytes; wrk says if one of
them is an error, or a connection failed or had no answer for most of the turn, and then there is no row.

    bench/tcp/many.py                            64,000 connections, about six minutes
    bench/tcp/many.py --connections 1000,16000

Needs nginx and wrk."""

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apps"))
import harness  # noqa: E402
from loads import Failure, connect  # noqa: E402
from machine import free_port  # noqa: E402
from programs import in_turns  # noqa: E402

# Connections of a pair at most, and descriptors that each of its processes needs besides.
PAIR = 8000
OTHERS = 2000
OPTIONS = None


def configured(directory, port):
    with open(directory + "/nginx.conf", "w") as file:
        file.write(
            f"daemon off; master_process off; pid {directory}/pid; error_log {directory}/error crit;\n"
            f"events {{ worker_connections {PAIR + OTHERS // 2}; }}\n"
            "http { access_log off; keepalive_requests 100000000; keepalive_timeout 600s;\n"
            f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 '{'y' * 64}'; }} }} }}\n"
        )
    return [harness.find("nginx"), "-p", directory, "-c", directory + "/nginx.conf"]


def available():
    with open("/proc/meminfo") as file:
        return int(re.search(r"MemAvailable: +(\d+)", file.read())[1]) * 1024


def used():
    of = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of.ru_utime + of.ru_stime


class Programs:
    """The processes of one turn; ended by their pids whatever happens."""

    def __init__(self, side, stack):
        self.uncopy, self.stack, self.servers = side == "uncopy", stack, []
        self.env = dict(os.environ, UNCOPY_TCP_SERVICE=f"uncopy-bench-{os.getpid()}")
        if self.uncopy:
            self.start([OPTIONS.uncopy, "tcp", "serve", "--name", self.env["UNCOPY_TCP_SERVICE"]], OPTIONS.server_core)
            time.sleep(0.3)
            # (Programs would start another one, whose time nobody counts.)
            self.live()

    def start(self, command, core, **pipes):
        said = self.stack.enter_context(tempfile.TemporaryFile("w+"))
        words = [shutil.which("taskset"), "-c", str(core), *command]
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=self.env, **{"stdout": said, **pipes})
        self.stack.callback(harness.ended, child, signal.SIGINT)
        if not pipes:
            self.servers.append((command, child, said))
        return child

    def run(self, command, core, **pipes):
        words = [OPTIONS.uncopy, "run", "--tcp", "--require", "--elide=no", "--"] if self.uncopy else []
        return self.start([*words, *command], core, **pipes)

    def live(self):
        """Fails where the service or a server has ended."""
        for command, child, said in self.servers:
            if child.poll() is not None:
                said.seek(0)
                raise Failure(f"{' '.join(command)} has ended: {said.read()[-400:].strip()}")

    def flows(self):
        """Connections by memory."""
        command = [OPTIONS.uncopy, "tcp", "flows", "--name", self.env["UNCOPY_TCP_SERVICE"]]
        asked = subprocess.run(command, capture_output=True, text=True)
        said = asked.stdout
        found = re.search(r"([\d,]+) connections with both ends here", said)
        if asked.returncode != 0 or not found:
            raise Failure(f"{' '.join(command)} ended with status {asked.returncode}: {asked.stderr.strip()}")
        return int(found[1].replace(",", "")) - said.count("not taken up by both programs yet")


def established():
    with open("/proc/net/sockstat") as file:
        return int(re.search(r"TCP: inuse (\d+)", file.read())[1])


def turn(side, connections, seconds, look=False):
    pairs = -(-connections // PAIR)
    before, found = used(), {}
    with contextlib.ExitStack() as stack:
        programs = Programs(side, stack)
        ports = []
        for _ in range(pairs):
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="uncopy-many-"))
            ports.append(free_port())
            programs.run(configured(directory, ports[-1]), OPTIONS.server_core)
            try:
                connect(ports[-1], 10).close()
            except Failure:
                programs.live()
                raise
        # (The connections that asked whether they are there have gone again.)
        time.sleep(0.3)
        free, sockets = available(), established()
        each = [connections // pairs + (pair < connections % pairs) for pair in range(pairs)]
        clients = [
            programs.run(
                ["wrk", "-t", "1", "-c", str(many), "-d", f"{seconds}s", "--timeout", f"{max(1, seconds * 4 // 5)}s", f"http://127.0.0.1:{port}/"],
                OPTIONS.client_core,
                stdout=subprocess.PIPE,
                text=True,
            )
            for many, port in zip(each, ports)
        ]
        if look:
            time.sleep(seconds * 0.75)
            # (Each has a socket at both ends, uncopy's too.)
            found["connections"] = (established() - sockets) // 2
            found["memory"] = (free - available()) // connections
            if programs.uncopy:
                found["shared"] = programs.flows()
        said = [client.communicate()[0] for client in clients]
        programs.live()
    for text in said:
        if "Socket errors" in text or "Non-2xx" in text or "requests in" not in text:
            raise Failure(f"{side}: wrk says {text[-400:].strip()}")
    total = sum(int(re.search(r"(\d+) requests in", text)[1]) for text in said)
    found["per_s"] = sum(float(re.search(r"Requests/sec: +([0-9.]+)", text)[1]) for text in said)
    found["cpu_us"] = (used() - before) * 1e6 / total
    return found


def measure(connections):
    looks = {side: turn(side, connections, 2 * OPTIONS.seconds, look=True) for side in ("plain", "uncopy")}
    for side, look in looks.items():
        if look["connections"] < connections or look.get("shared", connections) < connections:
            raise Failure(f"{side}: not all {connections} connections were there: {look}")

    def run(side):
        took = turn(side, connections, OPTIONS.seconds)
        return took["cpu_us"], took["per_s"]

    memory = {side: look["memory"] for side, look in looks.items()}
    return {"connections": connections, "memory": memory, **in_turns(OPTIONS.turns, run)}


def say(row):
    if OPTIONS.json:
        print(json.dumps(row), flush=True)
        return
    plain, again, uncopy, memory = row["plain"], row["again"], row["uncopy"], row["memory"]
    print(
        f"{row['connections']:11,} {plain['per_s']:9.0f} {again['rate_ratio']:6.2f} {uncopy['rate_ratio']:7.2f} |"
        f" {plain['cpu_us']:8.1f} {again['cpu_ratio']:6.2f} {uncopy['cpu_ratio']:7.2f} | {memory['plain']:8,} {memory['uncopy']:8,}",
        flush=True,
    )


def main():
    global OPTIONS
    root = os.path.dirname(os.path.dirname(harness.HERE))
    cores = sorted(os.sched_getaffinity(0))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--uncopy", default=os.path.join(root, "target", "release", "uncopy"))
    p.add_argument("--connections", default="64000", help="how many, with commas [64000]")
    p.add_argument("--turns", type=int, default=3, help="of each side, one after the other [3]")
    p.add_argument("--seconds", type=int, default=25, help="of a turn; the first ones take twice as long, and all connections must be there after three quarters of that [25]")
    p.add_argument("--server-core", type=int, default=cores[-1])
    p.add_argument("--client-core", type=int, default=cores[0])
    p.add_argument("--json", action="store_true", help="print an object for each row, one a line")
    OPTIONS = p.parse_args()
    OPTIONS.uncopy = os.path.abspath(OPTIONS.uncopy)
    for need in ("nginx", "wrk"):
        if not harness.find(need):
            p.error(f"{need} is not installed (scripts/install-test-deps; wrk: wrk)")
    try:
        wanted = [int(word) for word in OPTIONS.connections.split(",")]
    except ValueError as why:
        p.error(f"--connections: {why}")
    if min(wanted) < 1:
        p.error("--connections: at least one")
    needs, may = min(PAIR, max(wanted)) + OTHERS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if may < needs:
        p.error(f"a process may have {may} descriptors (ulimit -Hn), {needs} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needs, may))
    # A signal that ends this ends the servers too.
    for ends in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ends, lambda number, _: sys.exit(128 + number))
    if len(cores) < 2:
        print("one core only: servers and clients share it", file=sys.stderr)
    if not OPTIONS.json:
        print(f"{'connections':>11} {'plain/s':>9} {'again':>6} {'uncopy':>7} | {'CPU us':>8} {'again':>6} {'uncopy':>7} | {'B, plain':>8} {'uncopy':>8}", flush=True)
    for connections in wanted:
        try:
            say(measure(connections))
        except Failure as why:
            sys.exit(f"{connections} connections were not measured: {why}")


if __name__ == "__main__":
    main()
