#!/usr/bin/env python3
"""CPU that caches need to answer with what they hold: memcached, varnish and redis, plainly and under uncopy in turns.

    bench/apps/cache.py                       all at 16 KB, 64 KB and 1 MB
    bench/apps/cache.py --only memcached --sizes 1M
    bench/apps/cache.py --install             installs the servers (Debian packages) first

Method, columns and options are those of apps.py. Every answer in a verification is compared with what was stored, before timing and after
it; in timed turns its length and its frame are checked."""

import hashlib
import os
import random
import subprocess
import sys

import apps
from apps import HERE, Failure, connect, free_port, payload


def receive(s, buffer, need):
    view, got = memoryview(buffer), 0
    while got < need:
        n = s.recv_into(view[got:need])
        if not n:
            raise Failure("the server closed the connection")
        got += n


class Cache:
    """GETs of stored values; a connection is a socket, a buffer and a place among the keys."""

    KEYS = 1

    def __init__(self, port, size):
        self.port, self.size = port, size
        self.values = {f"key{i}": payload(size, i + 1) for i in range(self.KEYS)}
        self.frames = {k: self.frame(k) for k in self.values}
        with connect(port) as s:
            for key, value in self.values.items():
                self.store(s, key, value)

    def open(self):
        return connect(self.port)

    def get(self, s, key, buffer):
        before, after = self.frames[key]
        s.sendall(self.request(key))
        need = len(before) + self.size + len(after)
        receive(s, buffer, need)
        if buffer[: len(before)] != before or bytes(buffer[need - len(after) : need]) != after:
            raise Failure(f"the answer for {key} has another frame")
        return len(before)

    def buffer(self):
        return bytearray(self.size + 4096)

    def one(self, s, buffers={}):
        if s not in buffers:
            buffers[s] = (self.buffer(), random.Random(7))
        buffer, r = buffers[s]
        self.get(s, f"key{r.randrange(self.KEYS)}", buffer)

    def verify(self):
        buffer = self.buffer()
        with connect(self.port) as s:
            for key in list(self.values) * (6 if self.KEYS == 1 else 1):
                at = self.get(s, key, buffer)
                digest = hashlib.sha256(buffer[at : at + self.size]).digest()
                if digest != hashlib.sha256(self.values[key]).digest():
                    raise Failure(f"the value of {key} is wrong")
            # An update is seen at once; then the old value again.
            other = payload(self.size, 1000)
            for value in (other, self.values["key0"]):
                self.store(s, "key0", value)
                for _ in range(4):
                    at = self.get(s, "key0", buffer)
                    if buffer[at : at + self.size] != value:
                        raise Failure("an updated value is not what was stored")


class Memcached(Cache):
    def frame(self, key):
        return f"VALUE {key} 0 {self.size}\r\n".encode(), b"\r\nEND\r\n"

    def request(self, key):
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

    def request(self, key):
        return f"*2\r\n$3\r\nGET\r\n${len(key)}\r\n{key}\r\n".encode()

    def store(self, s, key, value):
        s.sendall(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n${len(value)}\r\n".encode() + value + b"\r\n")
        if s.recv(100) != b"+OK\r\n":
            raise Failure("redis did not store it")


class Varnish(apps.Download):
    """The object comes from the origin once."""


def memcached(port, directory):
    return ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-m", "1024", "-I", "4m", "-u", "root"], None


def redis(port, directory):
    return ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", directory], None


def varnish(port, directory):
    origin = free_port()
    helper = ["taskset", "-c", str(apps.OPTIONS.load_core), sys.executable, os.path.join(HERE, "servers", "origin.py"), str(origin)]
    where = os.path.join(directory, "varnish")
    listen = ["-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{origin}"]
    return ["varnishd", "-F", "-n", where, *listen, "-t", "36000", "-j", "none", "-s", "malloc,512m", "-p", "thread_pools=1", "-p", "timeout_idle=3600"], helper


SERVERS = {
    "memcached GET": (memcached, Memcached),
    "memcached GET, 64 keys": (memcached, Memcached64),
    "redis GET": (redis, Redis),
    "varnish cached": (varnish, Varnish),
}
PACKAGES = ["memcached", "varnish", "redis-server"]


def main():
    apps.OPTIONS = apps.arguments("16K,64K,1M", __doc__)
    if apps.OPTIONS.install:
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES], check=True)
    apps.SERVERS = SERVERS
    return apps.rows()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as why:
        sys.exit(f"cache.py: {why}")
