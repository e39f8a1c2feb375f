#!/usr/bin/env bash
# An idle program under uncopy uses no CPU, also after its monitor thread has come to life; and children, exit statuses and
# standard streams are what they are without it.
#
#   tests/idle.sh        UNCOPY names the command (default target/release/uncopy)
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
uncopy=${UNCOPY:-$repo/target/release/uncopy}
passed=0 failed=0

check() { # what, found, expected
    if [[ $2 == "$3" ]]; then
        passed=$((passed + 1))
        echo "ok    $1"
    else
        failed=$((failed + 1))
        echo "FAIL  $1: '$2', not '$3'"
    fi
}

# Reads and copies 12 MB (so that the monitor starts), then sleeps; prints its threads and whether it used CPU asleep.
idle='
import ctypes, os, resource, socket, time
libc = ctypes.CDLL(None, use_errno=True)
a, b = socket.socketpair()
size = 128 << 10
a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)
buf, copy = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
for _ in range(96):
    a.sendall(bytes(size))
    b.recv_into(buf, size, socket.MSG_WAITALL)
    ctypes.memmove(copy, buf, size)
used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
before = used()
time.sleep(2)
print(len(os.listdir("/proc/self/task")), "threads,", "idle" if used() - before < 0.05 else used() - before)
'
check "an idle program uses no CPU" "$("$uncopy" run -- python3 -c "$idle")" "2 threads, idle"
status=0
"$uncopy" run -- sh -c 'exit 7' || status=$?
check "the exit status is passed on" "$status" 7
check "pipes and children work" "$("$uncopy" run -- sh -c 'seq 100000 | sort -rn | head -n1')" 100000
check "children have the library too" \
    "$(env -u UNCOPY_LIBRARY "$uncopy" run -- env -i sh -c 'grep -c libuncopy.so /proc/self/maps >/dev/null && echo yes')" yes
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
