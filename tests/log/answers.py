#!/usr/bin/env python3
"""Answers wait for syncs (`run --log --log-sync=answers`): programs that sync, which takes 0.5 s more, and answer at once in some way.

    answers.py [--only ATTACK] [--dir D] [--uncopy U]
    answers.py --streams SECONDS
    answers.py --serve PORT FILE

Each runs twice: held, where no answer may be seen before its sync is durable; and with its system calls let through, where one must
be, else it is no attack. What cannot be held has to keep syncs as ever, with a reason.

--serve: a server of one thread that appends each request to FILE, syncs, and answers."""

import argparse
import concurrent.futures
import fcntl
import os
import pty
import random
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import memory

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))

# A directory is made at once where nothing waits. So syncs are repeated until one has returned early.
BEGINS = """
import fcntl, os, select, signal, socket, subprocess, sys, threading, time
port = int(sys.argv[1])
other = os.open("other", os.O_RDWR | os.O_CREAT)
file = os.open("journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
connect = lambda: socket.create_connection(("127.0.0.1", port))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def promised():
    os.write(file, b"x"); os.fdatasync(file)
def waits(name):
    begun = time.monotonic()
    os.mkdir(name)
    return time.monotonic() - begun > 0.2
for i in range(800):
    promised()
    if waits("early%d" % i):
        break
    time.sleep(0.05)
else:
    sys.exit("no sync returns early")
"""
READY = "sys.stderr.write('now it begins\\n'); sys.stderr.flush()\n"
# Each attack: the program, in what is done before it is ready and after; where its answer is looked for; the system calls by
# which it comes. (56, 59: also what is done before libc makes them.)
ATTACKS = {
    "a pipe": ("", "promised(); os.write(1, b'x')", "pipe", [1]),
    "stdio, within libc": (None, "stdio", "pipe", [1, 5, 262]),
    "a terminal": ("", "promised(); os.write(1, b'x')", "terminal", [1]),
    "an exit code": ("", "promised(); os._exit(3)", "end", [231]),
    "a return from main": ("", "promised()", "end", [3, 231]),
    "a forked child": ("", "promised()\nif os.fork() == 0: os.write(1, b'x')\nelse: time.sleep(1)", "pipe", [56, 1]),
    "a program that it starts": ("", "promised(); subprocess.Popen(['echo', 'x'])", "pipe", [0, 3, 11, 21, 32, 33, 56, 58, 59, 61, 72, 257, 262, 293, 435, 436, 439]),
    "what it becomes": ("", "promised(); os.execv('/bin/echo', ['echo', 'x'])", "pipe", [3, 59]),
    "another thread": ("s = connect()", "promised()\nt = threading.Thread(target=lambda: s.send(b'x')); t.start(); t.join()", "bytes", [44, 435]),
    "a stream": ("s = connect()", "promised(); s.send(b'x'); time.sleep(1)", "bytes", [44]),
    "a list of buffers": ("s = connect()", "promised(); s.sendmsg([b'x', b'y']); time.sleep(1)", "bytes", [46]),
    "a unix socket": ("s = socket.socket(socket.AF_UNIX); s.connect('unix')", "promised(); s.send(b'x'); time.sleep(1)", "unix", [44]),
    "a descriptor": ("s = socket.socket(socket.AF_UNIX); s.connect('unix')", "promised(); socket.send_fds(s, [b'x'], [other])", "unix", [46]),
    "a datagram": ("", "promised(); datagrams.sendto(b'x', ('127.0.0.1', port))", "datagram", [44]),
    "sendfile": ("s = connect(); os.write(other, b'x')", "promised(); os.sendfile(s.fileno(), other, 0, 1); time.sleep(1)", "bytes", [40]),
    "splice": ("s = connect(); r, w = os.pipe(); os.write(w, b'x')", "promised(); os.splice(r, s.fileno(), 1); time.sleep(1)", "bytes", [275]),
    "a connection": ("s = socket.socket()", "promised(); s.connect(('127.0.0.1', port)); time.sleep(1)", "connection", [42]),
    "a close": ("s = connect()", "promised(); s.close(); time.sleep(1)", "bytes", [3]),
    "a shutdown": ("s = connect()", "promised(); s.shutdown(socket.SHUT_WR); time.sleep(1)", "bytes", [48]),
    "a signal": ("", "promised(); os.kill(os.getppid(), signal.SIGUSR1); time.sleep(1)", "signal", [62]),
    "another file": ("", "promised(); os.write(other, b'x'); time.sleep(1)", "grows", [1]),
    "a file's length": ("", "promised(); os.ftruncate(other, 5); time.sleep(1)", "grows", [77]),
    "a new name": ("", "promised(); os.rename('other', 'named'); time.sleep(1)", "named", [82]),
    "a lock file": ("", "promised(); os.unlink('other'); time.sleep(1)", "gone", [87]),
    "a lock": ("fcntl.flock(other, fcntl.LOCK_EX); os.mkdir('locks')", "promised(); fcntl.flock(other, fcntl.LOCK_UN); time.sleep(1)", "unlocked", [73]),
    "a lock of a mapping": (None, "unmaps", "unlocked", [11]),
    "an event": (
        "e = select.epoll(); r, w = os.pipe(); os.write(w, b'x')\nif os.fork() == 0: e.poll(20); os.write(1, b'x'); os._exit(0)",
        "promised(); e.register(r, select.EPOLLIN); time.sleep(1)", "pipe", [233]),
    "a child that is waited for": (
        "child = os.fork()\nif child == 0: os._exit(0)\nwith open('child', 'w') as f: f.write(str(child))",
        "promised(); os.waitpid(child, 0); time.sleep(1)", "reaped", [61]),
    "room in a pipe": ("", "promised(); os.read(0, 1 << 16); time.sleep(1)", "room", [0]),
    "a position": ("", "promised(); os.lseek(0, 5, 0); time.sleep(1)", "moved", [8]),
}
# The acts that keep syncs as ever from then on: what answers.c does, and the reason.
OFF = {
    "lends": "answers-lent",
    "zero copy": "answers-lent",
    "shares": "answers-mapped",
    "may share": "answers-mapped",
    "shares with children": "answers-mapped",
    "attaches": "answers-mapped",
    "makes code": "answers-code",
    "makes it code": "answers-code",
    "filters": "answers-sandbox",
    "has its faults told": "answers-lent",
    "has them told by a device": "answers-lent",
    "asks a device": "answers-lent",
    "executes what it reads": "answers-code",
    "other numbers": "answers-past-us",
    "ring": "answers-past-us",
    "ring of a child": "answers-past-us",
    "requests": "answers-past-us",
    "own descriptors": "answers-past-us",
    "rights": "answers-rights",
}


