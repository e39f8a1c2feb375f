"""What real programs promise: a store that says so for each thing that is durable, and a look at what is there after a crash.

    stores.py sqlite-wal|sqlite-delete|sqlite-persist|rocksdb DIRECTORY SEED SECONDS

A line for each transaction that has returned: its number, ns of the monotonic clock. Goes on with what is there.
"""

import contextlib
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import time
import zlib

KINDS = ("sqlite-wal", "sqlite-delete", "sqlite-persist", "rocksdb", "redis")


def is_there(kind):
    if kind == "rocksdb":
        return importlib.util.find_spec("rocksdict") is not None
    return kind != "redis" or shutil.which("redis-server") is not None


def value(seed, number):
    length = random.Random(seed * 7919 + number).choice([10, 100, 700, 3000, 9000])
    head = b"%d." % number
    return (head * (length // len(head) + 1))[:length]


def opened(kind, directory):
    import sqlite3

    base = sqlite3.connect(os.path.join(directory, f"{kind}.db"), isolation_level=None)
    base.execute(f"pragma journal_mode = {kind.split('-')[1]}")
    # (With FULL a journal that was deleted may be back after a loss of power.)
    base.execute("pragma synchronous = extra")
    base.execute("create table if not exists t (n integer primary key, v blob)")
    base.execute("create table if not exists c (one integer primary key, n integer, sum integer)")
    return base


def store(kind, directory, seed, seconds):
    end = time.monotonic() + seconds
    if kind == "rocksdb":
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(256 << 10)
        base = rocksdict.Rdict(os.path.join(directory, "rocksdb"), options)
        sync = rocksdict.WriteOptions()
        sync.sync = True
        number = len(list(base.keys()))

        def put(number):
            base.put(b"%09d" % number, value(seed, number), sync)

    else:
        base = opened(kind, directory)
        number, total = (base.execute("select n, sum from c").fetchone() or (0, 0))

        def put(number):
            nonlocal total
            total += zlib.crc32(value(seed, number))
            base.execute("begin immediate")
            base.execute("insert into t values (?, ?)", (number, value(seed, number)))
            base.execute("insert or replace into c values (1, ?, ?)", (number, total))
            base.execute("commit")

    os.write(1, b"%d %d\n" % (number, time.monotonic_ns()))
    while time.monotonic() < end:
        number += 1
        put(number)
        os.write(1, b"%d %d\n" % (number, time.monotonic_ns()))


def redis_words(directory, port=0):
    socket = os.path.join(directory, "socket")
    options = f"--port {port} --unixsocket {socket} --dir {directory} --appendonly yes --appendfsync always --save ''"
    options += " --auto-aof-rewrite-min-size 1mb --auto-aof-rewrite-percentage 100"
    return ["redis-server", *[word.strip("'") for word in options.split()]], socket


class Redis:
    """A client of its own, that says what it was answered."""

    def __init__(self, path, patience=20):
        import socket

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


def redis_fault(directory, seed, returned):
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
        return f"redis does not start: {why}"
    finally:
        server.terminate()
        said = server.communicate()[0]
        if server.returncode != 0:
            print(said.decode(errors="replace")[-2000:], file=sys.stderr)


def fault(kind, directory, seed, returned):
    """What is wrong with what is there, when so many had returned. None: nothing."""
    if kind == "redis":
        return redis_fault(directory, seed, returned)
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
    if not returned <= len(there) <= returned + 1:
        return f"{len(there)} are there, {returned} were acknowledged"
    for at, (number, data) in enumerate(there, 1):
        if number != at or data != value(seed, number):
            return f"{number} is not what was written"
    return None


if __name__ == "__main__":
    store(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    time.sleep(60)
