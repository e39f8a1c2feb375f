"""What drives a server: requests over connections that stay open, each with one request under way.

A load opens connections (`open`), says what goes out next and what must come back (`next`), and compares whole answers with what they
must be (`verify`). `closed_loop` keeps the connections busy: while time is taken, an answer's length and frame are checked, no more."""

import contextlib
import dataclasses
import hashlib
import json
import random
import select
import socket
import struct
import subprocess
import threading
import time

# With nothing coming back for so long, the server is taken for dead.
PATIENCE = 20
# Where sockets are made: here, or in a network namespace of their own (apart.py).
PLACE = contextlib.nullcontext


class Failure(Exception):
    """What went wrong, in words for the user."""


class Wrong(Failure):
    """A byte that is not what it must be: nothing else matters then."""


def payload(size, seed=1):
    return random.Random(seed * 1_000_003 + size).randbytes(size)


def connect(port, patience=60):
    end = time.monotonic() + patience
    while True:
        try:
            with PLACE():
                s = socket.create_connection(("127.0.0.1", port), timeout=patience)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return s
        except OSError as why:
            if time.monotonic() > end:
                raise Failure(f"nothing answers on port {port}: {why}") from None
            time.sleep(0.05)


def receive(s, buffer, need):
    view, got = memoryview(buffer), 0
    while got < need:
        n = s.recv_into(view[got:need])
        if not n:
            raise Failure("the server closed the connection")
        got += n


def http_answer(s):
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


@dataclasses.dataclass
class Request:
    """What goes out, and the frame of what comes back: its first and last bytes, and its length (with `http`, of its body)."""

    out: bytes
    before: bytes
    after: bytes
    length: int
    http: bool = False


@dataclasses.dataclass
class Timed:
    """What a timed run came to; latencies in seconds."""

    elapsed: float
    latencies: list


class Link:
    """A connection and what is under way on it."""

    def __init__(self, s):
        s.setblocking(False)
        self.s = s

    def start(self, request):
        self.request, self.sent, self.got, self.head = request, 0, 0, b""
        self.need = None if request.http else request.length
        self.started = time.perf_counter()
        return self.push()

    def push(self):
        """Sends what the socket takes; whether something is left."""
        out = memoryview(self.request.out)
        try:
            while self.sent < len(out):
                self.sent += self.s.send(out[self.sent :])
        except BlockingIOError:
            return True
        return False

    def pull(self, view):
        """Reads what is there; whether the answer is complete."""
        while True:
            try:
                n = self.s.recv_into(view)
            except BlockingIOError:
                return False
            if not n:
                raise Failure("the server closed the connection")
            self.got += n
            if self.need is None or len(self.head) < len(self.request.before):
                self.head += bytes(view[: min(n, 4096)])
                if not self.head.startswith(self.request.before[: len(self.head)]):
                    raise Failure(f"the answer begins {self.head[:60]!r}")
                end = self.head.find(b"\r\n\r\n") if self.need is None else -1
                if end >= 0:
                    self.need = end + 4 + self.request.length
            if self.need is not None and self.got >= self.need:
                after = self.request.after
                if self.got > self.need or (n >= len(after) and bytes(view[n - len(after) : n]) != after):
                    raise Failure("the answer ends otherwise than it must")
                return True


def closed_loop(load, sockets, seconds):
    """Keeps every connection busy for so long, then lets what is under way come to its end."""
    links = {s.fileno(): Link(s) for s in sockets}
    view = memoryview(bytearray(1 << 18))
    latencies = []
    both, reading = select.EPOLLIN | select.EPOLLOUT, select.EPOLLIN
    with select.epoll() as poll:
        begin = time.perf_counter()
        for fd, link in links.items():
            poll.register(fd, both if link.start(load.next()) else reading)
        busy = len(links)
        while busy:
            events = poll.poll(PATIENCE)
            if not events:
                raise Failure(f"nothing has come back for {PATIENCE} s")
            for fd, event in events:
                link = links[fd]
                if event & select.EPOLLOUT and not link.push():
                    poll.modify(fd, reading)
                if event & ~select.EPOLLOUT and link.pull(view):
                    now = time.perf_counter()
                    latencies.append(now - link.started)
                    if now - begin >= seconds:
                        busy -= 1
                    elif link.start(load.next()):
                        poll.modify(fd, both)
        return Timed(time.perf_counter() - begin, latencies)


