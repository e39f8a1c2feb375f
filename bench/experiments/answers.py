#!/usr/bin/env python3
"""What it would bring to let the answer wait for a sync, and not the program: answers.c beside plain and `uncopy run --log`.

    python3 bench/experiments/answers.py [--dir target] [--sizes 64,4096] [--clients 50] [--seconds 3] [--turns 3]
    python3 bench/experiments/answers.py --attacks

--attacks: programs that sync and then answer in some other way than by a socket. Each runs twice: held, where no answer may be
seen before its sync is durable; and with its system calls let through, where one must be, else the attack is none.

Two servers, in turns: redis with `appendfsync always`, which syncs once for all requests that it found at once (`everysec`
beside it: what no sync at all would leave); and `each`, of one thread, that appends, syncs and answers one request after the
other. Requests a second, by redis-benchmark; with the least time that 50 syncs of 100 appended bytes took one by one."""

import argparse
import fcntl
import os
import pty
import re
import select
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from machine import answers  # noqa: E402


def sites(path):
    """Of each system call in an object: the first displaced instruction, the call, the end; the number, if it stands before it."""
    text = subprocess.run(["objdump", "-d", "-j", ".text", path], check=True, capture_output=True, text=True).stdout
    seen = [re.match(r"\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\t?(\S*)\s*(.*)", line) for line in text.splitlines()]
    code = []
    for it in filter(None, seen):
        if it[3]:
            code.append((int(it[1], 16), len(it[2].split()), it[3], it[4]))
        else:
            # (A long instruction goes on in another line.)
            code[-1] = (code[-1][0], code[-1][1] + len(it[2].split()), *code[-1][2:])
    leaves = re.compile(r"(j|call|ret|loop|push|pop|int|ud2|hlt)")
    goals = {int(it[3].split()[0], 16) for it in code if leaves.match(it[2]) and re.match(r"[0-9a-f]+( |$)", it[3])}
    moves = lambda it: "rip" not in it[3] and not leaves.match(it[2]) and it[2] != "syscall"
    for i, (at, _, what, _) in enumerate(code):
        if what != "syscall":
            continue
        number = re.match(r"\$0x([0-9a-f]+),%eax", code[i - 1][3]) if code[i - 1][2] == "mov" else None
        number = int(number[1], 16) if number else -1
        first, after = i, i + 1
        if number >= 0 and at not in goals:
            first = i - 1
        while sum(it[1] for it in code[first:after]) < 5 and moves(code[after]) and code[after][0] not in goals:
            after += 1
        while sum(it[1] for it in code[first:after]) < 5 and code[first][0] not in goals and moves(code[first - 1]):
            first -= 1
        if sum(it[1] for it in code[first:after]) < 5:
            raise SystemExit(f"{path}: no room at {at:#x}")
        end = code[after - 1][0] + code[after - 1][1]
        yield code[first][0], at, end, number


OBJECTS = ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2")


def build(into):
    """The environment of a program under the prototype."""
    with open(f"{into}/sites", "w") as file:
        for path in OBJECTS:
            for site in sites(path):
                print(os.path.basename(path), *(f"{at:x}" for at in site[:3]), site[3], file=file)
    command = ["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", f"{into}/answers.so", f"{HERE}/answers.c"]
    subprocess.run(command, check=True)
    return {"LD_PRELOAD": f"{into}/answers.so", "GATE_SITES": f"{into}/sites"}


