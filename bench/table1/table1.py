#!/usr/bin/env python3
"""Table 1 of zIO (OSDI '22): copies between input and output, counted by `uncopy profile` in the programs that Debian and
PyPI provide, beside the paper's numbers.

    bench/table1/table1.py [--uncopy target/release/uncopy] [--size 1000000] [--only redis,nginx,...] [--html DIR]

Each program runs under `uncopy profile` (nothing is elided), is driven with values of one size and ended; of the paths from
its input to its output those with data of that size are weighed by bytes. What the program does not have (not
installed) is said and left out. The paper counted in the source and with a debugger, in the versions of 2022 and earlier; where a
number differs, the call sites below the table say what today's version does.

WiredTiger: the wheel that pip builds from PyPI's source package is a debug build: good for counting, not for time.
"""

import argparse
import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(1, os.path.join(ROOT, "bench", "redis"))
from redis import Redis  # noqa: E402

# (operation, copies in the application, at the kernel's interface), as the paper has them
PAPER = {
    "redis SET": ("4", "2"),
    "redis GET": ("2", "1"),
    "icecast to N": ("0", "1 + N"),
    "WiredTiger insert": ("3", "2"),
    "WiredTiger read": ("2", "2"),
}
PAPER_NAME = {"WiredTiger insert": "MongoDB insert", "WiredTiger read": "MongoDB read"}
WIREDTIGER = os.path.join(HERE, "wiredtiger_rows.py")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port, process):
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"ended with {process.returncode}")
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"does not listen on port {port}")


STARTED = []


@atexit.register
def end_all():
    for process in STARTED:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


class Profiled:
    """A program under `uncopy profile`; `programs` once it has ended."""

    def __init__(self, args, name, *command, **how):
        self.report = os.path.abspath(f"{name}.json")
        html = ["--html", os.path.join(args.html, f"{name}.html")] if args.html else []
        profile = [args.uncopy, "profile", "--json", "-o", self.report, *html, "--", *map(str, command)]
        self.log = open(f"{name}.log", "wb")
        self.process = subprocess.Popen(profile, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, **how)
        STARTED.append(self.process)

    def wait_port(self, port):
        wait_port(port, self.process)
        return self

    def end(self, by_itself=False):
        """SIGTERM goes on to the program, if that does not end by itself."""
        if not by_itself and self.process.poll() is None:
            self.process.terminate()
        self.process.wait(300)
        with open(self.report) as f:
            return [json.loads(line) for line in f]


