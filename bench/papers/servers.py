#!/usr/bin/env python3
"""Servers of the distribution under a closed loop (programs/load.c): plain, under uncopy, and with both ends under `uncopy run --tcp`.

    bench/papers/servers.py memcached --sizes 512,1K --connections 36 --mode keep
    bench/papers/servers.py varnish --sizes 6K --mode close            a connection for each request
    bench/papers/servers.py icecast-file --sizes 1100K --mode close    a file of its web root

Prints JSON: for each size and side the answers a second, processor time for each of the server (its helper threads and the service counted) and of
both ends in us, the ratios of plain to it (rate: of it to plain). Every byte of all answers of a turn before and of one after the timing is compared. The
load is on a core of its own, and so is the server; one congestion control for all connections. As root memcached and varnish stay root, because rings
are of one user; icecast refuses to, so that it, its load and its service are nobody."""

import argparse
import os
import random
import statistics
import sys

import turns
from turns import Failure, in_turns, median, ratio

sys.path.insert(0, os.path.join(turns.ROOT, "bench", "apps"))
SERVERS = ("memcached", "varnish", "icecast-file")
# A userfaultfd that serves the kernel's accesses too needs this one capability.
AS_NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("server", choices=SERVERS)
    p.add_argument("--sides", default="uncopy,rings", help="besides plain and plain again (uncopy,rings)")
    p.add_argument("--sizes", default="512,768,1K,6K", help="of values and files")
    p.add_argument("--connections", type=int, default=36, help="of the load, one request under way on each (36)")
    p.add_argument("--mode", choices=("keep", "close"), default="keep", help="connections stay, or each has one request")
    p.add_argument("--congestion", default="cubic", help="congestion control of all connections, as the kernel's default (cubic)")
    p.add_argument("--turns", type=int, default=15, help="of each side (15)")
    p.add_argument("--warm", type=int, default=3, help="turns of each side before them, which do not count (3)")
    p.add_argument("--seconds", type=float, default=0.1, help="of a turn (0.1)")
    return p.parse_args()


