"""A random script of calls on a file that grows, and what each of them said: the same with a log as without.

    calls.py SEED DIRECTORY OPERATIONS
"""

import fcntl
import hashlib
import mmap
import os
import random
import subprocess
import sys

WEIGHTS = {
    "write": 30, "writev": 6, "fsync": 10, "fdatasync": 25, "fstat": 5, "seekcur": 3, "seekend": 3, "seekset": 0.7,
    "pwrite": 0.6, "pwritev": 0.4, "pread": 0.5, "truncate": 0.4, "truncate-path": 0.3, "dup": 0.8, "dup2": 0.5, "close": 0.8,
    "fork": 0.4, "fork-write": 0.3, "exec-write": 0.3, "spawn": 0.3, "rename": 0.6, "link": 0.4, "unlink": 0.3, "open": 0.4,
    "open-truncate": 0.2, "fallocate": 0.3, "sendfile": 0.3, "copy-range-out": 0.3, "copy-range-in": 0.3, "map": 0.3,
    "map-write": 0.2, "flags": 0.3, "sync": 0.05, "sync-length": 1, "cp": 0.2, "copytruncate": 0.2, "dsync": 0.4, "wait": 0.1,
    "fork-length": 0.3, "utime": 0.3, "chmod": 0.3, "open-now": 0.3,
}  # fmt: skip


