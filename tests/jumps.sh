#!/usr/bin/env bash
# Calls that come with every request are handed on to libc with a jump, not from a frame of ours (docs/inside/shims.md): the compiler decides that, and
# nothing else would notice.
#
#   tests/jumps.sh       LIBRARY names the library (default target/release/libuncopy.so), built with optimization
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
library=${LIBRARY:-$repo/target/release/libuncopy.so}
failed=0
code=$(objdump -d --no-show-raw-insn "$library")
# Functions by their own names, or as Rust names them in a module of hooks/.
for name in read_for pread_for recv_for recvfrom_for write_from writev_from send_from sendto_from sendmsg_from; do
    body=$(awk -v own="<$name>:" -v rust="hooks[0-9a-z]+${#name}${name}17h[0-9a-f]+E>:" '/^[0-9a-f]+ </ { on = ($2 == own || $2 ~ rust) } on' <<<"$code")
    if [[ -z $body ]]; then
        why="is not in the library"
    elif grep -qE 'call +\*%r' <<<"$body"; then
        why="calls libc's function from a frame"
    elif ! grep -qE 'jmp +\*%r' <<<"$body"; then
        why="does not jump to libc's function"
    else
        echo "ok    $name"
        continue
    fi
    echo "FAIL  $name $why"
    failed=1
done
# Their entries are in one page (hooks/entries.rs).
pages=$(nm "$library" | awk '/ uncopy_exit_/ { print substr($1, 1, 13) }' | sort | uniq -c)
if [[ $(wc -l <<<"$pages") -eq 1 ]]; then
    echo "ok    entries are in one page"
else
    echo "FAIL  entries are in several pages:" $pages
    failed=1
fi
# Those of calls that only files of a log concern jump at once.
for name in open openat fsync fdatasync lseek fstat ftruncate rename; do
    first=$(awk -v own="<$name>:" '/^[0-9a-f]+ </ { on = ($2 == own); next } on { print $2; exit }' <<<"$code")
    if [[ $first == jmp ]]; then
        echo "ok    $name jumps at once"
    else
        echo "FAIL  $name begins with ${first:-nothing}"
        failed=1
    fi
done
exit $failed
