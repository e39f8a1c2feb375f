#!/usr/bin/env python3
"""What nginx 1.22 loses of an answer when it is reloaded, without uncopy: what programs/nginx could meet.

An origin sends exactly as many bytes as fit into nginx' buffer, and no more for a while. nginx reads them, asks how many are left (FIONREAD), hears "none", and takes its
buffer for full and the connection for readable at once: it sets no timer for what is still to come. A worker that was told to leave takes having no timer to mean that it
is done: "open socket left in connection".

    tests/matrix/nginx_reloads.py [BYTES]       (65536, the size of the buffer; one byte less, and nothing is lost)
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

BUFFER = 65536
REST = 1_000_000
CONFIG = """
{user}
worker_processes 1;
daemon off;
pid {here}/nginx.pid;
error_log stderr alert;
events {{ worker_connections 64; }}
http {{
  access_log off;
  proxy_temp_path {here}; client_body_temp_path {here}; fastcgi_temp_path {here}; uwsgi_temp_path {here}; scgi_temp_path {here};
  server {{
    listen 127.0.0.1:{front};
    location / {{ proxy_pass http://127.0.0.1:{back}; proxy_buffer_size {buffer}; proxy_buffers 8 {buffer}; }}
  }}
}}
"""


def serve(listener, first, reload):
    """Answers with `first` bytes, has nginx reloaded, and answers with the rest."""
    connection, _ = listener.accept()
    connection.recv(65536)
    head = b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n"
    size = first - len(head % (first + REST)) + REST
    connection.sendall((head % size).ljust(first, b"x"))
    reload()
    try:
        connection.sendall(b"y" * REST)
    except OSError:
        pass
    connection.close()


def main():
    first = int(sys.argv[1]) if len(sys.argv) > 1 else BUFFER
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        front = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as here:
        with open(f"{here}/nginx.conf", "w") as config:
            user = "user root;" if os.geteuid() == 0 else ""
            config.write(CONFIG.format(user=user, here=here, front=front, back=listener.getsockname()[1], buffer=BUFFER))
        nginx = subprocess.Popen(["nginx", "-p", here, "-c", f"{here}/nginx.conf", "-e", "stderr"], env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
        try:
            time.sleep(1)

            def reload():
                time.sleep(0.5)
                nginx.send_signal(signal.SIGHUP)
                time.sleep(1)

            threading.Thread(target=serve, args=(listener, first, reload)).start()
            client = socket.create_connection(("127.0.0.1", front), timeout=20)
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            got = b""
            try:
                while piece := client.recv(1 << 18):
                    got += piece
            except ConnectionResetError:
                pass
        finally:
            nginx.terminate()
            nginx.wait()
    head, _, body = got.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    print(f"the client got {len(body):,} of {size:,} bytes")
    return len(body) != size


sys.exit(main())