BEGINS = """
import ctypes, fcntl, mmap, os, signal, socket, struct, subprocess, sys, threading, time
port = int(sys.argv[1])
other = os.open("other", os.O_RDWR | os.O_CREAT)
file = os.open("journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
connect = lambda: socket.create_connection(("127.0.0.1", port))
def promised():
    os.write(file, b"x"); os.fdatasync(file)
"""
# The parts of an attack: the program; where its answer is looked for; the system calls by which it
# comes.
ATTACKS = {
    "a pipe": ("promised(); os.write(1, b'x')", "pipe", [1]),
    "stdio, within libc": ("promised(); c = ctypes.CDLL(None); c.puts(b'x'); c.fflush(None)", "pipe", [1]),
    "a terminal": ("promised(); os.write(1, b'x')", "terminal", [1]),
    "an exit code": ("promised(); os._exit(3)", "end", [231]),
    "a return from main": ("promised()", "end", [231]),
    "a forked child": ("promised()\nif os.fork() == 0: os.write(1, b'x')\nelse: time.sleep(1)", "pipe", [56, 1]),
    "a program that it starts": ("promised(); subprocess.Popen(['echo', 'x'])", "pipe", [3, 32, 33, 56, 58, 59, 435, 436]),
    "what it becomes": ("promised(); os.execv('/bin/echo', ['echo', 'x'])", "pipe", [59]),
    "another thread": ("s = connect(); promised()\nt = threading.Thread(target=lambda: s.send(b'x')); t.start(); t.join()", "bytes", [44, 435]),
    "a stream": ("s = connect(); promised(); s.send(b'x'); time.sleep(1)", "bytes", [44]),
    "a list of buffers": ("s = connect(); promised(); s.sendmsg([b'x', b'y']); time.sleep(1)", "bytes", [46]),
    "a unix socket": ("s = socket.socket(socket.AF_UNIX); s.connect('unix'); promised(); s.send(b'x'); time.sleep(1)", "unix", [44]),
    "a descriptor": ("s = socket.socket(socket.AF_UNIX); s.connect('unix'); promised(); socket.send_fds(s, [b'x'], [other])", "unix", [46]),
    "a datagram": ("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); promised(); s.sendto(b'x', ('127.0.0.1', port))", "datagram", [44]),
    "sendfile": ("s = connect(); os.write(other, b'x'); promised(); os.sendfile(s.fileno(), other, 0, 1); time.sleep(1)", "bytes", [40]),
    "splice": ("s = connect(); r, w = os.pipe(); os.write(w, b'x'); promised(); os.splice(r, s.fileno(), 1); time.sleep(1)", "bytes", [275]),
    "a connection": ("promised(); s = connect(); time.sleep(1)", "connection", [3, 16, 42, 44, 49]),
    "a close": ("s = connect(); promised(); s.close(); time.sleep(1)", "bytes", [3]),
    "a shutdown": ("s = connect(); promised(); s.shutdown(socket.SHUT_WR); time.sleep(1)", "bytes", [48]),
    "a signal": ("promised(); os.kill(os.getppid(), signal.SIGUSR1); time.sleep(1)", "signal", [62]),
    "another file": ("promised(); os.write(other, b'x'); time.sleep(1)", "grows", [1]),
    "a file's length": ("promised(); os.ftruncate(other, 5); time.sleep(1)", "grows", [77]),
    "a new name": ("promised(); os.rename('other', 'named'); time.sleep(1)", "named", [82]),
    "a lock file": ("promised(); os.unlink('other'); time.sleep(1)", "gone", [87]),
    "a lock": ("fcntl.flock(other, fcntl.LOCK_EX); os.mkdir('locks'); promised(); fcntl.flock(other, fcntl.LOCK_UN); time.sleep(1)", "unlocked", [73]),
    "room in a pipe": ("promised(); os.read(0, 1 << 16); time.sleep(1)", "room", [0]),
    "a position": ("promised(); os.lseek(0, 5, 0); time.sleep(1)", "moved", [8]),
    "a page in a pipe": ("m = mmap.mmap(-1, 4096); v = struct.pack('PL', ctypes.addressof(ctypes.c_char.from_buffer(m)), 4096)\n"
                         "ctypes.CDLL(None).vmsplice(1, v, 1, 0); promised(); m[0] = 1; time.sleep(1)", "page", []),
    "shared memory": ("os.ftruncate(other, 4096); m = mmap.mmap(other, 4096); promised(); m[0] = 1; time.sleep(1)", "stored", []),
}


