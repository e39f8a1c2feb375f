#!/usr/bin/env python3
"""Large values and answers between unmodified programs of this host: over Linux' loopback, under `uncopy run --tcp --tcp-references=no`
(messages are copied twice), and under `uncopy run --tcp` (they lie in memory that the receiver maps: docs/inside/blocks.md).

redis with redis-benchmark, memcached with gets.c, nginx with wrk, and nginx as a proxy before nginx. Sides, turns and columns are those of
programs.py; `copies` and `uncopy` are with elision.

    bench/tcp/large.py                          all of it
    bench/tcp/large.py --only redis --turns 5

Needs redis-server, redis-benchmark, memcached, nginx, wrk and a C compiler."""

import os
import subprocess
import sys
import tempfile

import programs
from programs import Case, found, harness

# side: options of `uncopy run`; None: plainly.
SIDES = {
    "plain": None,
    "again": None,
    "copies": ["--tcp", "--require", "--tcp-references=no"],
    "uncopy": ["--tcp", "--require", "--tcp-references=yes"],
}
TOOLS = tempfile.TemporaryDirectory(prefix="uncopy-large-")
KB = 1 << 10
# So many bytes a turn moves, about.
TURN = 600 << 20


def redis(what, size, connections):
    requests = max(200, TURN // size)
    client = ["-d", str(size), "-c", str(connections), "--csv"]
    return Case(
        f"redis {what} of {size // KB} KB, -c {connections}",
        programs.redis_server,
        lambda port: ["redis-benchmark", "-p", str(port), "-t", what.lower(), "-n", str(requests), *client],
        lambda text: (requests, requests / found(rf'"{what}","([0-9.]+)"', text)),
        ("redis-server", "redis-benchmark"),
        # (A GET of what is not there is none of this size.)
        prepare=lambda port, directory: subprocess.run(
            ["redis-benchmark", "-p", str(port), "-t", "set", "-n", "1", *client], check=True, stdout=subprocess.DEVNULL),
    )


def memcached(size, connections):
    count = max(200, TURN // size)
    return Case(
        f"memcached GET of {size // KB} KB, connections: {connections}",
        lambda port, directory: [*programs.memcached_server(port, directory), "-I", "4m"],
        lambda port: [TOOLS.name + "/gets", str(port), str(size), str(connections), str(count)],
        lambda text: (count, found(r"took ([0-9.]+)", text)),
        ("memcached",),
    )


def proxy(size, connections):
    """wrk, nginx as proxy, nginx with the file: both nginx are one command's children."""

    def server(port, directory):
        with open(directory + "/file", "wb") as file:
            file.write(os.urandom(size))
        behind = port + 1
        common = "events { worker_connections 1024; }\n"
        for name, body in (
            ("behind", f"sendfile off; keepalive_requests 100000000; server {{ listen 127.0.0.1:{behind}; root {directory}; output_buffers 2 1m; }}"),
            ("proxy", f"upstream b {{ server 127.0.0.1:{behind}; keepalive 64; }} keepalive_requests 100000000;\n"
             f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection \"\"; "
             f"proxy_buffers 8 1m; proxy_buffer_size 64k; proxy_busy_buffers_size 2m; proxy_max_temp_file_size 0; }} }}"),
        ):
            with open(f"{directory}/{name}.conf", "w") as file:
                file.write(f"daemon off; master_process off; pid {directory}/{name}.pid; error_log {directory}/{name}.error crit; {common}"
                           f"http {{ access_log off; {body} }}\n")
        nginx = harness.find("nginx")
        return ["sh", "-c", f"{nginx} -p {directory} -c {directory}/behind.conf & exec {nginx} -p {directory} -c {directory}/proxy.conf"]

    return programs.with_wrk(f"nginx proxy, {size // KB} KB, connections: {connections}", server, connections)


CASES = [
    *(redis(what, size, connections) for size in (64 * KB, 1024 * KB) for what in ("SET", "GET") for connections in (1, 8)),
    *(memcached(size, connections) for size in (64 * KB, 1000 * KB) for connections in (1, 8)),
    *(programs.nginx(size, connections) for size in (64 * KB, 1024 * KB) for connections in (1, 8)),
    *(proxy(size, connections) for size in (64 * KB, 1024 * KB) for connections in (1, 8)),
]


if __name__ == "__main__":
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-o", TOOLS.name + "/gets", os.path.join(os.path.dirname(os.path.abspath(__file__)), "gets.c")], check=True)
    sys.exit(programs.main(CASES, SIDES, __doc__))
