"""What real programs promise: a store that says so for each thing that is durable, and a look at what is there after a crash.

    stores.py sqlite-wal|sqlite-delete|sqlite-persist|sqlite-alone|rocksdb DIRECTORY SEED SECONDS
    stores.py --serve KIND DIRECTORY SEED PORT

A line for each transaction that has returned: its number, ns of the monotonic clock. Goes on with what is there.

--serve: an HTTP server that makes one for each POST, and answers when it has returned; `http-KIND` is such a one. `kv` is a
server of threads with a log of its own (kv.c).
"""

import contextlib
import glob
import http.client
import http.server
import importlib.util
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ("sqlite-wal", "sqlite-delete", "sqlite-persist", "rocksdb", "redis")
# Servers: what is durable their client says.
SERVED = ("redis", "http-sqlite-wal", "http-sqlite-delete", "http-sqlite-persist", "http-sqlite-alone", "http-rocksdb", "kv")
# Those whose answers wait for syncs. (The others write at places, of which nothing is held.)
WAIT = ("redis", "http-rocksdb", "kv")
CLIENTS = 4


def is_there(kind):
    kind = kind.removeprefix("http-")
    if kind == "rocksdb":
        return importlib.util.find_spec("rocksdict") is not None
    programs = {"redis": "redis-server", "kv": "cc"}
    return kind not in programs or shutil.which(programs[kind]) is not None


def value(seed, number):
    length = random.Random(seed * 7919 + number).choice([10, 100, 700, 3000, 9000])
    head = b"%d." % number
    return (head * (length // len(head) + 1))[:length]


def opened(kind, directory):
    import sqlite3

    base = sqlite3.connect(os.path.join(directory, f"{kind}.db"), isolation_level=None, check_same_thread=False)
    if kind == "sqlite-alone":
        # (Its index of the log is in memory of its own: nothing is mapped.)
        base.execute("pragma locking_mode = exclusive")
    base.execute(f"pragma journal_mode = {kind.split('-')[1].replace('alone', 'wal')}")
    # (With FULL a journal that was deleted may be back after a loss of power.)
    base.execute("pragma synchronous = extra")
    base.execute("create table if not exists t (n integer primary key, v blob)")
    base.execute("create table if not exists c (one integer primary key, n integer, sum integer)")
    return base


def begun(kind, directory, seed):
    """How many transactions are there, and what makes the one of a number."""
    if kind == "rocksdb":
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(256 << 10)
        base = rocksdict.Rdict(os.path.join(directory, "rocksdb"), options)
        sync = rocksdict.WriteOptions()
        sync.sync = True

        def put(number):
            base.put(b"%09d" % number, value(seed, number), sync)

        return len(list(base.keys())), put
    base = opened(kind, directory)
    number, total = base.execute("select n, sum from c").fetchone() or (0, 0)

    def put(number):
        nonlocal total
        total += zlib.crc32(value(seed, number))
        base.execute("begin immediate")
        base.execute("insert into t values (?, ?)", (number, value(seed, number)))
        base.execute("insert or replace into c values (1, ?, ?)", (number, total))
        base.execute("commit")

    return number, put


def store(kind, directory, seed, seconds):
    end = time.monotonic() + seconds
    number, put = begun(kind, directory, seed)
    os.write(1, b"%d %d\n" % (number, time.monotonic_ns()))
    while time.monotonic() < end:
        number += 1
        put(number)
        os.write(1, b"%d %d\n" % (number, time.monotonic_ns()))


def serve(kind, directory, seed, port):
    """A thread for each connection; one transaction at a time. It answers by the number of the transaction."""
    number, put = begun(kind, directory, seed)
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def answer(self):
            nonlocal number
            with lock:
                if self.command == "POST":
                    put(number + 1)
                    number += 1
                body = b"%d" % number
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def server(kind, directory, seed, port, program="kv"):
    """The words that start it, and where it answers."""
    if kind == "redis":
        words, path = redis_words(directory, port)
        return words, port or path
    if kind == "kv":
        return [program, str(port), os.path.join(directory, "log")], port
    return [sys.executable, os.path.abspath(__file__), "--serve", kind.removeprefix("http-"), directory, str(seed), str(port)], port


def compiled(into):
    """The program of `kv`."""
    program = os.path.join(into, "kv")
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, os.path.join(HERE, "kv.c")], check=True)
    return program


