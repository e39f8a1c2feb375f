#!/usr/bin/env python3
"""What `uncopy try`, `uncopy profile` and a measurement of our own say of six kinds of programs that no other document names, side by
side: a Django upload service behind gunicorn, FastAPI behind uvicorn, a gateway in C++, Node's streams, pyarrow, a pipeline.

    bench/apps/tried.py                     all six, some quarter of an hour
    bench/apps/tried.py --only pyarrow      one of them
    bench/apps/tried.py --json

Own measurement: servers as harness.py does it (processes side by side, warmed, in turns; fresh processes some times, because two of one
program may differ by a quarter); commands whole, in turns, by what wait4 says of their processor time. Ratios are to the mean of both plain sides. `agrees`: the side that `try` names is not worse than the best one measured by more than a tenth (or
what two plain sides differ by), and a gain or a loss is one in both."""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from harness import HERE, ROOT, STATE, VENV, Server
from loads import Download, Echo, Failure, Upload

harness.PYPI |= {"django": "django", "gunicorn": "gunicorn", "fastapi": "fastapi", "pyarrow": "pyarrow"}
SIZE = 1 << 20
CONNECTIONS = 4
# Alike: a tenth, or what two plain sides differ by.
ALIKE = 0.1


def django(port, directory):
    del directory
    words = ["--bind", f"127.0.0.1:{port}", "--workers", "1", "--threads", "4", "--keep-alive", "60", "--chdir", os.path.join(HERE, "servers")]
    return [os.path.join(VENV, "bin", "gunicorn"), *words, "django_upload:application"], None


def gateway(port, directory):
    del directory
    program = os.path.join(STATE, "gateway")
    source = os.path.join(HERE, "servers", "gateway.cc")
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        os.makedirs(STATE, exist_ok=True)
        subprocess.run(["c++", "-O2", "-o", program, source, "-lpthread"], check=True)
    return [program, str(port)], None


def node(port, directory):
    del directory
    return ["node", os.path.join(HERE, "servers", "node_stream.js"), str(port)], None


SERVERS = {
    "Django behind gunicorn": Server("uploads of 1 MB", django, Upload, ("django", "gunicorn")),
    "FastAPI behind uvicorn": Server("answers of 1 MB", harness.python_server("fastapi_file.py"), Download, ("fastapi", "uvicorn", "h11")),
    "C++ gateway": Server("messages of 1 MB, echoed", gateway, Echo, ()),
    "Node streams": Server("uploads of 1 MB", node, Upload, ("node",)),
}


def pyarrow(directory):
    file = os.path.join(directory, "columns.parquet")
    subprocess.run([harness.PYTHON, os.path.join(HERE, "servers", "columns.py"), file, "1"], check=True, stdout=subprocess.DEVNULL)
    return [harness.PYTHON, os.path.join(HERE, "servers", "columns.py"), file, "120"]


def pipeline(directory):
    file = os.path.join(directory, "data")
    with open(file, "wb") as out:
        for seed in range(64):
            out.write(os.urandom(1 << 20) if seed % 2 else bytes([seed]) * (1 << 20))
    return ["sh", "-c", f"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do cat {file}; done | tee {directory}/copy | md5sum"]


COMMANDS = {"pyarrow": (pyarrow, ("pyarrow",)), "a pipeline": (pipeline, ())}

# The names that `try` gives its sides, and what they are here.
SIDES = {"plain": [], "kept": [], "placed": ["--elide=no", "--lend=no", "--copies=libc"], "unelided": ["--elide=no", "--lend=no"], "uncopy": []}


NAMES = {
    "plain": "plain",
    "memory kept": "kept",
    "uncopy's allocator alone": "placed",
    "uncopy without elision": "unelided",
    "uncopy": "uncopy",
}


