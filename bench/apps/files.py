#!/usr/bin/env python3
"""CPU that servers of files need for a request: plainly, with glibc told not to trim, and under uncopy with kept files.

As apps.py, whose options it takes. The files belong to the user that the server runs as: without that there is no lease, and
nothing is kept. After the timing the file is written to in place, and the next answer must have the new bytes.

    bench/apps/files.py                     all servers at 64 KB and 1 MB
    bench/apps/files.py --only nginx"""

import os
import pwd
import random
import sys
import time

import apps

PATHS = {}


def content(directory, port, owner=None):
    """A directory with the file `f`, whose length the load chooses."""
    root = os.path.join(directory, "root")
    os.makedirs(root)
    os.chmod(directory, 0o755)
    PATHS[port] = (os.path.join(root, "f"), owner)
    return root


class Files(apps.Download):
    """GET of a file; whether it is right is known from the file."""

    def __init__(self, port, size):
        super().__init__(port, size)
        self.request = b"GET /f HTTP/1.1\r\nHost: bench\r\n\r\n"
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
            for round in range(2):
                for _ in range(60):
                    s.sendall(self.request)
                    if apps.http_answer(s) != self.bytes():
                        raise apps.Failure("the answer is not what the file holds")
                if round == 0:
                    self.seed += 1
                    with open(self.path, "r+b") as f:
                        f.write(self.bytes())
        time.sleep(1.2)  # a file that was changed is left alone for a second
        self.warm()

    def warm(self):
        with self.open() as s:
            for _ in range(100):
                self.one(s)


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


def python(script):
    def start(port, directory):
        root = content(directory, port)
        return [apps.PYTHON, os.path.join(apps.HERE, "servers", script), str(port), root], None

    return start


apps.SERVERS = {
    "nginx, sendfile off": (nginx("sendfile off;"), Files),
    "nginx, sendfile off, buffers of 1m": (nginx("sendfile off; output_buffers 2 1m;"), Files),
    "nginx, sendfile on": (nginx("sendfile on;"), Files),
    "nginx, sendfile on, chunks of 32k": (nginx("sendfile on; sendfile_max_chunk 32k;"), Files),
    "Python http.server": (python("http_server.py"), Files),
    "aiohttp, file read whole": (python("aiohttp_file.py"), Files),
}

if __name__ == "__main__":
    apps.OPTIONS = apps.arguments()
    apps.OPTIONS.uncopy_option = apps.OPTIONS.uncopy_option or ["--file-memory=64M"]
    try:
        sys.exit(apps.main())
    except apps.Failure as why:
        sys.exit(f"files.py: {why}")