def attack(environment, code, where, port, into):
    """Whether the answer is seen before its sync is durable."""
    heard = []
    signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    listener, unix = socket.create_server(("127.0.0.1", port)), socket.socket(socket.AF_UNIX)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", port))
    unix.bind(f"{into}/unix")
    unix.listen()
    out = pty.openpty() if where == "terminal" else os.pipe()
    marks, said = os.pipe()
    os.set_blocking(marks, False)
    write_to, read_from = (out[1], out[0])
    into_it = os.pipe() if where == "room" else (os.open(f"{into}/input", os.O_RDWR | os.O_CREAT), None)
    if where == "room":
        os.set_blocking(into_it[1], False)
        os.write(into_it[1], b"x" * (1 << 20))
    process = subprocess.Popen([sys.executable, "-S", "-c", BEGINS + code, str(port)], cwd=into, stdin=into_it[0], stdout=write_to, stderr=said,
                               env={**os.environ, **environment})
    os.close(write_to)
    os.close(said)
    other = f"{into}/other"

    def until(seen):
        for _ in range(1000):
            try:
                if seen():
                    return
            except OSError:
                pass
            time.sleep(0.005)
        raise SystemExit(f"no answer by {where}")

    def unlocked():
        if not os.path.exists(f"{into}/locks"):
            return False
        with open(other) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True

    def bytes_of(listener):
        one = listener.accept()[0]
        one.recv(9)
        return True

    def room():
        return select.select([], [into_it[1]], [], 0)[1]

    def page():
        # (When the program has changed it, and its sync is under way.)
        until(lambda: os.path.exists(f"{into}/journal") and os.path.getsize(f"{into}/journal"))
        time.sleep(0.15)
        if os.read(read_from, 4096)[:1] != b"\1":
            raise SystemExit("the page is as it was")

    def stored():
        with open(other, "rb") as file:
            return file.read(1) == b"\1"

    {"pipe": lambda: os.read(read_from, 9), "terminal": lambda: os.read(read_from, 9), "end": process.wait,
     "bytes": lambda: bytes_of(listener), "unix": lambda: bytes_of(unix), "datagram": lambda: datagrams.recv(9),
     "connection": listener.accept, "signal": lambda: until(lambda: heard), "grows": lambda: until(lambda: os.path.getsize(other)),
     "named": lambda: until(lambda: os.path.exists(f"{into}/named")), "gone": lambda: until(lambda: not os.path.exists(other) and
     os.path.exists(f"{into}/journal")), "unlocked": lambda: until(unlocked), "stored": lambda: until(stored),
     "room": lambda: until(room), "moved": lambda: until(lambda: os.lseek(into_it[0], 0, os.SEEK_CUR) == 5), "page": page}[where]()
    try:
        early = b"durable" not in os.read(marks, 1 << 16)
    except BlockingIOError:
        early = True
    process.wait()
    for it in (listener, unix, datagrams):
        it.close()
    for fd in (read_from, marks, *into_it):
        if fd is not None:
            os.close(fd)
    return early


def attacks(directory, only=None):
    wrong = 0
    with tempfile.TemporaryDirectory() as built:
        environment = {**build(built), "ANSWERS_SLOW": "300"}
        for i, (name, (code, where, numbers)) in enumerate(ATTACKS.items()):
            if only not in (None, name):
                continue
            early = []
            for through in [[], numbers] if numbers else [[]]:
                let = {"ANSWERS_LEAVE": ",".join(map(str, through))} if through else {}
                with tempfile.TemporaryDirectory(dir=directory) as into:
                    early.append(attack({**environment, **let}, code, where, 24000 + i, into))
            says = "seen early" if early[0] else "held"
            if numbers:
                says += "; let through: seen early" if early[1] else "; let through: held, so it is no attack"
            right = not early[0] and early[-1] if numbers else early[0]
            wrong += not right
            print(f"{name:26} {says}", flush=True)
    print(f"{len(ATTACKS)} attacks, {wrong} not as they should be")


