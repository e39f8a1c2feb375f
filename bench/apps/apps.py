#!/usr/bin/env python3
"""Programs that receive, relay and answer: in Python, Node and C, none of them made for this.

    bench/apps/apps.py                      all servers at 64 KB and 1 MB, with 1, 4 and 64 connections
    bench/apps/apps.py --only aiohttp       one of them
    bench/apps/apps.py --fail-below 0.98    exit status 1 where anything is slower

Installs into target/bench-apps what PyPI has of them (aiohttp, uvicorn, grpcio); nginx, node and PostgreSQL come from
`bench/apps/apps.py --install` (Debian packages). What the columns are: harness.py."""

import os
import shutil
import subprocess
import sys

import harness
from harness import HERE, PYTHON, Server, origin, python_server
from loads import Download, Echo, Grpc, Select, Upload


def nginx(port, directory):
    behind, helper = origin()
    conf = os.path.join(directory, "nginx.conf")
    with open(conf, "w") as f:
        f.write(
            f"daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;\n"
            "events { worker_connections 256; }\n"
            "http { access_log off; keepalive_requests 1000000;\n"
            + "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            + f"upstream origin {{ server 127.0.0.1:{behind}; keepalive 80; }}\n"
            f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://origin; proxy_http_version 1.1;\n"
            'proxy_set_header Connection ""; proxy_buffers 64 32k; proxy_buffer_size 32k; proxy_busy_buffers_size 1m; } } }\n'
        )
    return ["nginx", "-p", directory, "-c", conf], helper


def haproxy(port, directory):
    behind, helper = origin()
    conf = os.path.join(directory, "haproxy.cfg")
    with open(conf, "w") as f:
        f.write(
            "global\n  nbthread 1\n  maxconn 256\n"
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n"
            f"listen proxy\n  bind 127.0.0.1:{port}\n  server origin 127.0.0.1:{behind}\n"
        )
    return ["haproxy", "-db", "-f", conf], helper


def node(port, directory):
    return ["node", os.path.join(HERE, "servers", "node_concat.js"), str(port)], None


# PostgreSQL refuses to be root; a userfaultfd that serves the kernel's accesses too needs this one capability.
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
WITH_USERFAULTFD = ["--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"]


def postgresql(port, directory):
    data = os.path.join(directory, "data")
    os.chmod(directory, 0o755)
    os.mkdir(data)
    other, capable = [], []
    if os.getuid() == 0:
        shutil.chown(data, "postgres", "postgres")
        other, capable = AS_POSTGRES, WITH_USERFAULTFD
    tool = [*other, harness.find("initdb"), "-A", "trust", "-N", "-U", "postgres", "-D", data]
    subprocess.run(tool, check=True, stdout=subprocess.DEVNULL, cwd="/")
    with open(data + "/postgresql.conf", "a") as f:
        f.write(f"unix_socket_directories = '{data}'\nshared_buffers = 64MB\nautovacuum = off\nlogging_collector = off\n")
    return [*other, *capable, harness.find("postgres"), "-D", data, "-p", str(port)], None


def grpc(port, size):
    return Grpc(port, size, PYTHON, harness.OPTIONS.load_core)


SERVERS = {
    "aiohttp upload": Server("Python uploads", python_server("aiohttp_upload.py"), Upload, ("aiohttp",)),
    "uvicorn upload": Server("Python uploads", python_server("uvicorn_upload.py"), Upload, ("uvicorn", "h11")),
    "asyncio readexactly echo": Server("Python message relay", python_server("asyncio_echo.py", sys.executable), Echo, ()),
    "gRPC bytes echo": Server("Python RPC", python_server("grpc_echo.py"), grpc, ("grpcio",)),
    "Node Buffer.concat": Server("Node.js uploads", node, Upload, ("node",)),
    "nginx proxy, 64 x 32k buffers": Server("Reverse proxy", nginx, Download, ("nginx",)),
    "HAProxy": Server("Reverse proxy", haproxy, Download, ("haproxy",)),
    "PostgreSQL SELECT of bytea": Server("Database", postgresql, Select, ("postgres",)),
}

if __name__ == "__main__":
    harness.run(SERVERS, __doc__)