def spent(command, side):
    """Processor seconds of a command on a side, with its children."""
    env = dict(os.environ)
    if side == "kept":
        env["GLIBC_TUNABLES"] = harness.KEEP
    if side in ("placed", "unelided", "uncopy"):
        command = [harness.OPTIONS.uncopy, "run", *SIDES[side], "--", *command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Failure(f"{command[0]} ended with status {done.returncode} ({side})")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def own_of_command(command, rounds):
    """Side: plain's processor time over the side's. (The first round warms up.)"""
    order = ["plain", "kept", "placed", "unelided", "uncopy", "again"]
    rounds_of = []
    for i in range(rounds + 1):
        turn = {side: spent(command, side) for side in order[i % len(order) :] + order[: i % len(order)]}
        if i:
            rounds_of.append(turn)
    return to_both({side: statistics.median(turn["plain"] / turn[side] for turn in rounds_of) for side in order})


def own_of_server(name, server):
    rows = harness.measure(name, server, SIZE, harness.OPTIONS.share)
    sides = {side: of["cpu_ratio"] for side, of in rows[0]["sides"].items()}
    sides["unelided"] = sides.pop("no_elision")
    return to_both(sides)


def to_both(sides):
    """Gains over both plain sides together; of `again` what it differs by from the other."""
    return {side: round(gain if side == "again" else gain / sides["again"] ** 0.5, 3) for side, gain in sides.items()}


def tried(words, command):
    """What `try` says: its JSON, and seconds until its first line and its end."""
    whole = [harness.OPTIONS.uncopy, "try", *words, "--time-cap", str(harness.OPTIONS.time_cap), "--json", "--", *command]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        with subprocess.Popen(whole, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True) as child:
            first = None
            for _ in child.stderr:
                first = first or time.monotonic() - began
        out.seek(0)
        text = out.read()
    if child.returncode:
        raise Failure(f"uncopy try ended with status {child.returncode}: {text[-300:]}")
    return json.loads(text), first, time.monotonic() - began


def profiled(words, command, load):
    """The last word of `profile` about the program: what uncopy would save."""
    with tempfile.NamedTemporaryFile("r") as report:
        child = subprocess.Popen([harness.OPTIONS.uncopy, "profile", "-o", report.name, *words, "--", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if load:
            load()
            child.terminate()
        said = child.communicate(timeout=300)[1]
        return report.read() or said


def summary(said):
    """Of a profile, the lines that say what uncopy would save."""
    lines = [line.strip() for line in said.splitlines()]
    return " / ".join(line for line in lines if "would" in line or "worth" in line or "save" in line)[:400]


def load_command(kind, port, requests):
    """A shell command that loads a server with a fixed amount of work."""
    code = f"import sys; sys.path.insert(0, {HERE!r}); import tried; tried.load({kind!r}, {port}, {requests})"
    return f"taskset -c {harness.OPTIONS.load_core} {sys.executable} -c \"{code}\""


def load(kind, port, requests):
    """So many requests over `CONNECTIONS` connections."""
    of = {"Upload": Upload, "Download": Download, "Echo": Echo}[kind](port, SIZE)
    of.connections(CONNECTIONS)
    done = 0
    while done < requests:
        done += len(of.run(0.05).latencies)
    of.close()


def server_of(name, server, directory):
    port = harness.free_port()
    command, _ = server.start(port, directory)
    kind = server.load.__name__
    words = ["--ready", str(port), "--load", load_command(kind, port, 600)]
    found, first, took = tried(words, ["taskset", "-c", str(harness.OPTIONS.server_core), *command])

    def drive():
        harness.connect(port, 30).close()
        load(kind, port, 300)

    said = profiled([], command, drive)
    return found, first, took, said, own_of_server(name, server)


def command_of(name, directory):
    command = COMMANDS[name][0](directory)
    found, first, took = tried([], command)
    return found, first, took, profiled([], command, None), own_of_command(command, harness.OPTIONS.command_rounds)


def gains(found):
    """Side: its gain in processor time, as `try` measured it."""
    return {NAMES[side["name"]]: side["gain"] for side in found["sides"] if side["name"] in NAMES}


def rounds(found):
    """How many rounds there were: of all sides, and of those that were in most."""
    most = max(len(side["cpu_s"]) for side in found["sides"])
    return str(most) if most == found["counted_rounds"] else f"{found['counted_rounds']} to {most}"


def agrees(found, own):
    """Whether what `try` recommends is as good, by our own measurement, as the best side, and pays or does not as it says."""
    noise = max(ALIKE, abs(own["again"] - 1))
    best = max(own[side] for side in SIDES)
    named = own.get(NAMES.get(found["recommended"], found["recommended"]), 1.0)
    return named >= best * (1 - noise) or best <= 1 + noise


def text(row):
    of = row["try"]
    sides = [side for side in SIDES if side != "plain"]
    lines = [
        f"{row['name']} ({row['what']})",
        f"  try      recommends {of['recommended']}{' or ' + of['or'] if of['or'] else ''}"
        f" after {rounds(of)} rounds; "
        + ", ".join(f"{side} {gains(of).get(side, 0):.2f}" for side in sides)
        + f"; first line after {row['first_s']:.0f} s, all of it {row['took_s']:.0f} s",
        f"           {of['advice']}",
        f"  profile  {row['profile']}",
        "  measured " + ", ".join(f"{side} {row['own'][side]:.2f}" for side in sides) + f"; plain again {row['own']['again']:.2f}",
        f"  {'agrees' if row['agrees'] else 'DISAGREES'}",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where whole profiles are kept")
    parser.add_argument("--budget", type=float, default=80, metavar="SECONDS", help="for the own measurement of a server (80)")
    parser.add_argument("--time-cap", type=float, default=300, metavar="SECONDS", help="for the rounds of `try` (300; its own default is 600)")
    args = parser.parse_args()
    sys.argv[1:] = ["--connections", str(CONNECTIONS)]
    harness.OPTIONS = harness.arguments(__doc__)
    harness.OPTIONS.connections = [CONNECTIONS]
    harness.OPTIONS.control = harness.default_control()
    harness.OPTIONS.share, harness.OPTIONS.command_rounds = args.budget, 4
    harness.OPTIONS.time_cap = args.time_cap
    # (Rounds of fresh processes rather than many turns of the same.)
    harness.TURNS = (5, 12)
    chosen = [name for name in [*SERVERS, *COMMANDS] if any(part.lower() in name.lower() for part in args.only)]
    status = 0
    for name in chosen:
        server = SERVERS.get(name)
        needs = server.needs if server else COMMANDS[name][1]
        why = harness.missing(server or Server("", None, None, needs))
        if why:
            print(f"{name}: not tried: {why}", file=sys.stderr)
            status = 1
            continue
        with tempfile.TemporaryDirectory(prefix="uncopy-tried-") as directory:
            found, first, took, said, own = server_of(name, server, directory) if server else command_of(name, directory)
        row = {"name": name, "what": server.words if server else "a command", "try": found, "first_s": first, "took_s": took}
        row |= {"profile": summary(said), "own": own, "agrees": agrees(found, own)}
        print(json.dumps(row) if args.json else text(row), flush=True)
        if args.keep:
            os.makedirs(args.keep, exist_ok=True)
            with open(os.path.join(args.keep, name.replace(" ", "-") + ".txt"), "w", encoding="utf-8") as out:
                out.write(said)
    return status


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        try:
            sys.exit(main())
        except Failure as failure:
            sys.exit(f"tried.py: {failure}")
