"""Helpers for the scripts in programs/ that are written in Python.

Standard output is the result that is compared; what is for people goes to standard error.
"""

import atexit
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

RUN = os.environ.get("RUN", "").split()
CLIENT = os.environ.get("CLIENT", "").split()
PORT = int(os.environ.get("PORT_BASE", "21000"))
STARTED = []


def clients_under_uncopy():
    """Starts this script anew under CLIENT, so that the connections it makes itself are under uncopy too."""
    if CLIENT and "MATRIX_CLIENT" not in os.environ:
        os.environ["MATRIX_CLIENT"] = "1"
        os.execvp(CLIENT[0], [*CLIENT, sys.executable, *sys.argv])


def note(text):
    print(text, file=sys.stderr, flush=True)


def result(text):
    print(text, flush=True)


def fail(text):
    note(text)
    sys.exit(1)


def check(condition, text):
    if not condition:
        fail(text)


def data(seed, size):
    """The same bytes for the same seed."""
    return random.Random(f"{seed}").randbytes(size)


def digest(*pieces):
    h = hashlib.sha256()
    for piece in pieces:
        h.update(piece)
    return h.hexdigest()[:16]


def listens(port):
    """Whether a TCP socket listens on the port at 127.0.0.1, or at all addresses."""
    at = {f"{a}:{port:04X}" for a in ("0100007F", "0" * 8, "0" * 32, "0" * 16 + "FFFF00000100007F")}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            with open(table) as f:
                if any(word[1] in at and word[3] == "0A" for word in map(str.split, f)):
                    return True
    return False


def same(what, got, want):
    """Byte by byte; says where they differ."""
    if got == want:
        return
    if got is None:
        fail(f"{what}: nothing, not {len(want)} bytes")
    at = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
    there, must = bytes(got[at : at + 16]).hex(), bytes(want[at : at + 16]).hex()
    fail(f"{what}: {len(got)} bytes of {len(want)}, different from offset {at} on: {there or 'nothing'}, not {must or 'nothing'}")


def threads(count, work):
    """work(0), work(1), ... at the same time; the results in this order, or the first error."""
    results, errors = [None] * count, []

    def one(i):
        try:
            results[i] = work(i)
        except BaseException as e:  # told to the main thread
            errors.append(e)

    running = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return results


class Program:
    """A program in the background; its output in NAME.out and NAME.err."""

    def __init__(self, name, *command, under=RUN, **how):
        self.name = name
        with open(f"{name}.out", "ab") as out, open(f"{name}.err", "ab") as err:
            self.process = subprocess.Popen(
                [str(word) for word in (*under, *command)], stdin=subprocess.DEVNULL, stdout=out, stderr=err, **how
            )
        STARTED.append(self.process)
        self.pid = self.process.pid

    def said(self):
        lines = []
        for kind in ("out", "err"):
            with open(f"{self.name}.{kind}", errors="replace") as f:
                lines += [line.rstrip() for line in f if not line.startswith("uncopy: ")][-5:]
        return " | ".join(lines)

    def wait_port(self, port):
        """Until somebody listens on the port. It looks without connecting, so that the server sees nobody but the test."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                fail(f"{self.name} ended with {self.process.returncode}: {self.said()}")
            if listens(port):
                return self
            time.sleep(0.05)
        fail(f"{self.name} does not listen on port {port}: {self.said()}")

    def wait_said(self, text, times=1):
        """Until it has said text so often."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with open(f"{self.name}.err", errors="replace") as f:
                if f.read().count(text) >= times:
                    return
            self.alive()
            time.sleep(0.05)
        fail(f"{self.name} has not said {text!r} {times} times: {self.said()}")

    def alive(self):
        check(self.process.poll() is None, f"{self.name} ended with {self.process.returncode}: {self.said()}")

    def wait(self, status=0, timeout=120):
        try:
            got = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            fail(f"{self.name} has not ended after {timeout} s: {self.said()}")
        check(got == status, f"{self.name} ended with {got}, not {status}: {self.said()}")

    def stop(self, sig=signal.SIGTERM, status=0, timeout=120):
        self.alive()
        self.process.send_signal(sig)
        self.wait(status, timeout)


def as_user(name):
    """A prefix that runs a command as this user, who may use userfaultfd there: in a mount namespace of its own, so that
    nothing changes for anybody else. Without uncopy too, for what is compared."""
    script = """set -e
mount -t tmpfs -o mode=755 none /mnt
cp -a /dev/userfaultfd /mnt/
chmod 666 /mnt/userfaultfd
mount --bind /mnt/userfaultfd /dev/userfaultfd
umount /mnt
user=$1
shift
exec setpriv --reuid="$user" --regid="$user" --init-groups "$@" """
    return ["unshare", "--mount", "sh", "-c", script, "sh", name]


def call(*command, under=CLIENT, stdin=b"", status=0, timeout=300, **how):
    """A command with an end; returns what it printed. Its errors go where ours go."""
    done = subprocess.run(
        [str(word) for word in (*under, *command)], input=stdin, stdout=subprocess.PIPE, timeout=timeout, **how
    )
    check(done.returncode == status, f"{command[0]} ended with {done.returncode}: {done.stdout[-300:]!r}")
    return done.stdout


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended then too


@atexit.register
def end_all():
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.wait()