def under(options, into, *words, more=()):
    """`words` with a log of its own: one that several share has none for a while for who comes next."""
    return [options.uncopy, "run", f"--log={into}/log", "--log-size=4M", "--log-sync=answers", *more, "--", *words]


def ends(into):
    """The log's service ends, and with it what it keeps."""
    for _ in range(500):
        there = False
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if file.read().split(b"\0")[1:3] == [b"__log-service", os.fsencode(f"{into}/log")]:
                        there = True
                        os.kill(int(pid), signal.SIGTERM)
            except OSError:
                pass
        if not there:
            return memory.forget(f"{into}/log")
        time.sleep(0.02)


class NotHere(str):
    """Why something cannot be shown on this machine, or in this directory."""


# The status with which answers.c says so.
NOT_HERE = 5


class Looker:
    """Where an answer is looked for."""

    def __init__(self, where, into):
        self.where, self.into, self.heard = where, into, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(("127.0.0.1", self.port))
        self.unix = socket.socket(socket.AF_UNIX)
        # (A path may be too long for an address.)
        here = os.open(into, os.O_PATH)
        self.unix.bind(f"/proc/self/fd/{here}/unix")
        os.close(here)
        self.unix.listen()
        self.read_from, self.write_to = pty.openpty() if where == "terminal" else os.pipe()
        if where == "room":
            self.input, self.fills = os.pipe()
            os.set_blocking(self.fills, False)
            os.write(self.fills, b"x" * (1 << 20))
        else:
            self.input, self.fills = os.open(f"{into}/input", os.O_RDWR | os.O_CREAT), None

    def path(self, name):
        return os.path.join(self.into, name)

    def until(self, seen):
        for _ in range(4000):
            try:
                if seen():
                    return True
            except OSError:
                pass
            time.sleep(0.005)
        return False

    def unlocked(self):
        with open(self.path("other")) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True

    def reaped(self):
        with open(self.path("child")) as file:
            child = int(file.read())
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        return False

    def comes(self, process):
        """Waits for the answer. Whether it came."""
        if self.where in ("pipe", "terminal"):
            return bool(select.select([self.read_from], [], [], 20)[0]) and os.read(self.read_from, 9)
        if self.where == "bytes":
            return self.ready(self.bytes_of)
        if self.where == "connection":
            return self.ready(self.listener)
        if self.where == "unix":
            return self.ready(self.bytes_of)
        if self.where == "datagram":
            return self.ready(self.datagrams)
        if self.where == "end":
            return process.wait(20) is not None
        other = self.path("other")
        looks = {
            "signal": lambda: self.heard,
            "grows": lambda: os.path.getsize(other),
            "named": lambda: os.path.exists(self.path("named")),
            "gone": lambda: not os.path.exists(other),
            "unlocked": self.unlocked,
            "reaped": self.reaped,
            "room": lambda: select.select([], [self.fills], [], 0)[1],
            "moved": lambda: os.lseek(self.input, 0, os.SEEK_CUR) == 5,
        }
        return self.until(looks[self.where])

    def ready(self, on):
        # (For a stream it is what comes by it, its end too; it was connected before.)
        return bool(select.select([on], [], [], 20)[0])

    def connected(self):
        """The program's connection, if it made one before it was ready."""
        for listener in (self.listener, self.unix):
            if self.where in ("bytes", "unix") and select.select([listener], [], [], 0)[0]:
                self.bytes_of = listener.accept()[0]

    def end(self):
        for it in (self.listener, self.unix, self.datagrams):
            it.close()
        for fd in (self.read_from, self.input, self.fills):
            if fd is not None:
                os.close(fd)