class Sockets:
    """A load over sockets of its own; `port` and `request` are the subclass's."""

    def open(self):
        return connect(self.port)

    def next(self):
        return self.request

    def connections(self, n):
        self.close()
        self.sockets = [self.open() for _ in range(n)]

    def run(self, seconds):
        return closed_loop(self, self.sockets, seconds)

    def close(self):
        for s in getattr(self, "sockets", ()):
            s.close()
        self.sockets = []


class Upload(Sockets):
    """POST of a body; the answer is its length."""

    def __init__(self, port, size):
        self.port, self.size = port, size
        answer = str(size).encode()
        self.request = Request(self.head("/") + payload(size), b"HTTP/1.1 200", answer, len(answer), http=True)

    def head(self, path):
        return f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {self.size}\r\n\r\n".encode()

    def verify(self):
        with self.open() as s:
            for seed in range(2, 8):
                body = payload(self.size, seed)
                s.sendall(self.head("/?digest") + body)
                if http_answer(s).decode() != hashlib.sha256(body).hexdigest():
                    raise Wrong(f"the server's digest of upload {seed} is wrong")


class Download(Sockets):
    """GET through a proxy of what the origin makes."""

    def __init__(self, port, size):
        self.port, self.size = port, size
        self.request = Request(f"GET /{size} HTTP/1.1\r\nHost: bench\r\n\r\n".encode(), b"HTTP/1.1 200", b"", size, http=True)

    def verify(self):
        expected = random.Random(self.size).randbytes(self.size)
        with self.open() as s:
            for _ in range(6):
                s.sendall(self.request.out)
                if http_answer(s) != expected:
                    raise Wrong("the answer is not what the origin sent")


class Echo(Sockets):
    """Messages of one length, sent back."""

    def __init__(self, port, size):
        self.port, self.size = port, size
        message = payload(size)
        self.request = Request(message, message[:16], message[-16:], size)

    def open(self):
        s = connect(self.port)
        s.sendall(self.size.to_bytes(8, "little"))
        return s

    def exchange(self, s, message):
        sender = threading.Thread(target=s.sendall, args=(message,))
        sender.start()
        got = bytearray(len(message))
        receive(s, got, len(message))
        sender.join()
        return got

    def verify(self):
        with self.open() as s:
            for seed in range(2, 8):
                message = payload(self.size, seed)
                if self.exchange(s, message) != message:
                    raise Wrong(f"echo {seed} differs from what was sent")


class Grpc:
    """The client is a process of its own, with the library that this script must not depend on; a channel is a connection."""

    CLIENT = """
import grpc, json, random, sys, threading, time
port, size = int(sys.argv[1]), int(sys.argv[2])
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
message = random.Random(size).randbytes(size)
calls = []
def work(call, end, latencies, wrong):
    while True:
        begin = time.perf_counter()
        if call(message, wait_for_ready=True, timeout=60) != message:
            wrong.append(1)
        now = time.perf_counter()
        latencies.append(now - begin)
        if now >= end or wrong:
            return
for line in sys.stdin:
    connections, seconds = line.split()
    while len(calls) < int(connections):
        calls.append(grpc.insecure_channel(f"127.0.0.1:{port}", options).unary_unary("/bench/Echo"))
    latencies, wrong, begin = [], [], time.perf_counter()
    work_of = lambda call: (call, begin + float(seconds), latencies, wrong)
    threads = [threading.Thread(target=work, args=work_of(call)) for call in calls[: int(connections)]]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(json.dumps({"wrong": len(wrong), "elapsed": time.perf_counter() - begin, "latencies": latencies}), flush=True)
"""

    def __init__(self, port, size, python, core):
        command = ["taskset", "-c", str(core), python, "-c", self.CLIENT, str(port), str(size)]
        self.client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.n = 1

    def connections(self, n):
        self.n = n

    def run(self, seconds):
        try:
            self.client.stdin.write(f"{self.n} {seconds}\n")
            self.client.stdin.flush()
            said = json.loads(self.client.stdout.readline() or "{}")
        except OSError as why:
            raise Failure(f"the gRPC client is gone: {why}") from None
        if said.get("wrong"):
            raise Wrong("an echo differs from what was sent")
        if not said:
            raise Failure("the gRPC client ended: a call failed")
        return Timed(said["elapsed"], said["latencies"])

    def verify(self):
        """(Every answer is compared, also while time is taken.)"""
        self.run(0.02)

    def close(self):
        self.client.stdin.close()
        self.client.wait()


