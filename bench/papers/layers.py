"""Where the processor time of a request goes, by layer: samples of `perf` (its software clock: no counters are needed) over the
servers of a benchmark, plain ones and those under uncopy apart, times what the benchmark says that a request costs.

What a sample belongs to is its innermost function of which the layer is known: in the kernel by its name, in the program by the file that it lies in."""

import collections
import contextlib
import json
import os
import re
import subprocess
import tempfile
import threading

from frame import BENCH, Unmeasured

RATE = 2999
# The first pattern that matches a kernel function's name says its layer.
KERNEL = [
    ("copies", r"copy_(to|from)_user|_copy_|rep_movs|copy_page|csum_and_copy"),
    ("TCP", r"tcp|sk_stream|__sk_|sk_wait|cubic|bbr|inet_csk"),
    ("IP", r"\bip_|^ip|^__ip|nf_|fib_|route|dst_"),
    ("device", r"dev_|loopback|napi|net_rx|net_tx|netif|qdisc|sch_|fq_|enqueue_to_backlog|process_backlog"),
    ("buffers", r"skb|kmem_cache|kmalloc|kfree|slab|page_frag|alloc_pages|free_unref"),
    ("sockets and epoll", r"sock|epoll|ep_|poll|inet_|fdget|__fget|vfs_|ksys_|__sys_|security|selinux|apparmor"),
    ("scheduler", r"sched|wake|futex|switch|finish_task|pick_next|enqueue_task|dequeue|idle|rcu|timer|clock|tick|hrtimer"),
]
ENTRY = "entry and others"
APPLICATION, LIBC, OURS = "application", "libc", "uncopy"


def layer(symbol, dso):
    """The layer of a sample's innermost function."""
    if dso.startswith("[kernel") or dso == "[guest.kernel.kallsyms]":
        return next((name for name, pattern in KERNEL if re.search(pattern, symbol)), ENTRY)
    if "libuncopy" in dso:
        return OURS
    if "libc.so" in dso or "libc-" in dso or "ld-linux" in dso:
        return LIBC
    return ENTRY if dso in ("[unknown]", "[vdso]") else APPLICATION


def shares(lines, pids):
    """Layer: its share of the samples of the processes `pids`. A sample is a line with the process, then a line "IP SYMBOL (DSO)" for
    each function, the innermost first, then an empty line. The first function of which the layer is known says the sample's: the
    software clock's samples lie at ends of sections without interrupts, whose functions belong to everybody."""
    counted = collections.Counter()
    ours, found = False, None
    for line in [*lines, ""]:
        frame = re.match(r"\s+[0-9a-f]+\s+(.*?)\s+\((.*)\)\s*$", line)
        if frame:
            if found in (None, ENTRY):
                found = layer(frame[1].split("+")[0], frame[2])
        elif line.strip():
            ours, found = int(line.split()[0]) in pids, None
        elif found:
            counted[found] += ours
            ours, found = False, None
    total = sum(counted.values())
    return {name: count / total for name, count in counted.most_common() if count} if total else {}


class Watcher:
    """Which processes with a word in their command line are plain, and which are under uncopy."""

    def __init__(self, word):
        self.word = word.encode()
        self.plain, self.uncopy = set(), set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while not self.over.wait(0.02):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    with open(f"/proc/{pid}/cmdline", "rb") as file:
                        if self.word not in file.read():
                            continue
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        under = b"libuncopy" in file.read()
                    (self.uncopy if under else self.plain).add(int(pid))


def of_servers(run, word, *words):
    """(rows of `uncopy-bench WORDS --json`, shares of the plain servers, shares of those under uncopy): `word` is what the servers'
    command lines contain and nobody else's."""
    with tempfile.TemporaryDirectory() as directory:
        samples = os.path.join(directory, "perf.data")
        watcher = Watcher(word)
        watcher.thread.start()
        try:
            said = run.command(["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", str(RATE), "-o", samples, "--", BENCH, *words, "--json"])
        except Unmeasured as e:
            raise Unmeasured(f"{e} (perf of package linux-perf, and kernel.perf_event_paranoid below 1, as root)") from e
        finally:
            watcher.over.set()
            watcher.thread.join()
        script = subprocess.run(
            ["perf", "script", "-i", samples, "-F", "pid,ip,sym,dso"], capture_output=True, text=True, check=False
        )
    lines = script.stdout.splitlines()
    found = shares(lines, watcher.plain), shares(lines, watcher.uncopy)
    if not all(found):
        raise Unmeasured(f"perf saw no sample of the servers ({script.stderr.strip()[:200]})")
    return json.loads(said)["rows"], *found