def status(options, into):
    """What the service says, for who wants to know why no sync returns early."""
    return subprocess.run([options.uncopy, "log", "status", f"{into}/log"], capture_output=True, text=True, check=False).stdout


def said(marks, text, until):
    """Reads what the program says on standard error until it has said that, or has ended."""
    end = time.monotonic() + 60
    while until not in text and time.monotonic() < end:
        if select.select([marks], [], [], 1)[0]:
            more = os.read(marks, 1 << 16)
            if not more:
                break
            text += more
    return text


def attack(options, name, through):
    """Whether its answer is seen before its sync is durable; or what is wrong."""
    before, after, where, _ = ATTACKS[name]
    # (A program is started, and says something, within the time that it is to be seen early.)
    trial = "slow=2500,through=" + ":".join(map(str, through)) if through else "slow=500"
    with tempfile.TemporaryDirectory(dir=options.ground) as into:
        looker = Looker(where, into)
        if where == "signal":
            signal.signal(signal.SIGUSR1, lambda *_: looker.heard.append(1))
        marks, says = os.pipe()
        environment = {**os.environ, "UNCOPY_LOG_SYNC_TRIAL": trial}
        words = [options.program, after]
        if before is not None:
            words = [sys.executable, "-S", "-c", BEGINS + before + "\n" + READY + after, str(looker.port)]
        process = subprocess.Popen(under(options, into, *words), cwd=into, env=environment, stdin=looker.input, stdout=looker.write_to, stderr=says)
        os.close(looker.write_to)
        os.close(says)
        text = said(marks, b"", b"now it begins\n")
        if b"now it begins\n" not in text:
            code = process.wait()
            looker.end()
            os.close(marks)
            why = status(options, into)
            ends(into)
            if code == NOT_HERE:
                return NotHere(text.decode().strip().splitlines()[-1])
            return f"it does not come so far: {text.decode().strip()}; {why}"
        if b"durable" not in text:
            # (Its directory took that long by itself: no sync has returned early yet.)
            process.kill()
            process.wait()
            looker.end()
            os.close(marks)
            ends(into)
            return attack(options, name, through)
        looker.connected()
        came = looker.comes(process)
        os.set_blocking(marks, False)
        try:
            text += os.read(marks, 1 << 16)
        except BlockingIOError:
            pass
        early = b"durable" not in text.partition(b"now it begins\n")[2]
        process.kill()
        process.wait()
        looker.end()
        os.close(marks)
        ends(into)
        return early if came else f"no answer: {text.decode().strip()}"