class Script:
    def __init__(self, seed, directory):
        self.chance = random.Random(seed)
        self.directory = directory
        self.names = [os.path.join(directory, name) for name in "fg"]
        self.other = os.path.join(directory, "other")
        for name in [*self.names, self.other]:
            if os.path.exists(name):
                os.unlink(name)
        self.name = self.names[0]
        self.flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if self.chance.random() < 0.5 else 0)
        self.fds = [os.open(self.name, self.flags, 0o600)]

    def data(self):
        n = self.chance.choice([1, 10, 100, 4096, 4097, 10000, 65536, 200000])
        if self.chance.random() < 0.03:
            n = 2500000
        first = self.chance.randrange(256)
        run = bytes((first + i) & 255 for i in range(251))
        return (run * (n // 251 + 1))[:n]

    def begin_anew(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = [os.open(self.name, self.flags, 0o600)]
        os.lseek(self.fds[0], 0, os.SEEK_END)

    def perform(self, operation, fd):
        chance = self.chance
        match operation:
            case "write":
                return os.write(fd, self.data())
            case "writev":
                return os.writev(fd, [self.data(), b"", self.data()])
            case "fsync":
                return os.fsync(fd)
            case "fdatasync":
                return os.fdatasync(fd)
            case "fstat":
                return os.fstat(fd).st_size
            case "sync-length":
                os.fsync(fd)
                return os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size, os.stat(fd).st_size
            case "seekcur":
                return os.lseek(fd, 0, os.SEEK_CUR)
            case "seekend":
                return os.lseek(fd, 0, os.SEEK_END)
            case "seekset":
                to = os.lseek(fd, chance.randrange(100000), os.SEEK_SET)
                return to, chance.random() < 0.7 and os.lseek(fd, 0, os.SEEK_END)
            case "pwrite" | "pwritev" | "dsync":
                at = chance.randrange(300000) if chance.random() < 0.5 else os.fstat(fd).st_size
                if operation == "pwrite":
                    return os.pwrite(fd, self.data(), at)
                flags = os.RWF_DSYNC if operation == "dsync" else 0
                return os.pwritev(fd, [self.data(), self.data()], at, flags)
            case "pread":
                return said(os.pread(fd, 5000, chance.randrange(100000))), os.lseek(fd, 0, os.SEEK_CUR)
            case "truncate":
                os.ftruncate(fd, chance.randrange(200000))
                return os.lseek(fd, 0, os.SEEK_END)
            case "truncate-path":
                os.truncate(self.name, chance.randrange(200000))
                return os.lseek(fd, 0, os.SEEK_END), os.fstat(fd).st_size
            case "dup":
                if len(self.fds) < 4:
                    self.fds.append(os.dup(fd))
                return len(self.fds)
            case "dup2":
                if len(self.fds) > 1:
                    os.dup2(self.fds[0], self.fds[-1])
            case "close":
                if len(self.fds) > 1:
                    self.fds.remove(fd)
                    os.close(fd)
                elif chance.random() < 0.3:
                    self.begin_anew()
                return len(self.fds)
            case "fork" | "fork-write":
                data = self.data()
                pid = os.fork()
                if pid == 0:
                    if operation == "fork-write":
                        os.write(fd, data)
                        os.fdatasync(fd)
                    os._exit(3)
                return os.waitpid(pid, 0)[1]
            case "fork-length":
                os.write(fd, self.data())
                there, here = os.pipe()
                pid = os.fork()
                if pid == 0:
                    lengths = [os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_CUR)]
                    os.write(here, repr(lengths if chance.random() < 0.5 else lengths[::-1]).encode())
                    os._exit(0)
                os.close(here)
                told = os.read(there, 100)
                os.close(there)
                return os.waitpid(pid, 0)[1], told
            case "utime":
                os.write(fd, self.data())
                os.utime(fd, (5, 5))
                os.fsync(fd)
                return os.fstat(fd).st_mtime
            case "chmod":
                os.write(fd, self.data())
                os.fchmod(fd, chance.choice([0o600, 0o640]))
                os.fsync(fd)
                return os.fstat(fd).st_mode
            case "open-now":
                os.write(fd, self.data())
                other = os.open(self.name, os.O_RDONLY | os.O_NONBLOCK)
                length = os.fstat(other).st_size
                os.close(other)
                return length
            case "exec-write":
                words = ["/bin/sh", "-c", f"echo from outside >&{fd}"]
                return subprocess.run(words, pass_fds=[fd], check=False).returncode
            case "spawn":
                return os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)[1]
            case "rename":
                to = self.names[self.name == self.names[0]]
                os.rename(self.name, to)
                self.name = to
            case "link":
                to = self.names[self.name == self.names[0]]
                os.link(self.name, to)
                links = os.fstat(fd).st_nlink
                os.unlink(self.name)
                self.name = to
                return links, os.fstat(fd).st_nlink
            case "unlink":
                os.unlink(self.name)
                more = os.write(fd, self.data())
                os.fdatasync(fd)
                size = os.fstat(fd).st_size
                self.begin_anew()
                return more, size
            case "open":
                with open(self.name, "rb") as file:
                    return said(file.read())
            case "open-truncate":
                with open(self.name, "wb") as file:
                    file.write(self.data())
                return os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_END)
            case "fallocate":
                return os.posix_fallocate(fd, 0, chance.randrange(1, 100000)), os.fstat(fd).st_size
            case "sendfile" | "copy-range-out":
                with open(self.other, "w+b", buffering=0) as file:
                    move = os.sendfile if operation == "sendfile" else self.range_out
                    return move(file.fileno(), fd, 0, 10000), said(os.pread(file.fileno(), 10000, 0))
            case "copy-range-in":
                with open(self.other, "w+b", buffering=0) as file:
                    file.write(self.data())
                    at = os.fstat(fd).st_size
                    return os.copy_file_range(file.fileno(), fd, 5000, 0, at), os.fstat(fd).st_size
            case "map" | "map-write":
                size = os.fstat(fd).st_size
                if size:
                    access = mmap.ACCESS_READ if operation == "map" else mmap.ACCESS_WRITE
                    with mmap.mmap(fd, size, access=access) as mapped:
                        if operation == "map-write":
                            mapped[size // 2] = 7
                        return said(mapped[:])
            case "flags":
                flags = fcntl.fcntl(fd, fcntl.F_GETFL)
                fcntl.fcntl(fd, fcntl.F_SETFL, flags ^ os.O_APPEND)
                if flags & os.O_APPEND:
                    os.lseek(fd, 0, os.SEEK_END)
                return flags
            case "sync":
                os.sync()
            case "cp":
                subprocess.run(["cp", self.name, self.other], check=True)
                with open(self.other, "rb") as file:
                    return said(file.read())
            case "copytruncate":
                subprocess.run(["cp", self.name, self.other], check=True)
                subprocess.run(["truncate", "-s", "0", self.name], check=True)
                return os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_CUR)
            case "wait":
                subprocess.run(["sleep", "1.1"], check=True)
        return None

    @staticmethod
    def range_out(to, fd, at, n):
        return os.copy_file_range(fd, to, n, at, 0)


def said(data):
    return len(data), hashlib.md5(data).hexdigest()[:8]


def main():
    seed, directory, operations = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    os.makedirs(directory, exist_ok=True)
    script = Script(seed, directory)
    for _ in range(operations):
        fd = script.chance.choice(script.fds)
        operation = script.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        try:
            print(operation, script.perform(operation, fd))
        except OSError as why:
            print(operation, "error", why.errno)
    for fd in script.fds:
        os.close(fd)
    with open(script.name, "rb") as file:
        print("end", said(file.read()))


if __name__ == "__main__":
    main()
