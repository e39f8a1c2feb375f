#!/usr/bin/env python3
"""What a request over a wire costs: redis behind `uncopy tcp serve --if`, and behind Linux, in turns.

Two network namespaces with a veth between them; redis-server in one, redis-benchmark (GET of 64 B, or of --size; or SET) in the other. Counted is the processor time of server, service and
client, threads each, from /proc (schedstat: nanoseconds that a thread ran). What softirqs do for somebody is charged to whoever runs then, on both sides alike; ksoftirqd is
reported besides. Frames are those that the servers' host sends, switches those of server and service; these two depend less on how busy the machine is. `ratio` is Linux over uncopy in processor time a request: above 1 uncopy takes less. It is the median of the rounds' own ratios.

    tests/remote/cost.py --uncopy target/release/uncopy
    tests/remote/cost.py --uncopy A --uncopy B          two builds and Linux, in turns
    tests/remote/cost.py --uncopy A --cases 50/1 --rounds 5 --wait adaptive --json
    tests/remote/cost.py --uncopy A --by tap --size 65536 --requests 20000 --request set

Needs root, iproute2, redis-server and redis-benchmark. A case is connections/requests under way on each (-c/-P). By AF_XDP the client's device
must not leave checksums (and so segments) to the other end; by a TAP it does, in all turns, as devices do.
"""

import argparse
import contextlib
import glob
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

ADDRESS = "10.78.9.2"
REDIS = ["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no"]
CASES = "1/1,50/1,1000/1,1/16,50/16,1000/16"
# Requests a second and connection are few where there is one, which sleeps: so many take about a second.
COUNTS = {(1, 1): 15_000, (1, 16): 150_000}
NO_OFFLOAD = """
import ctypes, fcntl, socket, struct
value = ctypes.create_string_buffer(struct.pack("II", 0x17, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack("16sP16x", b"outer", ctypes.addressof(value)))
"""


def cpu(pid):
    """Microseconds that all threads of a process ran."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with contextlib.suppress(OSError), open(path) as file:
            total += int(file.read().split()[0])
    return total / 1000


def switches(pid):
    """How often threads of a process slept, or were made to give the processor away."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with contextlib.suppress(OSError), open(path) as file:
            total += sum(int(line.split()[1]) for line in file if "_ctxt_switches" in line)
    return total


def ksoftirqd():
    total = 0
    for path in glob.glob("/proc/[0-9]*/comm"):
        with contextlib.suppress(OSError), open(path) as file:
            if file.read().startswith("ksoftirqd/"):
                total += cpu(path.split("/")[2])
    return total


