"""A network namespace behind a veth, in which a load's sockets are made: to the server they are another host's, as far as one machine has
one. Its programs and addresses stay as they are: they listen on 127.0.0.1, which the namespace has not (its loopback device is down) and
sends over the veth.

No other host is that: no interrupts, no card's segmentation, and who sends does the receiver's softirq, as over loopback."""

import contextlib
import ctypes
import os
import subprocess

from machine import default_control

NEWNET = 0x40000000
HERE, THERE = "10.78.8.1", "10.78.8.2"
LIBC = ctypes.CDLL(None, use_errno=True)


def enter(namespace):
    if LIBC.setns(namespace, NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Apart:
    """Ends when it is closed: nobody is in the namespace but sockets."""

    def __init__(self):
        self.own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        if LIBC.unshare(NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        self.far = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        enter(self.own)
        both = "echo 1 >/proc/sys/net/ipv4/conf/{0}/route_localnet"
        self.run(f"ip link add far type veth peer name near netns {os.getpid()}", self.far)
        self.run(f"ip addr add {HERE}/30 dev near && ip link set near up && " + both.format("near"), self.own)
        self.run(
            f"ip addr add {THERE}/30 dev far && ip link set far up && {both.format('far')} && ip route add 127.0.0.1/32 via {HERE} dev far"
            f" && echo {default_control()} >/proc/sys/net/ipv4/tcp_congestion_control",
            self.far,
        )

    @staticmethod
    def run(command, namespace):
        subprocess.run(["sh", "-c", command], check=True, preexec_fn=lambda: enter(namespace))

    @contextlib.contextmanager
    def inside(self):
        """Sockets that are made meanwhile are of the namespace, whoever uses them later."""
        enter(self.far)
        try:
            yield
        finally:
            enter(self.own)

    def close(self):
        self.run("ip link del near", self.own)
        os.close(self.far)
        os.close(self.own)
