#!/bin/bash
# The steps of tests/package/run.sh inside: a step's name is the first argument. Prints what was found; the runner
# judges.
set -u
as_user() { setpriv --reuid=alice --regid=alice "$@"; }
elide='
import sys
a = open("/tmp/input", "rb", buffering=0)
for i in range(3000):
    data = bytearray(1 << 19)
    a.seek(0); a.readinto(data)
    sys.stdout.buffer.write(bytes(data))
'
case $1 in
files)
    # All that a package could leave, but for what dpkg, journald and the clock write.
    find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /dev -o -path /tmp -o -path /var/tmp -o -path /var/lib/dpkg -o -path /var/log \
        -o -path /var/cache/ldconfig -o -path /var/lib/systemd -o -path /var/lib/redis -o -path /var/cache/debconf \
        -o -path /etc/gshadow- -o -path /etc/group- -o -path /etc/passwd- -o -path /etc/shadow- -o -path /etc/.pwd.lock \) -prune \
        -o -print | sort
    getent group | cut -d: -f1 | sort
    ;;
user)
    getent passwd alice >/dev/null || adduser --quiet --disabled-password --gecos '' alice
    head -c 524288 /dev/urandom >/tmp/input
    chmod 644 /tmp/input
    ;;
outside-the-group) as_user --clear-groups uncopy run -- echo hello 2>&1 ;;
documents)
    python3 - <<'PY'
import glob, os, re
paths = glob.glob("/usr/share/doc/uncopy/**/*.md", recursive=True)
links = [(path, link) for path in paths for link in re.findall(r"\]\(([^)#\s]+)", re.sub(r"`[^`\n]*`", "", open(path).read()))]
dangling = [each for each in links if ":" not in each[1] and not os.path.exists(os.path.join(os.path.dirname(each[0]), each[1]))]
print(f"{len(paths)} documents, {len(dangling)} dangling links")
PY
    ;;
doctor) as_user --clear-groups uncopy doctor --no-cache 2>&1 ;;
elide) as_user --init-groups uncopy run --require --verbose -- python3 -c "$elide" 2>&1 >/dev/null ;;
c-program)
    # shellcheck disable=SC2046
    tcc -o /tmp/echo /mnt/examples/echo.c $(pkg-config --cflags --libs uncopy-tcp) || exit 1
    /tmp/echo 7778 >/tmp/port &
    python3 - <<'PY'
import socket, time
for _ in range(100):
    try:
        s = socket.create_connection(("127.0.0.1", 7778))
        break
    except OSError:
        time.sleep(0.05)
s.sendall(b"x" * 100)
print("came back" if s.recv(100, socket.MSG_WAITALL) == b"x" * 100 else "WRONG")
PY
    kill $!
    ;;
redis-load)
    # 600 values of 512 KB: received, copied, sent back; each is what it was. (As many as it takes to find out whether eliding pays.)
    python3 - <<'PY'
import os, socket
def connect():
    return socket.create_connection(("127.0.0.1", 6379))
s = connect()
f = s.makefile("rwb")
for i in range(600):
    value = os.urandom(512 << 10)
    f.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n" % (len(value), value))
    f.write(b"*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n$1\r\nx\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
    f.flush()
    assert f.readline() == b"+OK\r\n"
    assert f.readline() == b":%d\r\n" % (len(value) + 1)
    n = int(f.readline()[1:])
    assert f.read(n) == value + b"x" and f.readline() == b"\r\n"
print("600 values came back")
PY
    ;;
tcp)
    # A connection of a program to itself, and where its bytes go.
    as_user --init-groups uncopy run --tcp -- python3 - <<'PY' 2>&1
import os, socket, subprocess, time
listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname()); b, _ = listener.accept()
for i in range(500):
    time.sleep(0.002)
    for x, y in ((a, b), (b, a)):
        x.sendall(b"%09d" % i); assert y.recv(9) == b"%09d" % i
plain = {k: v for k, v in os.environ.items() if not k.startswith(("UNCOPY_", "LD_"))}
print(subprocess.run(["uncopy", "tcp", "flows"], env=plain, capture_output=True, text=True).stdout)
PY
    ;;
*) echo "no step $1" >&2; exit 2 ;;
esac