def asks(kind, address, seed, until, say, first=0):
    """Asks such a server until then, or until it is gone. Says which numbers were answered, and when. `first`: of a kv's client."""
    if kind == "redis":
        return sets_keys(address, seed, until, say)
    if kind == "kv":
        together([threading.Thread(target=stores_keys, args=(address, seed, until, say, first + i)) for i in range(CLIENTS)])
        return None
    together([threading.Thread(target=posts, args=(address, until, say, i == 0)) for i in range(CLIENTS)])
    return None


def together(threads):
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def connected(address, patience=20):
    until = time.monotonic() + patience
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", address), timeout=patience)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def posts(port, until, say, greets):
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        connected(port).close()
        server = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        if greets:
            server.request("GET", "/")
            say(int(server.getresponse().read()), time.monotonic_ns())
        while time.monotonic() < until:
            server.request("POST", "/")
            answer = server.getresponse()
            number = int(answer.read())
            if answer.status != 200:
                break
            say(number, time.monotonic_ns())


def stores_keys(port, seed, until, say, number):
    with contextlib.suppress(OSError), connected(port) as server:
        while time.monotonic() < until:
            data = value(seed, number)
            server.sendall(b"set %d 0 0 %d\r\n%s\r\n" % (number, len(data), data))
            answer = b""
            while len(answer) < 8:
                part = server.recv(8 - len(answer))
                if not part:
                    return
                answer += part
            if answer != b"STORED\r\n":
                return
            say(number, time.monotonic_ns())
            number += CLIENTS


RECORD = re.compile(rb"set (\d+) 0 0 (\d+)\r\n")


def kv_fault(directory, seed, told):
    """All that was told is in its log, and all that is there is what was set; its end may be torn."""
    try:
        with open(os.path.join(directory, "log"), "rb") as file:
            there = file.read()
    except FileNotFoundError:
        return "it has no log" if told else None
    found, at = set(), 0
    while head := RECORD.match(there, at):
        number, length = map(int, head.groups())
        data, end = there[head.end() : head.end() + length], there[head.end() + length : head.end() + length + 2]
        if len(data) + len(end) < length + 2:
            break
        # (Behind what was synced zeros may stand.)
        if data != value(seed, number) or end != b"\r\n":
            break
        found.add(number)
        at = head.end() + length + 2
    lost = sorted(set(told) - found)
    return f"{len(lost)} of {len(told)} that were told are not there: {lost[:5]} ({at} of {len(there)} bytes are whole)" if lost else None


def redis_words(directory, port=0):
    socket = os.path.join(directory, "socket")
    options = f"--port {port} --unixsocket {socket} --dir {directory} --appendonly yes --appendfsync always --save ''"
    options += " --auto-aof-rewrite-min-size 1mb --auto-aof-rewrite-percentage 100"
    return ["redis-server", *[word.strip("'") for word in options.split()]], socket


class Redis:
    """A client of its own, that says what it was answered."""

    def __init__(self, path, patience=20):
        until = time.monotonic() + patience
        while True:
            # (A port, or a path.)
            self.socket = socket.socket(socket.AF_INET if isinstance(path, int) else socket.AF_UNIX)
            try:
                self.socket.connect(("127.0.0.1", path) if isinstance(path, int) else path)
                self.file = self.socket.makefile("rb")
                if not self.ask(b"PING").startswith(b"-"):
                    return
            except OSError:
                pass
            self.socket.close()
            if time.monotonic() > until:
                raise TimeoutError(f"redis does not answer at {path}")
            time.sleep(0.02)

    def ask(self, *words):
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        line = self.file.readline()
        if line[:1] == b"$" and line[1:2] != b"-":
            return self.file.read(int(line[1:]) + 2)[:-2]
        if not line:
            raise ConnectionError
        return line.rstrip()


