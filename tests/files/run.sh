#!/usr/bin/env bash
# Files that are read again and again, and changed by others: the bytes must be those of the read, and the program must print what it
# prints plainly. Also with the calls that this needs made to fail.
#
#   tests/files/run.sh [--rounds N] [--seed N]     UNCOPY names the command (default target/release/uncopy)
#
# 200 rounds of changes by default; the figure that is claimed is of 1,000. A failure prints the seed.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
uncopy=$(realpath "${UNCOPY:-$repo/target/release/uncopy}")
rounds=200 seed=$RANDOM
while [[ $# -gt 0 ]]; do
    case $1 in
    --rounds) rounds=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done
# On a file system that knows leases, also where /tmp is none.
dir=$(mktemp -d "${TMPDIR:-/tmp}/uncopy-files.XXXXXX")
trap 'rm -rf "$dir"' EXIT
"${CC:-cc}" -O2 -pthread -fno-builtin -Wno-stringop-overflow -o "$dir/files" "$here/files.c" -ldl
# (Touches of the program would make its reads rest.)
keep=("$uncopy" run --verbose=counters --file-memory=64M --backoff=no --)

fail() {
    echo "files: $* (seed $seed)" >&2
    tail -n 5 "$dir/plain.out" "$dir/kept.out" "$dir/kept.err" >&2 || true
    exit 1
}
run() { # how what arguments...: in a directory of its own
    local how=$1 what=$2
    shift 2
    rm -rf "$dir/data" && mkdir "$dir/data"
    if [[ $how == plain ]]; then
        timeout 120 "$dir/files" "$what" "$dir/data" "$@" >"$dir/plain.out" 2>"$dir/plain.err" || fail "$what fails plainly"
    else
        timeout 120 "${keep[@]}" "$dir/files" "$what" "$dir/data" "$@" >"$dir/kept.out" 2>"$dir/kept.err" || fail "$what ${UNCOPY_INJECT-} fails"
        cmp -s "$dir/plain.out" "$dir/kept.out" || { diff "$dir/plain.out" "$dir/kept.out" >&2 || true; fail "$what ${UNCOPY_INJECT-} prints something else"; }
    fi
}
count() { awk -F= -v name="uncopy: $1" '$1 == name && $2 > most { most = $2 } END { print most + 0 }' "$dir/kept.err"; }

for what in edges positions locks forks process; do
    run plain $what
    run kept $what
    [[ $(count kept_reads) -gt 3 && $(count leases) -gt 0 ]] || fail "$what: nothing was kept"
    for rule in reopen lease lease:EAGAIN:1/2 lease_held:1/5 hear:1/2 refill refill:1/2 seek:1/3 deliver deliver:short:1/2 deliver:1/3 fstat:1/3 \
        extent:1/3 mmap:1/5 munmap unregister register:1/3 unregister:1/3 madvise:1/2 thread:1/2 close_range:1/2 all:1/30; do
        UNCOPY_INJECT="$rule,seed=$seed" run kept $what
    done
    echo "files: $what"
done
run plain changes "$rounds" "$seed"
sed 's/^/files: plainly, /' "$dir/plain.err"
run kept changes "$rounds" "$seed"
kept=$(count leases) broken=$(count lease_breaks)
[[ $kept -gt $((rounds / 2)) && $broken -gt $((rounds / 3)) ]] || fail "of $rounds files only $kept were kept, $broken leases broken"
grep '^who' "$dir/kept.err" | sed 's/^/files: under uncopy, /'
echo "files: $rounds changes (seed $seed): $kept leases, $broken broken, $(count kept_reads) reads from memory; answered within $(($(count lease_answer_ns_max) / 1000)) us"
run plain changes $((rounds / 8)) "$seed"
for rule in reopen:1/3 lease_held:1/9 refill:1/3 deliver:1/3 fstat:1/9 hear:1/2 close_range:1/2 all:1/40; do
    UNCOPY_INJECT="$rule,seed=$seed" run kept changes $((rounds / 8)) "$seed"
done
echo "files: every byte right"
