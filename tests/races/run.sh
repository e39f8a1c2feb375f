#!/usr/bin/env bash
# Small programs, each one way to take a preload library with userfaultfd by surprise; every one of them failed once (found
# in review by programs like these). Run under uncopy with eager options; each must end by itself and say what is expected.
#
#   tests/races/run.sh [NAME...]       UNCOPY names the command (default target/release/uncopy)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../small-programs.sh"

# name                                      what its last line must match
expected="
clone_child_can_exec                        ^exit 0$
dup2_over_our_descriptors                   ^bad=0$
dup2_in_vfork_child                         ^bad=0
descriptors_closed_by_raw_call              ^bad=0
one_shot_handlers_survive                   ^ok
coroutine_stack_on_freed_block              ^done=1$
many_threads_fault_during_unmaps            ^done,.bad=0$
unmapped_addresses_belong_to_malloc         bad=0$
freed_mapping_is_given_out_again            bad=0$
dropped_pages_while_forking                 stale-after-DONTNEED=0$
moved_mapping_while_forking                 LOST=0$
mapping_moved_in_a_child_without_us         ^bad=0$
protecting_while_unmapping                  stale=0$
first_thread_exits_early                    worker.done
allocator_without_usable_size               ^bad=0$
first_thread_exits_while_starting           ^bad=0$
child_after_first_thread_ended              ^child.ended.with.7$
touched_and_dropped_while_forking           ^stale=0$
limited_address_space_is_not_used_up        1[12][0-9][0-9].MB
lookup_error_stays_for_dlerror              ^bad=0$
first_copy_in_a_signal_handler              ^bad=0$
first_call_in_a_signal_handler              ^bad=0$
"

build "$here/toy_allocator.c" "$dir/libtoy.so" -shared -fPIC -fno-builtin
while read -r name pattern; do
    [[ -n $name ]] && wanted "$name" "$@" || continue
    build "$here/$name.c" "$dir/$name" -w -O1 -fno-builtin
    preload=()
    [[ $name != allocator_without_usable_size ]] || preload=(env "LD_PRELOAD=$dir/libtoy.so")
    status=0
    said=$(R=20 bounded "${preload[@]}" \
        "$uncopy" run --backoff=no --threshold=8K --lend=2 -- "$dir/$name" 2>"$dir/err" | tail -n1) || status=$?
    if [[ $status -eq 0 && $said =~ $pattern ]]; then
        ok "$name: $said"
    else
        fail "$name: status $status, said '$said' ($(tail -n1 "$dir/err"))"
    fi
done <<<"$expected"
sum_up
