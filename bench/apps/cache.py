#!/usr/bin/env python3
"""Caches that answer with stored values: memcached, redis, varnish.

    bench/apps/cache.py                       all at 64 KB and 1 MB, with 1, 4 and 64 connections
    bench/apps/cache.py --only memcached --sizes 1M
    bench/apps/cache.py --install             installs the servers (Debian packages) first

What the columns are: harness.py."""

import os

import harness
from harness import Server, origin
from loads import Download, Memcached, Memcached64, Redis


class Varnish(Download):
    """The object comes from the origin once."""


def memcached(port, directory):
    return ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-m", "1024", "-I", "4m", "-u", "root"], None


def redis(port, directory):
    return ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", directory], None


def varnish(port, directory):
    behind, helper = origin()
    where = os.path.join(directory, "varnish")
    listen = ["-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{behind}"]
    options = ["-t", "36000", "-j", "none", "-s", "malloc,512m", "-p", "thread_pools=1", "-p", "timeout_idle=3600"]
    return ["varnishd", "-F", "-n", where, *listen, *options], helper


SERVERS = {
    "memcached GET, 64 keys": Server("Cache with large values", memcached, Memcached64, ("memcached",)),
    "memcached GET": Server("Cache with large values", memcached, Memcached, ("memcached",)),
    "redis GET": Server("Redis", redis, Redis, ("redis-server",)),
    "varnish cached": Server("HTTP cache", varnish, Varnish, ("varnishd",)),
}

if __name__ == "__main__":
    harness.run(SERVERS, __doc__)