def memcached(side, port, size, content):
    import socket

    user = ["-u", "root"] if os.geteuid() == 0 else []
    command = [turns.installed("memcached", "memcached"), "-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "1", "-m", "256", *user]

    def prepare():
        with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
            s.sendall(b"set key 0 0 %d\r\n%s\r\n" % (size, content))
            if s.recv(100) != b"STORED\r\n":
                raise Failure("memcached does not store the value")

    return command, prepare, b"get key\r\n", b"VALUE key 0 %d\r\n%s\r\nEND\r\n" % (size, content), "raw"


def varnish(side, port, size, content):
    import loads

    origin = turns.free_port()
    script = os.path.join(turns.ROOT, "bench", "apps", "servers", "origin.py")
    side.popen([sys.executable, script, origin], turns.cores()[1])
    loads.connect(origin).close()
    where = os.path.join(side.directory, "varnish")
    options = ["-t", "36000", "-j", "none", "-s", "malloc,256m", "-p", "thread_pools=1", "-p", "timeout_idle=3600"]
    program = turns.installed("varnishd", "varnish")
    command = [program, "-F", "-n", where, "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{origin}", *options]
    return command, lambda: None, b"GET /%d HTTP/1.1\r\nHost: bench\r\n\r\n" % size, random.Random(size).randbytes(size), "http"


ICECAST = """<icecast>
  <limits><clients>400</clients><sources>4</sources><queue-size>{queue}</queue-size><client-timeout>120</client-timeout>
    <header-timeout>60</header-timeout><source-timeout>60</source-timeout><burst-size>65536</burst-size></limits>
  <authentication><source-password>secret</source-password><relay-password>secret</relay-password>
    <admin-user>admin</admin-user><admin-password>secret</admin-password></authentication>
  <hostname>localhost</hostname>
  <listen-socket><port>{port}</port><bind-address>127.0.0.1</bind-address></listen-socket>
  <fileserve>1</fileserve>
  <paths><basedir>{here}</basedir><logdir>{here}</logdir><webroot>{here}/web</webroot><adminroot>{here}</adminroot></paths>
  <logging><accesslog>access.log</accesslog><errorlog>error.log</errorlog><loglevel>1</loglevel></logging>
  <security><chroot>0</chroot></security>
</icecast>
"""


def icecast(side, port, queue=1 << 20):
    """Its command; what it serves lies in the directory `web`."""
    here = side.directory
    os.makedirs(os.path.join(here, "web"), exist_ok=True)
    os.chmod(os.path.join(here, "web"), 0o777)
    conf = os.path.join(here, "icecast.xml")
    with open(conf, "w") as f:
        f.write(ICECAST.format(port=port, here=here, queue=queue))
    return [turns.installed("icecast2", "icecast2"), "-c", conf]


def icecast_file(side, port, size, content):
    command = icecast(side, port)
    path = os.path.join(side.directory, "web", "audio.mp3")
    with open(path, "wb") as f:
        f.write(content)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    return command, lambda: None, b"GET /audio.mp3 HTTP/1.0\r\n\r\n", content, "http"


START = {"memcached": memcached, "varnish": varnish, "icecast-file": icecast_file}


def user_of(server):
    return AS_NOBODY if server.startswith("icecast") and os.geteuid() == 0 else []


def measure(o):
    with turns.congestion(o.congestion) as o.congestion:
        rows = [row(o, size) for size in map(turns.size_of, o.sizes.split(","))]
        return {"bench": "servers", "server": o.server, "mode": o.mode, "congestion": o.congestion, "rows": rows}


def row(o, size):
    names = ["plain", "again", *o.sides.split(",")]
    first, second = turns.cores()
    content = random.Random(size).randbytes(size)
    servers, loads = {}, {}
    with turns.sides(names, user=user_of(o.server)) as sides:
        for name, side in sides.items():
            port = turns.free_port()
            command, prepare, request, answer, kind = START[o.server](side, port, size, content)
            servers[name] = side.start(command, first)
            turns.wait_port(port, servers[name], side)
            prepare()
            paths = [os.path.join(side.directory, part) for part in ("request", "answer")]
            for path, what in zip(paths, (request, answer)):
                with open(path, "wb") as f:
                    f.write(what)
            loads[name] = side.talk([turns.program("load"), port, o.connections, *paths, o.mode, kind, o.congestion], second)

        def turn(name, seconds=o.seconds, compare=0):
            cpu = turns.cpu(servers[name].pid) + sides[name].service_cpu()
            said = loads[name].ask(int(seconds * 1e9), compare)
            said["server"] = turns.cpu(servers[name].pid) + sides[name].service_cpu() - cpu
            return said

        turns.time.sleep(1.1 if "kept" in names else 0)
        in_turns(names, 0, lambda name: turn(name, 0.1, 1), warm=max(1, min(2, o.warm)))
        found = in_turns(names, o.turns, turn, warm=o.warm)
        in_turns(names, 0, lambda name: turn(name, 0.05, 1))
        turns.alike(found, o.congestion)
    shown = {}
    for name in names:
        keys = {"rate": lambda t: t["wall"] / t["answers"], "cpu": lambda t: t["server"] / t["answers"], "both": lambda t: (t["server"] + t["cpu"]) / t["answers"]}
        shown[name] = {
            "per_s": round(statistics.median(t["answers"] * 1e9 / t["wall"] for t in found[name]), 1),
            "cpu_us": round(median(found, name, keys["cpu"]) / 1e3, 2),
            "both_us": round(median(found, name, keys["both"]) / 1e3, 2),
            "p99_us": round(median(found, name, lambda t: t["p99"]) / 1e3, 1),
        } | {f"{key}_ratio": round(ratio(found, name, take), 3) for key, take in keys.items()}
    return {"size": size, "connections": o.connections, "sides": shown}


if __name__ == "__main__":
    turns.main(lambda: measure(arguments()))