def fetch(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


class Row:
    def __init__(self, name, paths, note=""):
        self.name, self.note, self.paths = name, note, paths
        self.bytes = sum(p["bytes"] for p in paths)

    def mean(self, count):
        """Weighed by bytes; `count` copies of a path."""
        return sum(count(p) * p["bytes"] for p in self.paths) / self.bytes if self.bytes else None

    def touched(self):
        watched = sum(p["watched_bytes"] for p in self.paths)
        return sum(p["touched_bytes"] for p in self.paths) / watched if watched else None


def paths(programs, size, source, sink, rested=None):
    """Paths of large data from `source` to `sink`; `rested`: whether the data lay there for a while in between."""
    found = []
    for program in programs:
        for p in program["paths"]:
            large = sum(n for c, n in p["sizes"].items() if int(c) * 2 > min(size // 8, 4096))
            rests = any(step["step"] == "rest" for step in p["way"])
            if p["from"] and p["to"] and p["from"]["kind"] == source and p["to"]["kind"] == sink and large:
                if rested is None or rests == rested:
                    found.append(p)
    return found


def redis(args):
    port = free_port()
    os.mkdir("redis")
    server = Profiled(
        args, "redis", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
        "--appendfsync", "always", "--auto-aof-rewrite-percentage", 0, "--dir", os.path.abspath("redis"),
        "--enable-debug-command", "local",
    ).wait_port(port)  # fmt: skip
    values = [os.urandom(args.size) for _ in range(8)]
    with Redis(port) as client:
        for i in range(args.times):
            assert client.call("SET", f"key:{i % 8}", values[i % 8]) == b"OK"
        time.sleep(1)
        for i in range(args.times):
            assert client.call("GET", f"key:{i % 8}") == values[i % 8]
    programs = server.end()
    yield Row("redis SET", paths(programs, args.size, "socket", "file"), "append-only file, always synchronised")
    # The copies of a GET are those after the value lay in the store; its input is the store.
    yield Row("redis GET", paths(programs, args.size, "socket", "socket", rested=True), "copies after the value was stored")


def memcached(args):
    port = free_port()
    user = ["-u", "root"] if os.geteuid() == 0 else []
    server = Profiled(args, "memcached", "memcached", "-p", port, "-l", "127.0.0.1", "-I", "64m", "-m", "512", *user)
    server.wait_port(port)
    values = [os.urandom(args.size) for _ in range(8)]
    with socket.create_connection(("127.0.0.1", port)) as s:
        file = s.makefile("rb")
        for i in range(args.times):
            s.sendall(b"set key%d 0 0 %d\r\n%s\r\n" % (i % 8, args.size, values[i % 8]))
            assert file.readline() == b"STORED\r\n"
        time.sleep(1)
        for i in range(args.times):
            s.sendall(b"get key%d\r\n" % (i % 8))
            file.readline()
            assert file.read(args.size) == values[i % 8]
            file.readline(), file.readline()
    programs = server.end()
    yield Row("memcached GET", paths(programs, args.size, "socket", "socket", rested=True), "copies after the value was stored")
    stored = paths(programs, args.size, "socket", "socket", rested=True)
    set_paths = [dict(p, copies_after_rest=p["copies"] - p["copies_after_rest"]) for p in stored]
    yield Row("memcached SET", set_paths, "copies before the value was stored")


NGINX = """
daemon off; pid {here}/nginx.pid; error_log stderr error; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off; client_max_body_size 64m; client_body_temp_path {here}/body; proxy_temp_path {here}/temp;
  fastcgi_temp_path {here}/temp; uwsgi_temp_path {here}/temp; scgi_temp_path {here}/temp;
  server {{
    listen 127.0.0.1:{port}; root {here}/www;
    location /plain/ {{ alias {here}/www/; sendfile off; output_buffers 2 512k; }}
    location /sent/ {{ alias {here}/www/; sendfile on; }}
    location /proxied/ {{ proxy_pass http://127.0.0.1:{port}/sent/; proxy_buffer_size 64k; proxy_buffers 64 32k; proxy_max_temp_file_size 0; }}
  }}
}}
"""


def nginx(args):
    rows = [("nginx, sendfile off", "plain", "file", "socket"), ("nginx, sendfile on", "sent", "file", "socket"),
            ("nginx proxy", "proxied", "socket", "socket")]  # fmt: skip
    here = os.getcwd()
    for name in ("body", "temp", "www"):
        os.makedirs(name, exist_ok=True)
    os.chmod(here, 0o755)
    content = os.urandom(args.size)
    with open("www/file", "wb") as f:
        f.write(content)
    for name, place, source, sink in rows:
        port = free_port()
        with open("nginx.conf", "w") as f:
            f.write(NGINX.format(here=here, port=port))
        server = Profiled(args, f"nginx-{place}", "nginx", "-p", here, "-c", f"{here}/nginx.conf", "-e", "stderr")
        server.wait_port(port)
        for _ in range(args.times):
            assert fetch(f"http://127.0.0.1:{port}/{place}/file") == content
        yield Row(name, paths(server.end(), args.size, source, sink))


ICECAST = """<icecast>
  <limits><clients>200</clients><sources>4</sources><queue-size>50000000</queue-size><client-timeout>120</client-timeout>
    <header-timeout>60</header-timeout><source-timeout>60</source-timeout><burst-size>65536</burst-size></limits>
  <authentication><source-password>secret</source-password><relay-password>secret</relay-password>
    <admin-user>admin</admin-user><admin-password>secret</admin-password></authentication>
  <hostname>localhost</hostname>
  <listen-socket><port>{port}</port><bind-address>127.0.0.1</bind-address></listen-socket>
  <paths><basedir>{here}</basedir><logdir>{here}</logdir><webroot>{here}</webroot><adminroot>{here}</adminroot></paths>
  <logging><accesslog>access.log</accesslog><errorlog>error.log</errorlog><loglevel>2</loglevel></logging>
  <security><chroot>0</chroot>{owner}</security>
</icecast>
"""


def icecast(args, listeners=4, megabytes=8):
    port, here = free_port(), os.getcwd()
    os.chmod(here, 0o777)
    owner = "<changeowner><user>nobody</user><group>nogroup</group></changeowner>" if os.geteuid() == 0 else ""
    with open("icecast.xml", "w") as f:
        f.write(ICECAST.format(port=port, here=here, owner=owner))
    server = Profiled(args, "icecast", "icecast2", "-c", "icecast.xml").wait_port(port)
    live = os.urandom(megabytes << 20)
    received = [bytearray() for _ in range(listeners)]

    def listen(into):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"GET /live HTTP/1.0\r\n\r\n")
            while piece := s.recv(1 << 20):
                into += piece

    with socket.create_connection(("127.0.0.1", port)) as source:
        source.sendall(b"SOURCE /live HTTP/1.0\r\nAuthorization: Basic c291cmNlOnNlY3JldA==\r\nContent-Type: audio/mpeg\r\n\r\n")
        assert b"200" in source.recv(1000)
        source.sendall(live[:65536])
        threads = [threading.Thread(target=listen, args=(into,)) for into in received]
        [t.start() for t in threads]
        time.sleep(1.5)
        for at in range(65536, len(live), 32768):
            source.sendall(live[at : at + 32768])
            time.sleep(0.004)
        time.sleep(1.5)
    [t.join(60) for t in threads]
    for got in received:  # from wherever it came in, one piece of the stream
        body = bytes(got[got.index(b"\r\n\r\n") + 4 :])
        at = live.find(body[:64])
        assert len(body) > len(live) // 2 and live[at : at + len(body)] == body, f"a listener got {len(body)} bytes, not a piece"
    programs = server.end()
    found = paths(programs, 8192, "socket", "socket")
    row = Row("icecast to N", found, f"N = {listeners}")
    came = sum(i["sent_bytes"] for p in programs for i in p["inputs"] if i["from"]["kind"] == "socket")
    row.kernel = f"1 + {row.bytes / max(came, 1):.1f}" if came else "?"
    yield row


def wiredtiger(args):
    python = args.python
    if subprocess.run([python, "-c", "import wiredtiger"], stderr=subprocess.DEVNULL).returncode:
        raise FileNotFoundError(f"{python} has no module wiredtiger (pip install wiredtiger; --python says which Python)")
    os.mkdir("wt")
    for what in ("insert", "read"):
        profiled = Profiled(args, f"wiredtiger-{what}", python, WIREDTIGER, what, "wt", args.size, args.times)
        programs = profiled.end(by_itself=True)
        assert profiled.process.returncode == 0, f"wiredtiger_rows.py {what} failed"
        # The client of the paper's MongoDB is at the other end of a socket; here it is the same process, with a socket
        # pair for its values.
        if what == "insert":
            yield Row("WiredTiger insert", paths(programs, args.size, "socket", "file"), "journal and checkpoint")
        else:
            yield Row("WiredTiger read", paths(programs, args.size, "file", "socket"), "from a closed and reopened file")


ALL = {"redis": redis, "icecast": icecast, "wiredtiger": wiredtiger, "nginx": nginx, "memcached": memcached}
NEEDS = {"redis": "redis-server", "icecast": "icecast2", "nginx": "nginx", "memcached": "memcached"}


def number(value):
    return "-" if value is None else f"{value:.1f}".removesuffix(".0")


def show(rows):
    print("| operation | copies in the application: paper | here | at the kernel: paper | here | touched | predicted to save, CPU |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        if not row.paths:
            print(f"| {row.name} | no path of this data was seen |")
            continue
        app, kernel = PAPER.get(row.name, ("-", "-"))
        after = "after" in row.note
        before = "before" in row.note
        copies = row.mean(lambda p: p["copies_after_rest"] if after or before else p["copies"])
        # Of a path that is cut in two at the store, the input call belongs to one part and the output call to the other.
        kernel_copies = lambda p: p["kernel_copies"] - 1 if after else min(p["kernel_copies"], 1) if before else p["kernel_copies"]  # noqa: E731
        here = getattr(row, "kernel", None) or number(row.mean(kernel_copies))
        touched = row.touched()
        saved = sum(p["predicted"]["cpu_ns"] for p in row.paths)
        per = saved / max(sum(p["calls"] for p in row.paths), 1) / 1000
        name = row.name + (f" (the paper: {PAPER_NAME[row.name]})" if row.name in PAPER_NAME else "")
        share = "?" if touched is None else f"{touched:.1%}"
        print(f"| {name} | {app} | {number(copies)} | {kernel} | {here} | {share} | {per:.0f} us a call |")
    for row in rows:
        for p in sorted(row.paths, key=lambda p: -p["bytes"])[:1]:
            steps = [f"{p['from']['kind']}: {site(p['from'])}"] if p["from"].get("site") else [f"{p['from']['kind']}, by the kernel"]
            steps += ["(stored)" if s["step"] == "rest" else site(s) for s in p["way"]]
            steps += [f"{p['to']['kind']}: {site(p['to'])}"]
            print(f"\n{row.name} ({row.note or 'the largest path'}, {p['bytes'] / row.bytes:.0%} of the bytes): " + " -> ".join(steps))


def site(of):
    s = of["site"]
    return f"{s['call']} in {s['function'].split('+')[0] or s['function']} ({s['library']})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uncopy", default=os.path.join(ROOT, "target", "release", "uncopy"))
    parser.add_argument("--size", type=int, default=1000000, help="bytes of a value")
    parser.add_argument("--times", type=int, default=100, help="how often each operation is done")
    parser.add_argument("--only", default=",".join(ALL))
    parser.add_argument("--html", help="a directory for the pages")
    parser.add_argument("--python", default=sys.executable, help="a Python that has the module wiredtiger")
    args = parser.parse_args()
    args.uncopy = os.path.abspath(args.uncopy)
    if args.html:
        args.html = os.path.abspath(args.html)
        os.makedirs(args.html, exist_ok=True)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    rows = []
    for name in args.only.split(","):
        if name in NEEDS and not shutil.which(NEEDS[name]):
            print(f"{name}: {NEEDS[name]} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="uncopy-table1-") as directory:
            before = os.getcwd()
            os.chdir(directory)
            os.chmod(directory, 0o755)
            try:
                rows += ALL[name](args)
            except FileNotFoundError as e:
                print(f"{name}: {e}", file=sys.stderr)
            finally:
                os.chdir(before)
    show(rows)


if __name__ == "__main__":
    main()
