"""HTTP for the scripts in programs/: a client that says exactly what goes over the wire, an origin, and a load.

The client is ours (and not http.client) for pipelining, slow reading, half-closed connections, and requests in pieces.
"""

import random
import socket
import socketserver
import ssl
import threading
import time

from lib import PORT, call, check, data, digest, fail, note, same, threads

SIZES = [0, 1, 1000, 8191, 16384, 65536, 65537, 150001, 262144, 524289, 1048576, 3000017, 8388608]


class Closed(Exception):
    """The server closed the connection before a whole response had come."""


def certificate():
    """cert.pem and key.pem in this directory, for 127.0.0.1; both.pem holds both."""
    call(
        *"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=localhost".split(),
        *"-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem".split(),
        under=[],
    )
    with open("both.pem", "w") as both:
        for name in ("cert.pem", "key.pem"):
            with open(name) as f:
                both.write(f.read())


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


class Connection:
    def __init__(self, port, tls=False, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(120)
        self.socket.connect(("127.0.0.1", port))
        if tls:
            context = ssl.create_default_context(cafile="cert.pem")
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    @staticmethod
    def encode(method, path, body=None, headers=(), chunks=None):
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
        if chunks:
            lines.append("Transfer-Encoding: chunked")
            pieces = [body[at : at + chunks] for at in range(0, len(body), chunks)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        elif body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines + ["", ""]).encode() + (body or b"")

    def send(self, *what, **how):
        self.begun = False
        self.socket.sendall(self.encode(*what, **how))

    def response(self, method="GET"):
        self.begun = False
        try:
            return self._response(method)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLError) as e:
            raise Closed(str(e)) from None

    def _response(self, method):
        while True:
            line = self.file.readline()
            if not line.endswith(b"\r\n"):
                raise Closed("in the status line" if line else "before the response")
            self.begun = True
            status, headers = int(line.split()[1]), {}
            while (line := self.file.readline()) != b"\r\n":
                if not line:
                    raise Closed("in the headers")
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            if status != 100:
                break
        if method == "HEAD" or status in (204, 304):
            body = b""
        elif "chunked" in headers.get("transfer-encoding", ""):
            pieces = []
            while size := int(self.file.readline() or b"-1", 16):
                if size < 0:
                    raise Closed("between chunks")
                pieces.append(self.file.read(size))
                if len(pieces[-1]) != size or self.file.read(2) != b"\r\n":
                    raise Closed("in a chunk")
            self.file.readline()
            body = b"".join(pieces)
        elif "content-length" in headers:
            size = int(headers["content-length"])
            body = self.file.read(size)
            if len(body) != size:
                raise Closed(f"after {len(body)} of {size} bytes")
        else:
            body = self.file.read()
        return Response(status, headers, body)

    def ask(self, method, path, *more, **how):
        self.send(method, path, *more, **how)
        return self.response(method)


# ---- an origin, for proxies ----


def generated(path):
    """What the origin answers for a path: .../SEED/SIZE"""
    seed, size = path.split("?")[0].split("/")[-2:]
    return data(seed, int(size))