def attacked(options, name):
    """What came of an attack, and whether it should be so."""
    through = ATTACKS[name][3]
    held = attack(options, name, [])
    if isinstance(held, NotHere):
        return f"skipped: {held}", True
    if isinstance(held, str):
        return held, False
    shown = attack(options, name, through)
    if isinstance(shown, str):
        return f"let through: {shown}", False
    says = "seen early" if held else "held"
    return says + ("; let through: seen early" if shown else "; let through: held, so it is no attack"), not held and shown


def off(options, name):
    """As `attacked`: what keeps syncs as ever. (What was promised before waits; what is synced after that does not return early.)"""
    environment = {**os.environ, "UNCOPY_LOG_SYNC_TRIAL": "slow=500"}
    marks, says = os.pipe()
    with tempfile.TemporaryDirectory(dir=options.ground) as into:
        words = under(options, into, options.program, name, more=["--verbose"])
        process = subprocess.Popen(words, cwd=into, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=says)
        os.close(says)
        text = said(marks, b"", b"last\n").decode()
        why = status(options, into)
        process.stdin.close()
        code = process.wait(60)
        ends(into)
    os.close(marks)
    if code == NOT_HERE:
        return f"skipped: {text.strip().splitlines()[-2]}", True
    last = text.partition("done\n")[0].rpartition("durable\n")[2]
    right = code == 0 and f"uncopy: syncs are as ever: {OFF[name]}" in last and f"as ever: 1 programs: {OFF[name]}" in why
    return (f"as ever: {OFF[name]}" if right else f"{code}: {text.strip()}; {why}"), right


def races(options, _):
    """Files are closed while another thread syncs them: nothing that was promised is forgotten, else the program is killed."""
    with tempfile.TemporaryDirectory(dir=options.ground) as into:
        words = under(options, into, options.program, "races", more=["--verbose"])
        done = subprocess.run(words, cwd=into, capture_output=True, text=True, check=False, timeout=60)
        ends(into)
    right = done.returncode == 0 and "answers wait for syncs" in done.stderr and "as ever" not in done.stderr
    return ("goes on" if right else f"{done.returncode}: {done.stderr.strip()}"), right


# Syncs fail now and then; who is told so goes on.
SYNCS = """
import os, time
file = os.open("journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
end = time.monotonic() + 30
while time.monotonic() < end:
    try:
        os.write(file, b"x"); os.fdatasync(file)
    except OSError:
        pass
"""


def fails(options, _):
    """What a sync has promised cannot be made durable: the program is killed, and says so."""
    environment = {**os.environ, "UNCOPY_INJECT": "log_sync:EIO:1/4,seed=7"}
    with tempfile.TemporaryDirectory(dir=options.ground) as into:
        # (The service does without.)
        subprocess.run(under(options, into, "true"), check=True)
        words = under(options, into, sys.executable, "-S", "-c", SYNCS)
        done = subprocess.run(words, cwd=into, env=environment, capture_output=True, text=True, check=False, timeout=60)
        ends(into)
    right = done.returncode == -signal.SIGKILL and "could not be made durable" in done.stderr
    return ("is killed" if right else f"{done.returncode}: {done.stderr.strip()}"), right