def sets_keys(socket, seed, until, say):
    """Sets keys until then, or until redis is gone; says how many were answered, and when."""
    with contextlib.suppress(OSError, ConnectionError, TimeoutError, ValueError):
        client = Redis(socket)
        number = int(client.ask(b"DBSIZE")[1:])
        say(number, time.monotonic_ns())
        while time.monotonic() < until:
            number += 1
            if client.ask(b"SET", b"%d" % number, value(seed, number)) != b"+OK":
                break
            say(number, time.monotonic_ns())


def cuts_zeros(directory):
    """Behind what was synced zeros may stand, of which redis says that they are no format. (A record ends with a newline.)"""
    cut = 0
    for path in glob.glob(os.path.join(glob.escape(directory), "appendonlydir", "*.aof")):
        with open(path, "rb+") as file:
            there = file.read()
            length = len(there.rstrip(b"\0"))
            if length < len(there):
                print(f"{path}: {len(there) - length} zeros behind {length} bytes are cut off", file=sys.stderr)
                file.truncate(length)
                cut += 1
            else:
                print(f"{path} ends with {there[-40:]}", file=sys.stderr)
    return cut


def redis_fault(directory, seed, returned):
    """What is wrong with it. Once zeros at the end of its files are cut off, if it does not start with them."""
    wrong = redis_fault_as_it_is(directory, seed, returned)
    if wrong and wrong.startswith(NO_START) and cuts_zeros(directory):
        return redis_fault_as_it_is(directory, seed, returned)
    return wrong


NO_START = "redis does not start"


def redis_fault_as_it_is(directory, seed, returned):
    words, socket = redis_words(directory)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket)
    server = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        client = Redis(socket)
        count = int(client.ask(b"DBSIZE")[1:])
        if not returned <= count <= returned + 1:
            return f"{count} keys, {returned} were acknowledged"
        for number in range(1, count + 1):
            if client.ask(b"GET", b"%d" % number) != value(seed, number):
                return f"key {number} is not what was set"
        return None
    except (OSError, TimeoutError) as why:
        return f"{NO_START}: {why}"
    finally:
        server.terminate()
        said = server.communicate()[0]
        if server.returncode != 0:
            print(said.decode(errors="replace")[-2000:], file=sys.stderr)


def fault(kind, directory, seed, returned, told=()):
    """What is wrong with what is there, when so many had returned. None: nothing. `told`: their numbers, for kv."""
    if kind == "redis":
        return redis_fault(directory, seed, returned)
    if kind == "kv":
        return kv_fault(directory, seed, told)
    # (So many may be under way.)
    most = CLIENTS if kind.startswith("http-") else 1
    kind = kind.removeprefix("http-")
    try:
        if kind == "rocksdb":
            import rocksdict

            if not returned and not os.path.exists(os.path.join(directory, "rocksdb", "CURRENT")):
                return None
            options = rocksdict.Options(raw_mode=True)
            options.set_paranoid_checks(True)
            base = rocksdict.Rdict(os.path.join(directory, "rocksdb"), options)
            there = [(int(key), bytes(data)) for key, data in base.items()]
            base.close()
        else:
            if not returned and not os.path.exists(os.path.join(directory, f"{kind}.db")):
                return None
            base = opened(kind, directory)
            sound = base.execute("pragma integrity_check").fetchall()
            if sound != [("ok",)]:
                return f"integrity_check: {sound[:3]}"
            there = base.execute("select n, v from t order by n").fetchall()
            number, total = base.execute("select n, sum from c").fetchone() or (0, 0)
            base.close()
            if number != len(there) or total != sum(zlib.crc32(data) for _, data in there):
                return f"of {number} transactions {len(there)} are there, or not whole"
    except Exception as why:  # (Whatever a store says that cannot be opened.)
        return f"it cannot be opened: {why}"
    if not returned <= len(there) <= returned + most:
        return f"{len(there)} are there, {returned} were acknowledged"
    for at, (number, data) in enumerate(there, 1):
        if number != at or data != value(seed, number):
            return f"{number} is not what was written"
    return None


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    store(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    time.sleep(60)