class Origin:
    """Answers .../SEED/SIZE with that data (chunked if the path has /chunked/, until the connection's end if it has
    /close/, in slow pieces if it has /slow/), and what is posted to /echo... with the very same."""

    def __init__(self, port):
        origin = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                origin.serve(self)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True
            request_queue_size = 128

        self.requests = 0
        self.cache = {}
        self.server = Server(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def body(self, path):
        key = "/".join(path.split("?")[0].split("/")[-2:])
        if key not in self.cache:
            self.cache[key] = generated(path)
        return self.cache[key]

    def serve(self, handler):
        try:
            while self.one(handler.rfile, handler.connection):
                pass
        except (OSError, ValueError):
            pass  # a client that went away

    def one(self, file, sock):
        words = file.readline().split()
        if len(words) != 3:
            return False
        method, path, headers = words[0].decode(), words[1].decode(), {}
        while (line := file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        posted = b""
        if "chunked" in headers.get("transfer-encoding", ""):
            while size := int(file.readline(), 16):
                posted += file.read(size)
                file.readline()
            file.readline()
        elif "content-length" in headers:
            posted = file.read(int(headers["content-length"]))
        self.requests += 1
        body = posted if path.startswith("/echo") else self.body(path)
        start = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: application/octet-stream\r\n"
        if method == "HEAD":
            sock.sendall(start + b"Content-Length: %d\r\n\r\n" % len(body))
        elif "/close/" in path:
            sock.sendall(start + b"Connection: close\r\n\r\n" + body)
            return False
        elif "/chunked/" in path:
            sock.sendall(start + b"Transfer-Encoding: chunked\r\n\r\n")
            r, at = random.Random(path), 0
            while at < len(body):
                piece = body[at : at + r.choice((1, 1000, 16384, 70000, 300000))]
                sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                at += len(piece)
            sock.sendall(b"0\r\n\r\n")
        elif "/slow/" in path:
            sock.sendall(start + b"Content-Length: %d\r\n\r\n" % len(body))
            step = max(1, len(body) // 10)
            for at in range(0, len(body), step):
                sock.sendall(body[at : at + step])
                time.sleep(0.01)
        else:
            sock.sendall(start + b"Content-Length: %d\r\n\r\n" % len(body))
            sock.sendall(body)
        return headers.get("connection", "").lower() != "close"


# ---- a load ----


def answer(what, response, want, status=200):
    check(response.status == status, f"{what}: status {response.status}, not {status}")
    same(what, response.body, want)


def load(name, port, contents, connections=6, tls=False, half_close=True, ranges=True, retry=False):
    """Gets contents (path -> bytes) over several connections at once, in every manner that clients have; returns a digest
    of all that was read. retry: a connection may end between two responses (a server that is being reloaded)."""

    def one(index):
        r = random.Random(f"{name} {index}")
        paths = sorted(contents)
        r.shuffle(paths)
        read = []
        where = f"{name}, connection {index}, GET"
        client = Connection(port, tls)

        def ask(path, headers=()):
            nonlocal client
            for _ in range(20):
                try:
                    return client.ask("GET", path, headers=headers)
                except (Closed, OSError):
                    if not retry or client.begun:
                        raise
                    client.close()
                    client = Connection(port, tls)
            fail(f"{where}: twenty connections were closed before the response")

        for path in paths:
            want = contents[path]
            response = ask(path)
            answer(f"{where} {path}", response, want)
            read.append(response.body)
            if response.headers.get("connection", "").lower() == "close":
                client.close()
                client = Connection(port, tls)
            if ranges and len(want) > 100 and "/chunked/" not in path and "/close/" not in path:
                first = r.randrange(len(want))
                last = r.randrange(first, len(want))
                response = ask(path, [f"Range: bytes={first}-{last}"])
                if ranges == "maybe" and response.status == 200:  # a proxy that has not got it all yet may do so
                    answer(f"{where} {path}", response, want)
                else:
                    answer(f"{where} {path} {first}-{last}", response, want[first : last + 1], 206)
        client.close()
        if retry:
            return digest(*read)
        # pipelined; the requests in two pieces
        piped = [path for path in paths if len(contents[path]) <= 600000 and "/close/" not in path]
        with Connection(port, tls) as client:
            wire = b"".join(client.encode("GET", path) for path in piped)
            client.socket.sendall(wire[: len(wire) // 2])
            time.sleep(0.01)
            client.socket.sendall(wire[len(wire) // 2 :])
            for path in piped:
                answer(f"{where} {path}, pipelined", client.response(), contents[path])
        # a slow reader with a small buffer
        for path in r.sample(sorted(paths, key=lambda path: len(contents[path]))[-4:], 2):
            with Connection(port, tls, receive_buffer=8192) as client:
                client.send("GET", path, headers=["Connection: close"])
                client.file.readline()
                time.sleep(0.3)
                while client.file.readline() != b"\r\n":
                    pass
                if half_close and not tls:
                    client.socket.shutdown(socket.SHUT_WR)
                if "/chunked/" not in path and "/close/" not in path:
                    got = client.file.read(100000)
                    time.sleep(0.1)
                    got += client.file.read()
                    same(f"{where} {path}, slow", got, contents[path])
        # said at once that nothing more will be sent
        if half_close and not tls:
            path = r.choice(paths)
            with Connection(port) as client:
                client.send("GET", path, headers=["Connection: close"])
                client.socket.shutdown(socket.SHUT_WR)
                answer(f"{where} {path}, half closed", client.response(), contents[path])
        # gone in the middle
        with Connection(port, tls, receive_buffer=8192) as client:
            client.send("GET", paths[-1])
            client.socket.recv(5000)
        return digest(*read)

    return digest(*(seen.encode() for seen in threads(connections, one)))


def post(name, port, path, connections=4, tls=False, most=8388608, keep=True):
    """Posts to an echo; the bodies with a length, in chunks, and in pieces with pauses."""

    def one(index):
        r, read = random.Random(f"{name} {index}"), []
        sizes = [size for size in SIZES if size <= most]
        for some in [sizes] if keep else [[size] for size in sizes]:
            with Connection(port, tls) as client:
                several(index, client, some, r, read)
        return digest(*read)

    def several(index, client, sizes, r, read):
        for size in sizes:
            body = data(f"{name} {index} {size}", size)
            how = r.randrange(3)
            if how == 1 and size:
                got = client.ask("POST", path, body, chunks=r.choice((1000, 65536, 300000)))
            elif how == 2:
                wire = client.encode("POST", path, body)
                at = 0
                while at < len(wire):
                    piece = wire[at : at + r.choice((100, 4096, 65536, 400000, 1000000))]
                    client.socket.sendall(piece)
                    at += len(piece)
                    if r.random() < 0.3:
                        time.sleep(0.005)
                got = client.response()
            else:
                got = client.ask("POST", path, body)
            answer(f"{name}, connection {index}, POST of {size} bytes", got, body)
            read.append(got.body)

    return digest(*(seen.encode() for seen in threads(connections, one)))


def http2(name, port, contents, host="localhost"):
    """curl, all paths at once over HTTP/2; returns a digest."""
    import os

    paths = sorted(contents)
    command = ["curl", "-sS", "--fail", "--http2", "--cacert", "cert.pem", "--parallel", "--parallel-max", "16"]
    command += ["--write-out", "%{http_version}\n"]
    os.makedirs("h2", exist_ok=True)
    for i, path in enumerate(paths):
        command += ["-o", f"h2/{i}", f"https://{host}:{port}{path}"]
    said = call(*command).decode().split()
    check(said == ["2"] * len(paths), f"{name}: not all over HTTP/2: {said}")
    for i, path in enumerate(paths):
        with open(f"h2/{i}", "rb") as f:
            same(f"{name}, HTTP/2, {path}", f.read(), contents[path])
        os.remove(f"h2/{i}")
    return digest(*(contents[path] for path in paths))