# A connection's first descriptor is closed while what a second one sends waits.
DUPLICATED = """
import os, socket, sys, threading, time
file = os.open("journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
first = socket.create_connection(("127.0.0.1", int(sys.argv[1]))).detach()
second = os.dup(first)
def answers(descriptor, text):
    os.write(file, b"x"); os.fdatasync(file)
    os.write(descriptor, text)
for i in range(800):
    answers(second, b"-")
    begun = time.monotonic()
    os.mkdir("early%d" % i)
    if time.monotonic() - begun > 0.2:
        break
    time.sleep(0.05)
answers(first, b"HEAD")
closes = threading.Thread(target=os.close, args=(first,))
closes.start()
time.sleep(0.1)
answers(second, b"BODY")
closes.join()
answers(second, b"TAIL")
os.close(second)
"""


def duplicated(options, _):
    """Bytes leave by the descriptor that they were sent by, whichever of the connection's others are closed meanwhile."""
    environment = {**os.environ, "UNCOPY_LOG_SYNC_TRIAL": "slow=300"}
    got, listener = b"", socket.create_server(("127.0.0.1", 0))
    with tempfile.TemporaryDirectory(dir=options.ground) as into, listener:
        words = under(options, into, sys.executable, "-S", "-c", DUPLICATED, str(listener.getsockname()[1]))
        process = subprocess.Popen(words, cwd=into, env=environment, stderr=subprocess.DEVNULL)
        listener.settimeout(60)
        connection, _ = listener.accept()
        connection.settimeout(60)
        while part := connection.recv(1 << 16):
            got += part
        status = process.wait(60)
        ends(into)
    got = got.lstrip(b"-").decode()
    return f"its peer got {got}", status == 0 and got == "HEADBODYTAIL"


# How much of libc's text is the process's own.
CHANGED = """
import re
with open("/proc/self/smaps") as file:
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", file.read(), flags=re.M)
print(sum(int(re.search(r"Private_Dirty: +([0-9]+)", p)[1]) for p in parts if " r-xp " in p and "/libc.so" in p))
"""


def stays(options, _):
    """libc's text is changed where answers wait, and nowhere else."""
    changed = []
    with tempfile.TemporaryDirectory(dir=options.ground) as into:
        for sync in ("call", "answers"):
            words = [options.uncopy, "run", f"--log={into}/log", "--log-size=4M", f"--log-sync={sync}", "--", sys.executable, "-S", "-c", CHANGED]
            done = subprocess.run(words, cwd=into, capture_output=True, text=True, check=False, timeout=60)
            changed.append(int(done.stdout or -1))
        ends(into)
    return f"{changed[0]} KB of libc's text are changed without it, {changed[1]} with it", changed[0] == 0 and changed[1] > 0


def attacks(options, only=None):
    """Runs all, some at a time. Returns what is not as it should be."""
    wrong = []
    subprocess.run(["cc", "-O1", "-o", options.program, os.path.join(HERE, "answers.c")], check=True)
    runs = {name: attacked for name in ATTACKS} | {name: off for name in OFF} | {"closes that race with syncs": races, "two descriptors of a stream": duplicated, "a disk that fails": fails, "libc without it": stays}
    runs = {name: run for name, run in runs.items() if only in (None, name)}
    # (Handlers of signals are the main thread's.)
    alone = [name for name in runs if name == "a signal"]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = [(name, pool.submit(run, options, name)) for name, run in runs.items() if name not in alone]
        done = [(name, runs[name](options, name)) for name in alone] + [(name, one.result()) for name, one in made]
    for name, (says, right) in done:
        print(f"{name:34} {says}", flush=True)
        if not right:
            wrong.append(f"{name}: {says}")
    return wrong


