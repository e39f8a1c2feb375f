#!/usr/bin/env python3
"""Adds to a seccomp profile what uncopy needs where the container does not get /dev/userfaultfd.

    profile.py [DEFAULT.json] >uncopy.json      DEFAULT: /usr/share/containers/seccomp.json, or docker's own default.json
    docker run --security-opt seccomp=uncopy.json --cap-add SYS_PTRACE ...

The profile stays as it is but for one call, userfaultfd: all else that uncopy calls is in the defaults of docker and podman.
(Without the capability the kernel wants vm.unprivileged_userfaultfd=1 on the host.) Of the two ways the device is the
narrower one, and needs no profile of its own: see README.md.
"""
import json
import sys

NEEDED = ["userfaultfd"]


def extended(profile):
    """The profile, in which what is needed is refused nowhere and allowed once."""
    for rule in profile["syscalls"]:
        if rule["action"] != "SCMP_ACT_ALLOW":
            rule["names"] = [name for name in rule["names"] if name not in NEEDED]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    profile["syscalls"].append({"names": NEEDED, "action": "SCMP_ACT_ALLOW", "args": [], "comment": "uncopy"})
    return profile


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    path = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/containers/seccomp.json"
    try:
        with open(path) as f:
            given = json.load(f)
        print(json.dumps(extended(given), indent=1))
    except (OSError, ValueError, KeyError) as problem:
        sys.exit(f"{path}: no seccomp profile of docker's or podman's ({problem})")
