"""The memory of held files, which a service that was killed leaves in /dev/shm: for a recovery, or until the next boot."""

import contextlib
import os


def of(log):
    """Where the memory of the log in this directory is; see `Place::memory` of crates/log/service."""
    there = os.stat(log)
    return f"/dev/shm/uncopy-log-{os.geteuid()}-{there.st_dev:x}-{there.st_ino:x}"


def forget(log):
    """Removes it, before the log's directory is removed: nobody would find it afterwards."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(of(log))
