#!/usr/bin/env python3
"""Servers of files: as they are, and with `--file-memory`, which keeps files that are read again and again.

The files belong to the user that the server runs as: without that there is no lease, and nothing is kept. In each verification the
file is written to in place, and the next answer must have the new bytes.

    bench/apps/files.py                     all servers at 64 KB and 1 MB, with 1, 4 and 64 connections
    bench/apps/files.py --only nginx

What the columns are: harness.py."""

import os
import pwd
import random
import sys

import harness
from harness import HERE, PYTHON, Server
from loads import Download, Wrong, http_answer

PATHS = {}


def content(directory, port, owner=None):
    """A directory with the file `f`, whose length the load chooses."""
    root = os.path.join(directory, "root")
    os.makedirs(root)
    os.chmod(directory, 0o755)
    PATHS[port] = (os.path.join(root, "f"), owner)
    return root


class Files(Download):
    """GET of a file; whether it is right is known from the file. (One that was changed is left alone for a second: while it is warmed.)"""

    def __init__(self, port, size):
        super().__init__(port, size)
        self.request.out = b"GET /f HTTP/1.1\r\nHost: bench\r\n\r\n"
        self.path, owner = PATHS[port]
        self.seed = 0
        with open(self.path, "wb") as f:
            f.write(self.bytes())
        if owner and os.getuid() == 0:
            os.chown(self.path, pwd.getpwnam(owner).pw_uid, -1)

    def bytes(self):
        return random.Random(self.seed).randbytes(self.size)

    def verify(self):
        with self.open() as s:
            for turn in range(2):
                expected = self.bytes()
                for _ in range(30):
                    s.sendall(self.request.out)
                    if http_answer(s) != expected:
                        raise Wrong("the answer is not what the file holds")
                if turn == 0:
                    self.seed += 1
                    with open(self.path, "r+b") as f:
                        f.write(self.bytes())


def nginx(directives):
    def start(port, directory):
        root = content(directory, port, "www-data")
        conf = os.path.join(directory, "nginx.conf")
        with open(conf, "w") as f:
            f.write(
                f"daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log; user www-data;\n"
                "events { worker_connections 256; }\n"
                f"http {{ access_log off; keepalive_requests 1000000; root {root}; {directives}\n"
                + "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
                + f"server {{ listen 127.0.0.1:{port}; }} }}\n"
            )
        return ["nginx", "-p", directory, "-c", conf], None

    return start


def python(script, interpreter=PYTHON):
    def start(port, directory):
        root = content(directory, port)
        return [interpreter, os.path.join(HERE, "servers", script), str(port), root], None

    return start


KEEP = ("--file-memory=64M",)
BUFFERS = "sendfile off; output_buffers 2 1m;"
SERVERS = {
    "nginx, sendfile off": Server("Static files", nginx("sendfile off;"), Files, ("nginx",)),
    "nginx, sendfile off, buffers of 1m": Server("Static files, kept", nginx(BUFFERS), Files, ("nginx",), KEEP),
    "nginx, sendfile on": Server("Static files", nginx("sendfile on;"), Files, ("nginx",)),
    "aiohttp, file read whole": Server("Python files", python("aiohttp_file.py"), Files, ("aiohttp",)),
    "Python http.server": Server("Python files", python("http_server.py", sys.executable), Files, ()),
}

if __name__ == "__main__":
    harness.run(SERVERS, __doc__)
