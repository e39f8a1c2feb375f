#!/usr/bin/env python3
"""An HTTP server on two ports, plain and TLS, of the files in its directory: what curl and wget are tried with.

GET honours ranges, ?chunked and ?gzip; PUT and POST to /upload?NAME must bring the bytes of NAME and get them back;
POST to /form brings one file as a form's part.
"""

import gzip
import http.server
import os
import ssl
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers["Content-Length"]))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def answer(self, data, status=200, headers=(), chunked=False):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        chunked = chunked and self.request_version == "HTTP/1.1"
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(data)))))
        self.end_headers()
        if not chunked:
            self.wfile.write(data)
            return
        at, size = 0, 1000
        while at < len(data):
            piece = data[at : at + size]
            self.wfile.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
            at, size = at + size, size * 3 % 999_983
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self):
        name, _, how = self.path[1:].partition("?")
        with open(os.path.basename(name), "rb") as f:
            data = f.read()
        if how == "gzip":
            return self.answer(gzip.compress(data, 1), headers=[("Content-Encoding", "gzip")])
        if wanted := self.headers.get("Range", "").removeprefix("bytes="):
            first, last = wanted.split("-")
            first, last = int(first), min(int(last or len(data) - 1), len(data) - 1)
            span = ("Content-Range", f"bytes {first}-{last}/{len(data)}")
            return self.answer(data[first : last + 1], 206, [span])
        return self.answer(data, chunked=how == "chunked")

    def do_POST(self):
        data = self.body()
        what, _, name = self.path[1:].partition("?")
        if what == "form":
            boundary = self.headers["Content-Type"].partition("boundary=")[2].encode()
            part = data.split(b"--" + boundary)[1]
            data, name = part.partition(b"\r\n\r\n")[2][:-2], "text"
        with open(os.path.basename(name), "rb") as f:
            right = f.read() == data
        self.answer(data, 200 if right else 500)

    do_PUT = do_POST


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that goes away early is no error here; the scripts look at what they got."""


plain, tls = (Server(("127.0.0.1", int(port)), Handler) for port in sys.argv[1:])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
tls.socket = context.wrap_socket(tls.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=tls.serve_forever, daemon=True).start()
plain.serve_forever()
