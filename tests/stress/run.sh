#!/usr/bin/env bash
# Programs with many threads under uncopy, which verify every byte themselves: shared buffers while other threads fork and
# signals arrive, processes that end while faults are pending, threads and libraries that come and go.
#
#   tests/stress/run.sh [--seed N] [--seconds N] [--long] [--plain] [NAME...]    UNCOPY names the command
#
# One seed and 4 seconds for each line by default; --long: 10 seeds, 20 seconds. A failure prints the command that repeats it (what
# threads do is seeded, the order in which they do it is not: repeat it several times). --plain runs without uncopy: what fails there
# is the test's own fault.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
uncopy=$(realpath "${UNCOPY:-$repo/target/release/uncopy}")
seed=$((RANDOM + 1)) seconds=4 seeds=1 plain= names=" "
while [[ $# -gt 0 ]]; do
    case $1 in
    --seed) seed=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --long) seeds=10 seconds=20 ;;
    --plain) plain=1 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "$0: unknown option $1; see --help" >&2; exit 2 ;;
    *) names+="$1 " ;;
    esac
    shift
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/uncopy-stress.XXXXXX")
trap 'rm -rf "$dir"' EXIT
flags=(-O2 -Wall -Wextra -Werror -fno-builtin -fno-tree-loop-distribute-patterns -pthread)
"${CC:-cc}" "${flags[@]}" -shared -fPIC -o "$dir/libarrays.so" "$here/arrays.c"
for program in shared_buffers exit_while_faulting short_lived; do
    # Not position-independent: shared_buffers wants its static data at the lowest addresses.
    "${CC:-cc}" "${flags[@]}" -no-pie -o "$dir/$program" "$here/$program.c" -ldl
done

# name; options of `uncopy run`; a command in front (fork copies memory upwards: with the old layout buffers lie above the library);
# the program and its options
lines="
threads                  |                                       |            | shared_buffers --threads 8 --forkers 0
forks                    |                                       |            | shared_buffers --forkers 1
many forks               |                                       |            | shared_buffers --threads 8 --forkers 2
forks, bottom-up         |                                       | setarch -L | shared_buffers --forkers 2
signals                  |                                       |            | shared_buffers --forkers 0 --signals 1
signals and forks        |                                       |            | shared_buffers --forkers 1 --signals 1
tiny limits              | --extent-memory=2M --max-mappings=40  |            | shared_buffers --forkers 1
ends with faults pending |                                       |            | exit_while_faulting
threads come and go      |                                       |            | short_lived
"
passed=0 failed=0
for ((s = seed; s < seed + seeds; s++)); do
    while IFS='|' read -r name options before program; do
        [[ -n ${name// } ]] || continue
        read -r -a options <<<"$options"
        read -r -a before <<<"$before"
        read -r -a program <<<"$program"
        name=$(sed 's/ *$//' <<<"$name")
        [[ $names == " " || $names == *" ${program[0]} "* ]] || continue
        how=(--seed "$s" --seconds "$seconds" --rounds $((seconds * 8)))
        under=("$uncopy" run --threshold=8K --backoff=no "${options[@]}" --)
        [[ -z $plain ]] || under=()
        status=0
        timeout -s KILL $((seconds * 20 + 300)) "${before[@]}" "${under[@]}" "$dir/${program[0]}" "${program[@]:1}" "${how[@]}" \
            >"$dir/out" 2>"$dir/err" </dev/null || status=$?
        if [[ $status -eq 0 && $(<"$dir/out") == ok:* ]]; then
            passed=$((passed + 1))
            printf 'ok    %-26s %s\n' "$name" "$(<"$dir/out")"
        else
            failed=$((failed + 1))
            [[ $status -ne 137 ]] || echo "no end after $((seconds * 20 + 300)) s" >>"$dir/err"
            printf 'FAIL  %-26s status %s: %s\n' "$name" "$status" "$(head -n1 "$dir/err")"
            echo "      repeat: tests/stress/run.sh --seed $s --seconds $seconds ${program[0]}"
        fi
    done <<<"$lines"
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
