#!/usr/bin/env bash
# What programs do to a process: one small program for each, named after it. Each runs plainly, under uncopy with the default
# options, and under uncopy with eager ones; what it says and its exit status must be the same, and under uncopy its copies
# must have been elided (the programs look at the counters and the page table, and say so where they were not).
#
# What differs is in docs/limitations.md: a program says "documented: PHRASE: as usual" or "... differs". PHRASE must be there,
# and the answer must be "as usual" plainly and "differs" under uncopy (else the limitation no longer holds: update the page).
#
#   tests/process/run.sh [NAME...]       VERBOSE=1 prints what each program says
#
# A program whose library is not installed is skipped and counted; with NO_SKIPS=1 it fails.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../small-programs.sh"
PATH=$PATH:/usr/sbin:/sbin

# Programs that need more than being compiled: source=FILE where another file's program runs in another way, flags=A,B for
# the compiler, preload=LIBRARY, plugin=FILE (built as NAME.so beside the program), library=FILE (built, and linked with the program),
# costs=PRICES (UNCOPY_COSTS), status=N if it does not end with 0.
extras="
plugins_come_and_go             plugin=copying_plugin.c
library_fork_handlers_wait      library=locking_library.c
libraries_make_calls_by_number  library=numbering_library.c
exceptions_across_calls         flags=-fnon-call-exceptions
other_malloc_jemalloc_preloaded source=other_malloc.c preload=libjemalloc.so.2
other_malloc_mimalloc_preloaded source=other_malloc.c preload=libmimalloc.so.2
other_malloc_tcmalloc_preloaded source=other_malloc.c preload=libtcmalloc_minimal.so.4
other_malloc_jemalloc_linked    source=other_malloc.c flags=-Xlinker,--no-as-needed,-l:libjemalloc.so.2
other_malloc_mimalloc_linked    source=other_malloc.c flags=-Xlinker,--no-as-needed,-l:libmimalloc.so.2
other_malloc_tcmalloc_linked    source=other_malloc.c flags=-Xlinker,--no-as-needed,-l:libtcmalloc_minimal.so.4
fork_in_a_sandbox_after_copies  source=fork_in_a_strict_sandbox.c flags=-DCOPIES_BEFORE
sends_priced_by_pacing          costs=send_mb=200000,pace_mb=200000
sends_priced_as_others          source=sends_priced_by_pacing.c costs=send_mb=200000,pace_mb=0
"

names=()
declare -A words
while read -r name rest; do
    [[ -n $name ]] && words[$name]=$rest && names+=("$name")
done <<<"$extras"
shopt -s nullglob
for file in "$here"/*.c "$here"/*.cpp; do
    name=$(basename "${file%.*}")
    [[ $name == *_plugin || $name == *_library || -n ${words[$name]-} ]] || names+=("$name")
done
IFS=$'\n' read -r -d '' -a names < <(printf '%s\n' "${names[@]}" | sort && printf '\0')

# word NAME KEY: the value of KEY in NAME's extras.
word() {
    local w
    for w in ${words[$1]-}; do [[ $w != "$2="* ]] || echo "${w#*=}"; done
}

# lacks NAME: what the program needs and this machine does not have, if anything.
lacks() {
    local library flags
    flags=$(word "$1" flags)
    # (One to be preloaded that is not there would be passed over with a message.)
    for library in $(word "$1" preload) $(grep -o -- '-l:[^,]*' <<<"$flags" | cut -c4-); do
        has_library "$library" || { echo "no $library" && return; }
    done
    [[ ! -e $here/$1.cpp ]] || command -v "${CXX:-c++}" >/dev/null || echo "no C++ compiler"
}

prepare() {
    local source flags plugin library
    source=$(word "$1" source)
    [[ -n $source ]] || source=$(basename "$(ls "$here/$1".c*)")
    IFS=, read -r -a flags <<<"$(word "$1" flags)"
    plugin=$(word "$1" plugin)
    [[ -z $plugin ]] || build "$here/$plugin" "$dir/$1.so" -shared -fPIC -Wall -Wextra -Werror
    library=$(word "$1" library)
    if [[ -n $library ]]; then
        build "$here/$library" "$dir/lib$1.so" -shared -fPIC -Wall -Wextra -Werror
        flags+=("$dir/lib$1.so" "-Wl,-rpath,$dir")
    fi
    build "$here/$source" "$dir/$1" -Wall -Wextra -Werror "${flags[@]}"
}

# once LOG NAME COMMAND...: the program's words go to LOG, with its exit status as the last line.
once() {
    local log=$1 preload costs status=0
    preload=$(word "$2" preload)
    costs=$(word "$2" costs)
    mkdir "$log.d"
    (cd "$log.d" && bounded env ${preload:+LD_PRELOAD="$preload"} ${costs:+UNCOPY_COSTS="$costs"} "${@:3}" >"$log" 2>"$log.err") || status=$?
    echo "status $status" >>"$log"
}

# problem NAME WAY: what is wrong with the run of NAME, if anything.
problem() {
    local plain=$dir/$1.plain log=$dir/$1.$2 answer='differs' phrase said
    [[ $2 != plain ]] || answer='as usual'
    grep -a -m1 -E 'WRONG|NOT ELIDED|NOT UNMAPPED|NOTHING ELIDED|failed:' "$log" && return
    if [[ $(tail -n1 "$log") != "status $3" ]]; then
        echo "$(tail -n1 "$log"), should be $3; last words: $(tail -n2 "$log" | head -n1); $(tail -n1 "$log.err")"
        return
    fi
    diff <(grep -av '^documented: ' "$plain") <(grep -av '^documented: ' "$log") | grep -a -m1 '^[<>]' && return
    while IFS= read -r said; do
        phrase=${said#documented: }
        phrase=${phrase%: *}
        grep -qF -- "$phrase" "$repo/docs/limitations.md" || { echo "not in docs/limitations.md: $phrase" && return; }
        [[ $said == *": $answer" ]] || { echo "$phrase: should be '$answer'" && return; }
    done < <(grep -a '^documented: ' "$log")
}

for name in "${names[@]}"; do
    wanted "$name" "$@" || continue
    [[ -z $(lacks "$name") ]] || continue
    prepare "$name" || touch "$dir/$name.unbuilt" &
    [[ $(jobs -rp | wc -l) -lt 2 ]] || wait -n
done
wait

for name in "${names[@]}"; do
    wanted "$name" "$@" || continue
    lacking=$(lacks "$name")
    if [[ -n $lacking ]]; then
        skip "$name" "$lacking"
        continue
    fi
    if [[ -e $dir/$name.unbuilt ]]; then
        fail "$name: could not be compiled"
        continue
    fi
    status=$(word "$name" status)
    wrong=
    for way in plain default eager; do
        case $way in
        plain) command=() ;;
        default) command=("$uncopy" run --) ;;
        eager) command=("$uncopy" run --backoff=no --threshold=8K --lend=2 --) ;;
        esac
        once "$dir/$name.$way" "$name" "${command[@]}" "$dir/$name"
        wrong=$(problem "$name" "$way" "${status:-0}")
        [[ -z ${VERBOSE-} ]] || sed "s/^/      $way: /" "$dir/$name.$way"
        if [[ -n $wrong ]]; then
            fail "$name ($way): $wrong"
            break
        fi
    done
    [[ -n $wrong ]] || ok "$name"
done
sum_up
