# Helpers for the scripts in programs/ that are written in bash. Source it: . "$(dirname "$0")/../lib.sh"
# What these print on standard error is for people; standard output is the result that is compared.
set -euo pipefail
started=()

fail() { echo "$*" >&2; exit 1; }

# data SEED BYTES: the same bytes for the same seed, on standard output
data() {
    python3 -c 'import random, sys
r, left = random.Random(int(sys.argv[1])), int(sys.argv[2])
while left:
    n = min(left, 1 << 20)
    sys.stdout.buffer.write(r.randbytes(n))
    left -= n' "$1" "$2"
}

digest() { sha256sum -- "$@" | awk '{ print substr($1, 1, 16) }'; }

# same WHAT A B: two files, byte by byte
same() { cmp -- "$2" "$3" >&2 || fail "$1: $2 and $3 differ"; }

# start NAME COMMAND...: in the background, its output in NAME.out and NAME.err; its pid in $pid
start() {
    local name=$1
    shift
    "$@" </dev/null >>"$name.out" 2>>"$name.err" &
    pid=$!
    started+=("$pid")
}

# stop PID [SIGNAL]: ends it and waits; its status is this function's
stop() {
    kill -"${2:-TERM}" "$1" 2>/dev/null || true
    local status=0
    wait "$1" || status=$?
    return "$status"
}

# wait_port PORT...: until somebody listens on each of them at 127.0.0.1 or all addresses. It looks without connecting: that would use up a server that serves
# once, and rsync's daemon logs an error where its visitor closes without having read the greeting (Linux answers with a reset).
wait_port() {
    local port hex i at='(0100007F|0{8}|0{32}|0{16}FFFF00000100007F)'
    for port; do
        printf -v hex '%04X' "$port"
        for ((i = 0; i < 1200; i++)); do
            if grep -qsE " $at:$hex 0+:0000 0A " /proc/net/tcp /proc/net/tcp6; then continue 2; fi
            sleep 0.05
        done
        fail "nobody listens on port $port after a minute"
    done
}

stop_all() {
    local p
    for p in "${started[@]}"; do kill -KILL "$p" 2>/dev/null || true; done
}
trap stop_all EXIT