def each(port, directory):
    """The server with a sync for each request."""
    file = os.open(f"{directory}/journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sockets = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port))
    sockets.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in sockets.select():
            if key.fileobj is listener:
                sockets.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            request = key.fileobj.recv(1 << 16)
            if not request:
                sockets.unregister(key.fileobj)
                key.fileobj.close()
                continue
            os.write(file, request)
            os.fdatasync(file)
            key.fileobj.send(b"+OK\r\n")


def turn(args, server, side, size, port):
    directory = tempfile.mkdtemp(dir=args.dir)
    if server == "redis":
        command = ["redis-server", "--port", str(port), "--dir", directory, "--save", "", "--appendonly", "yes", "--appendfsync",
                   "everysec" if side == "everysec" else "always", "--auto-aof-rewrite-percentage", "0", "--logfile", "redis.log"]
    else:
        command = [sys.executable, __file__, "--serve", str(port), "--dir", directory]
    environment = dict(os.environ)
    if side == "log":
        command = [args.uncopy, "run", f"--log={args.dir}/log", "--", *command]
    if side == "answers":
        environment.update(args.environment)
    process = subprocess.Popen(command, env=environment)
    try:
        if not answers(port):
            raise SystemExit("the server does not answer")
        bench = ["redis-benchmark", "-p", str(port), "-t", "set", "-d", str(size), "-c", str(args.clients), "-r", "10000", "--csv", "-n"]
        took, requests = 1, 0
        # (Files grow into their lives; then as many as take long enough.)
        for requests in (500, 2000, None):
            requests = requests or max(500, int(2000 / took * args.seconds))
            begun = time.monotonic()
            subprocess.run([*bench, str(requests)], check=True, capture_output=True)
            took = time.monotonic() - begun
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory)
    return requests / took


def sync_takes(directory):
    """us of an append's fdatasync: median."""
    took = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for _ in range(50):
            os.write(file.fileno(), b"x" * 100)
            begun = time.monotonic()
            os.fdatasync(file.fileno())
            took.append(time.monotonic() - begun)
    return statistics.median(took) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="target")
    parser.add_argument("--uncopy", default="target/release/uncopy")
    parser.add_argument("--servers", default="redis,each")
    parser.add_argument("--sizes", default="64,4096")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attacks", action="store_true", help="whether answers by other ways are held, too")
    parser.add_argument("--only", help="one attack")
    args = parser.parse_args()
    if args.attacks:
        return attacks(os.path.abspath(args.dir), args.only)
    if args.serve:
        return each(args.serve, args.dir)
    args.dir, args.uncopy = os.path.abspath(args.dir), os.path.abspath(args.uncopy)
    with tempfile.TemporaryDirectory() as built:
        args.environment = build(built)
        port = 23000
        for server in args.servers.split(","):
            sides = ["plain", "log", "answers"] + (["everysec"] if server == "redis" else [])
            for size in args.sizes.split(","):
                seen, syncs = {side: [] for side in sides}, []
                for _ in range(args.turns):
                    for side in sides:
                        port += 1
                        syncs.append(sync_takes(args.dir))
                        seen[side].append(turn(args, server, side, int(size), port))
                first = statistics.median(seen["plain"])
                rates = [(side, statistics.median(rates), rates) for side, rates in seen.items()]
                shown = ", ".join(
                    f"{side} {rate:.0f} ({rate / first:.2f}; {' '.join(f'{r:.0f}' for r in all_of_them)})"
                    for side, rate, all_of_them in rates
                )
                syncs.sort()
                print(f"{server} {size} B: {shown}; a sync {syncs[0]:.0f}, {statistics.median(syncs):.0f}, {syncs[-1]:.0f} us", flush=True)


if __name__ == "__main__":
    main()