class Network:
    """The two namespaces; what runs in them ends with it."""

    def __init__(self, queues, offloads):
        pid = os.getpid()
        self.inner, self.outer, self.service = f"ucci{pid}", f"ucco{pid}", f"uncopy-tcp-cost-{pid}"
        self.children = []
        inner, outer, q = self.inner, self.outer, f"numrxqueues {queues} numtxqueues {queues}"
        for words in (
            f"ip netns add {inner}",
            f"ip netns add {outer}",
            f"ip -n {inner} link add inner {q} type veth peer name outer {q} netns {outer}",
            f"ip -n {inner} addr add {ADDRESS}/24 dev inner",
            f"ip -n {outer} addr add 10.78.9.1/24 dev outer",
            f"ip -n {inner} link set inner up",
            f"ip -n {outer} link set outer up",
            f"ip -n {inner} link set lo up",
            f"ip -n {outer} link set lo up",
        ):
            subprocess.run(words.split(), check=True)
        if not offloads:
            subprocess.run(["ip", "netns", "exec", outer, "python3", "-c", NO_OFFLOAD], check=True)

    def frames(self):
        """Packets that left the servers' end of the veth."""
        said = subprocess.run(["ip", "-n", self.inner, "-j", "-s", "link", "show", "inner"], check=True, capture_output=True, text=True)
        return json.loads(said.stdout)[0]["stats64"]["tx"]["packets"]

    def start(self, namespace, words):
        env = dict(os.environ, UNCOPY_TCP_SERVICE=self.service)
        child = subprocess.Popen(["ip", "netns", "exec", namespace, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.children.append(child)
        return child

    def close(self):
        for child in reversed(self.children):
            child.send_signal(signal.SIGKILL)
            child.wait()
        for name in (self.inner, self.outer):
            subprocess.run(["ip", "netns", "del", name], check=False)


def until(child, text):
    for line in child.stdout:
        if text in line:
            return
    raise SystemExit(f"{child.args}: ended before it said '{text}'")


def side(uncopy, args, case):
    """One measurement: microseconds a request of server, service, client, ksoftirqd; requests a second."""
    connections, pipelined = case
    count = COUNTS.get(case, args.requests * (6 if pipelined > 1 else 1))
    network = Network(args.queues, offloads=args.by == "tap")
    try:
        server = service = None
        if uncopy:
            service = network.start(network.inner, [uncopy, "tcp", "serve", "--if", "inner", "--by", args.by, "--wait", args.wait, "--name", network.service])
            until(service, "from other hosts")
            server = network.start(network.inner, [uncopy, "run", "--tcp", "--", *REDIS])
        else:
            server = network.start(network.inner, REDIS)
        until(server, "Ready to accept")
        time.sleep(0.5)
        words = ["ip", "netns", "exec", network.outer, "redis-benchmark", "-h", ADDRESS, "-c", str(connections), "-P", str(pipelined), "-t", args.request, "-d", str(args.size), "--csv"]
        # (Connections come, are registered, and find their rings before anything counts. The value is there then.)
        # (One at a time: redis-benchmark now and then gives up where the requests are no multiple of what is under way.)
        subprocess.run([*words, "-t", "set", "-P", "1", "-n", "100"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*words, "-n", str(max(count // 10, 20 * connections))], check=True, stdout=subprocess.DEVNULL)
        pids = [child.pid for child in (server, service) if child]
        counts = [network.frames(), *map(switches, pids)]
        before, soft = [cpu(pid) for pid in pids], ksoftirqd()
        client = subprocess.Popen([*words, "-n", str(count)], stdout=subprocess.PIPE, text=True)
        said = client.stdout.read()
        _, status, used = os.wait4(client.pid, 0)
        client.returncode = status
        after, soft = [cpu(pid) for pid in pids], ksoftirqd() - soft
        counts = [(now - then) / count for now, then in zip([network.frames(), *map(switches, pids)], counts)]
        rate = re.search(rf'"{args.request.upper()}","([\d.]+)"', said)
        if status or not rate:
            raise SystemExit(f"redis-benchmark says {said}")
        spent = [(now - then) / count for now, then in zip(after, before)]
        return {
            "server": spent[0],
            "service": spent[1] if service else 0.0,
            "client": (used.ru_utime + used.ru_stime) * 1e6 / count,
            "ksoftirqd": soft / count,
            "frames": counts[0],
            "switches": sum(counts[1:]),
            "rate": float(rate.group(1)),
        }
    finally:
        network.close()


def total(row):
    return row["server"] + row["service"] + row["client"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uncopy", action="append", required=True, metavar="PATH")
    parser.add_argument("--cases", default=CASES, metavar="C/P,...")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=100_000, help="six times as many where they are pipelined")
    parser.add_argument("--wait", default="adaptive", choices=["sleep", "adaptive", "spin"])
    parser.add_argument("--by", default="xdp", choices=["xdp", "tap"])
    parser.add_argument("--size", type=int, default=64, help="bytes of a value")
    parser.add_argument("--request", default="get", choices=["get", "set"], help="which way values go")
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cases = [tuple(map(int, case.split("/"))) for case in args.cases.split(",")]
    rows = []
    for case in cases:
        sides = {name: [] for name in ["linux", *args.uncopy]}
        for turn in range(args.rounds):
            # (The side that comes first changes.)
            names = list(sides) if turn % 2 == 0 else list(reversed(sides))
            for name in names:
                sides[name].append(side(None if name == "linux" else name, args, case))
        load = open("/proc/loadavg").read().split()[0]
        for name, measured in sides.items():
            row = {key: statistics.median(one[key] for one in measured) for key in measured[0]}
            pairs = list(zip(sides["linux"], measured))
            row["ratio"] = statistics.median(total(linux) / total(one) for linux, one in pairs)
            row["rate_ratio"] = statistics.median(one["rate"] / linux["rate"] for linux, one in pairs)
            row |= {"connections": case[0], "pipelined": case[1], "side": name, "wait": args.wait, "load": float(load)}
            rows.append(row)
            print(
                f"c={case[0]:<5} P={case[1]:<3} {os.path.basename(os.path.dirname(name)) + '/' + os.path.basename(name) if name != 'linux' else name:24} server {row['server']:6.2f} service {row['service']:6.2f}"
                f" client {row['client']:6.2f} sum {total(row):6.2f} us, ksoftirqd {row['ksoftirqd']:5.2f}; frames {row['frames']:.2f}, switches {row['switches']:.2f}; {row['rate']:9.0f}/s; cpu ratio {row['ratio']:.2f}, rate {row['rate_ratio']:.2f}; load {load}",
                file=sys.stderr if args.json else sys.stdout,
                flush=True,
            )
    if args.json:
        print(json.dumps({"rows": rows}))


main()