def serve(port, path):
    """The server with a sync for each request."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
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


def reply(number, length):
    return b"%d." % number + bytes([65 + number % 26]) * length


def handle(connection, path, seed):
    """A thread of `serve_threads`: each request says how long its answer is to be."""
    chance, file = random.Random(seed), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with connection, connection.makefile("rb") as requests:
        for line in requests:
            number, length = map(int, line.split())
            os.write(file, line)
            if chance.random() < 0.7:
                os.fdatasync(file)
            answer = memoryview(reply(number, length))
            while answer:
                part = answer[: chance.choice([1, 100, 5000, len(answer)])]
                way = chance.randrange(3)
                if way == 0:
                    sent = connection.send(part)
                elif way == 1:
                    sent = os.write(connection.fileno(), part)
                else:
                    sent = connection.sendmsg([part[: len(part) // 2], part[len(part) // 2 :]])
                answer = answer[sent:]
            if chance.random() < 0.02:
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
    os.close(file)


def serve_threads(port, path):
    """A server with a thread and a file for each connection, that syncs often, answers in pieces, and forks."""
    listener = socket.create_server(("127.0.0.1", port))
    for count in range(1 << 30):
        connection = listener.accept()[0]
        threading.Thread(target=handle, args=(connection, f"{path}.{count % 8}", count), daemon=True).start()


def asks(port, seed, until, wrong, counts):
    """Asks, several requests ahead of the answers, and compares each byte."""
    chance, asked, number = random.Random(seed), [], 0
    with socket.create_connection(("127.0.0.1", port)) as server, server.makefile("rb") as answers:
        server.settimeout(30)
        while time.monotonic() < until or asked:
            while len(asked) < 8 and time.monotonic() < until:
                length = chance.choice([1, 10, 1000, 40000, 700000]) if chance.random() < 0.2 else chance.randrange(2000)
                server.sendall(b"%d %d\n" % (number, length))
                asked.append((number, length))
                number += 1
            wanted = reply(*asked.pop(0))
            got = answers.read(len(wanted))
            if got != wanted:
                wrong.append(f"an answer is wrong: {got[:30]} of {len(got)} for {wanted[:30]} of {len(wanted)} (seed {seed})")
                return
            counts.append(len(got))


def streams(options, seconds, seed):
    """Bytes of answers are those that were sent, in their order. Returns what is wrong, and how many there were."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(dir=options.ground) as into:
        words = under(options, into, sys.executable, "-S", os.path.abspath(__file__), "--serve-threads", str(port), os.path.join(into, "f"))
        process = subprocess.Popen(words)
        wrong, counts, until = [], [], time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        until = time.monotonic() + seconds
        clients = [threading.Thread(target=asks, args=(port, seed + i, until, wrong, counts)) for i in range(6)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        waits = "answers wait for syncs" in status(options, into)
        process.kill()
        process.wait()
        ends(into)
    if not waits:
        wrong.append("answers do not wait")
    return wrong, counts


class Options:
    """Where it runs."""

    def __init__(self, uncopy, ground):
        self.uncopy, self.ground = uncopy, ground
        self.program = os.path.join(ground, "program")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=os.path.join(REPO, "target"))
    parser.add_argument("--uncopy", default=os.environ.get("UNCOPY", os.path.join(REPO, "target/release/uncopy")))
    parser.add_argument("--only", help="one attack")
    parser.add_argument("--streams", type=float, help="bytes of answers, for so many seconds")
    parser.add_argument("--serve-threads", nargs=2, metavar=("PORT", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=2, metavar=("PORT", "FILE"))
    args = parser.parse_args()
    if args.serve:
        return serve(int(args.serve[0]), args.serve[1])
    if args.serve_threads:
        return serve_threads(int(args.serve_threads[0]), args.serve_threads[1])
    ground = tempfile.mkdtemp(prefix="answers.", dir=os.path.abspath(args.dir))
    options = Options(os.path.abspath(args.uncopy), ground)
    if args.streams:
        wrong, counts = streams(options, args.streams, random.randrange(1 << 20))
        print(f"{len(counts)} answers, {sum(counts)} bytes; {wrong or 'all right'}")
    else:
        wrong = attacks(options, args.only)
    print(f"{len(wrong)} not as they should be")
    shutil.rmtree(ground, ignore_errors=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
