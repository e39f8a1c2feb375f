#!/usr/bin/env bash
# The consistency program plainly and under uncopy, in all combinations: both must pass their own checks and print the
# same. UNCOPY names the command (default target/release/uncopy); one line per combination, exit 1 when any failed.
#
#   tests/consistency/run.sh [--rounds N] [--seed N] [--keep]     other options go to the program as they are
#   ALIGN="page odd" THREADS=1 SIZES=65536 WAYS=eager tests/consistency/run.sh     fewer combinations
#
# --keep keeps the logs of combinations that failed (their directory is printed).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
uncopy=${UNCOPY:-$repo/target/release/uncopy}
limit=${TIMEOUT:-120}
keep=
args=()
for arg; do
    case $arg in
    --keep) keep=1 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) args+=("$arg") ;;
    esac
done

if ! [[ -x $uncopy && ! -d $uncopy ]]; then
    echo "$0: no uncopy at $uncopy: build it with 'cargo build --release', or name it in UNCOPY" >&2
    exit 2
fi
uncopy=$(realpath "$uncopy")

dir=$(mktemp -d "${TMPDIR:-/tmp}/uncopy-consistency.XXXXXX")
failed=0 passed=0
finish() { [[ $keep && $failed -gt 0 ]] && echo "logs: $dir" || rm -rf "$dir"; }
trap finish EXIT

"${CC:-cc}" -O2 -pthread -fno-builtin -fno-builtin-memcpy -fno-builtin-memmove \
    -o "$dir/consistency" "$here/consistency.c"

# once FILE COMMAND...: runs it in bounds; FILE gets the log, FILE.err the rest. Echoes what went wrong, if anything.
once() {
    local file=$1 status=0
    shift
    timeout -k 5 "$limit" "$@" "${args[@]}" >"$file" 2>"$file.err" </dev/null || status=$?
    case $status in
    0) ;;
    124 | 137) echo "no end after $limit s" ;;
    1) grep -a -m1 WRONG "$file" || echo "exit status 1" ;;
    *) echo "exit status $status: $(grep -av '^uncopy: ' "$file.err" | tail -n1 | tr -d '\0')" ;;
    esac
}

# Eliding begins with the first copy, not when it has shown a gain.
export UNCOPY_CONTROLLER=accounts-alone
# Two ways: as a user has it, and eager: no back-off (it would end most elision after the first round, because this
# program looks at everything) and the smallest threshold.
declare -A ways=([default]="" [eager]="--backoff=no --threshold=8K")

for align in ${ALIGN:-page odd congruent}; do
    for threads in ${THREADS:-1 4}; do
        for size in ${SIZES:-65536 524288 1000003}; do
            file=$dir/$align-$threads-$size
            command=("$dir/consistency" --align "$align" --threads "$threads" --size "$size")
            plainly=$(once "$file.plain" "${command[@]}")
            [[ -z $plainly ]] || plainly="plainly: $plainly"
            for way in ${WAYS:-default eager}; do
                what="align $align, threads $threads, size $size, $way"
                log=$file.$way
                elided='' problem=$plainly
                read -r -a given <<<"${ways[$way]}"
                start=$EPOCHREALTIME
                if [[ -z $problem ]]; then
                    problem=$(UNCOPY_VERBOSE=counters once "$log" "$uncopy" run "${given[@]}" -- "${command[@]}")
                fi
                end=$EPOCHREALTIME
                if [[ -z $problem ]] && ! cmp -s "$file.plain" "$log"; then
                    problem="the logs differ: $(diff "$file.plain" "$log" | grep -a -m1 '^>' | cut -c1-100)"
                fi
                if [[ -z $problem ]]; then
                    elided=$(sed -n 's/^uncopy: elided_copies=//p' "$log.err" | sort -n | tail -n1)
                    [[ $elided != 0 ]] || problem="no copy was elided: nothing was tested"
                fi
                if [[ -z $problem ]]; then
                    passed=$((passed + 1))
                    awk -v w="$what" -v a="$start" -v b="$end" -v n="$(wc -l <"$log")" -v e="${elided:-no counters}" \
                        'BEGIN { printf "ok    %-52s %3d lines, %.1f s, elided %s\n", w, n, b - a, e }'
                    rm -f "$log" "$log.err"
                else
                    failed=$((failed + 1))
                    printf 'FAIL  %-52s %s\n' "$what" "$problem"
                fi
            done
        done
    done
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