class Select(Sockets):
    """SELECT of one bytea, as bytes, by PostgreSQL's protocol 3."""

    def __init__(self, port, size):
        self.port, self.size = port, size
        self.body = payload(size, 1)
        with self.open() as s:
            self.ask(s, b"CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, data bytea)")
            self.ask(s, b"ALTER TABLE t ALTER data SET STORAGE EXTERNAL")
            self.store(s, self.body)
            self.read = 0
            self.select(s)
        # ParseComplete comes first, ReadyForQuery last.
        self.request = Request(self.query(), b"1\0\0\0\4", b"Z\0\0\0\5I", self.read)

    @staticmethod
    def message(kind, body):
        return kind + struct.pack("!i", len(body) + 4) + body

    def exactly(self, s, n):
        got = bytearray()
        while len(got) < n:
            part = s.recv(min(1 << 18, n - len(got)))
            if not part:
                raise Failure("PostgreSQL closed the connection")
            got += part
        self.read = getattr(self, "read", 0) + n
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

    def query(self):
        parse = self.message(b"P", b"\0SELECT data FROM t WHERE id = 1\0\0\0")
        bind = self.message(b"B", b"\0\0" + struct.pack("!hhhh", 0, 0, 1, 1))
        return parse + bind + self.message(b"E", b"\0" + bytes(4)) + self.message(b"S", b"")

    def select(self, s):
        s.sendall(self.query())
        return self.answer(s)

    def verify(self):
        with self.open() as s:
            for seed in range(2, 8):
                body = payload(self.size, seed)
                self.store(s, body)
                if self.select(s) != body:
                    raise Wrong(f"value {seed} came back otherwise")
            self.store(s, self.body)


class Cache(Sockets):
    """GETs of stored values."""

    KEYS = 1

    def __init__(self, port, size):
        self.port, self.size = port, size
        self.values = {f"key{i}": payload(size, i + 1) for i in range(self.KEYS)}
        with connect(port) as s:
            for key, value in self.values.items():
                self.store(s, key, value)
        self.requests = []
        for key in self.values:
            before, after = self.frame(key)
            self.requests.append(Request(self.question(key), before, after, len(before) + size + len(after)))
        self.random = random.Random(7)

    def next(self):
        return self.requests[self.random.randrange(self.KEYS)]

    def get(self, s, key):
        before, after = self.frame(key)
        s.sendall(self.question(key))
        answer = bytearray(len(before) + self.size + len(after))
        receive(s, answer, len(answer))
        if not answer.startswith(before) or not answer.endswith(after):
            raise Failure(f"the answer for {key} has another frame")
        return answer[len(before) : len(before) + self.size]

    def verify(self):
        with connect(self.port) as s:
            for key in list(self.values) * (6 if self.KEYS == 1 else 1):
                if self.get(s, key) != self.values[key]:
                    raise Wrong(f"the value of {key} is wrong")
            # An update is seen at once; then the old value again.
            for value in (payload(self.size, 1000), self.values["key0"]):
                self.store(s, "key0", value)
                for _ in range(4):
                    if self.get(s, "key0") != value:
                        raise Wrong("an updated value is not what was stored")


class Memcached(Cache):
    def frame(self, key):
        return f"VALUE {key} 0 {self.size}\r\n".encode(), b"\r\nEND\r\n"

    def question(self, key):
        return f"get {key}\r\n".encode()

    def store(self, s, key, value):
        s.sendall(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
        if s.recv(100) != b"STORED\r\n":
            raise Failure("memcached did not store it")


class Memcached64(Memcached):
    KEYS = 64


class Redis(Cache):
    def frame(self, key):
        return f"${self.size}\r\n".encode(), b"\r\n"

    def question(self, key):
        return f"*2\r\n$3\r\nGET\r\n${len(key)}\r\n{key}\r\n".encode()

    def store(self, s, key, value):
        s.sendall(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n${len(value)}\r\n".encode() + value + b"\r\n")
        if s.recv(100) != b"+OK\r\n":
            raise Failure("redis did not store it")
