#!/usr/bin/env bash
# What docs/security.md promises, as far as it can be tested: no byte of one buffer in another nor where zeros are promised; programs
# with more rights than their user's are left alone; the environment cannot break anything; executed programs get no descriptor of ours.
#
#   tests/security/run.sh [--seed N] [--rounds N]     UNCOPY names the command
#
# The set-user-ID part needs root (to make such a program and to become another user) and says so where it cannot be made.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
uncopy=$(realpath "${UNCOPY:-$repo/target/release/uncopy}")
library=$(dirname "$uncopy")/libuncopy.so
[[ -e $library ]] || library=$(realpath "$(dirname "$uncopy")/../lib/uncopy/libuncopy.so")
user=65534
dir=$(mktemp -d /tmp/uncopy-security.XXXXXX)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"

passed=0 failed=0
check() { # what, found, expected
    if [[ $2 == $3 ]]; then
        passed=$((passed + 1))
        echo "ok    $1"
    else
        failed=$((failed + 1))
        echo "FAIL  $1: '$2', not '$3'"
    fi
}

flags=(-O2 -Wall -Wextra -Werror -fno-builtin -fno-tree-loop-distribute-patterns -pthread)
"${CC:-cc}" "${flags[@]}" -o "$dir/recycled_pages" "$here/recycled_pages.c"
"${CC:-cc}" "${flags[@]}" -o "$dir/secure" "$here/secure.c"
cp "$library" "$dir/libuncopy.so"
chmod 755 "$dir/libuncopy.so"

# --- recycled pages
[[ " $* " == *" --seed "* ]] || set -- "$@" --seed "$RANDOM"
for limits in "" "--extent-memory=2M --max-mappings=40"; do
    read -r -a given <<<"$limits"
    said=$(timeout -s KILL 300 "$uncopy" run --threshold=8K --backoff=no "${given[@]}" -- "$dir/recycled_pages" "$@" 2>&1) || true
    check "recycled pages show nothing of what they held${limits:+ ($limits)}" "$said" "ok:*"
done

# --- the environment
for bad in UNCOPY_THRESHOLD=many UNCOPY_THRESHOLD=-1 UNCOPY_EXTENT_MEMORY=99999999999999999999 UNCOPY_VERBOSE=2 UNCOPY_BACKOFF= \
    UNCOPY_LIBRARY=/nowhere "UNCOPY_MAX_MAPPINGS=$(printf '9%.0s' {1..5000})" $'UNCOPY_THRESHOLD=\xff\xfe' UNCOPY_NONSENSE=1; do
    short=$(LC_ALL=C cut -c1-40 <<<"${bad//[^[:print:]]/?}")
    # By hand, past uncopy's own checks: the library must bear it in silence.
    said=$(env "$bad" LD_PRELOAD="$library" "$dir/secure" 2>&1) || said="status $?"
    check "the library bears $short" "$said" "secure=0 library=1 userfaultfds=*"
done
for bad in UNCOPY_THRESHOLD=many UNCOPY_VERBOSE=2 UNCOPY_NONSENSE=1; do
    status=0
    env "$bad" "$uncopy" run -- "$dir/secure" >"$dir/out" 2>"$dir/err" || status=$?
    check "uncopy run warns of $bad in one line and goes on" "$status $(wc -l <"$dir/err") $(<"$dir/out")" "0 1 secure=0 library=1*"
done

# --- executed programs
check "an executed program gets none of our descriptors" \
    "$("$uncopy" run --follow-exec=no -- env -u LD_PRELOAD "$dir/secure")" "secure=0 library=0 userfaultfds=0"

# --- more rights than the user's
as_user() { (cd / && setpriv --reuid=$user --regid=$user --clear-groups "$@"); }
if [[ $EUID -ne 0 ]] || ! command -v setpriv >/dev/null; then
    echo "skip  set-user-ID programs: needs root and setpriv"
else
    cp "$dir/secure" "$dir/setuid"
    chmod 4755 "$dir/setuid"
    found=$(as_user "$dir/setuid")
    if [[ $found != secure=1* ]]; then
        echo "skip  set-user-ID programs: $dir is mounted without them"
    else
        check "a set-user-ID program is not preloaded by its user" \
            "$(as_user env LD_PRELOAD="$dir/libuncopy.so" UNCOPY_VERBOSE=1 "$dir/setuid" 2>&1)" \
            "*secure=1 library=0 userfaultfds=0"
        check "nor when a preloaded program executes it" \
            "$(as_user env LD_PRELOAD="$dir/libuncopy.so" UNCOPY_LIBRARY="$dir/libuncopy.so" sh -c "exec $dir/setuid" 2>&1)" \
            "secure=1 library=0 userfaultfds=0"
        # /etc/ld.so.preload reaches such programs too. Tried in a mount namespace of its own, on a copy of /etc.
        cp -a /etc "$dir/etc"
        echo "$dir/libuncopy.so" >"$dir/etc/ld.so.preload"
        if unshare --mount --propagation private true 2>/dev/null; then
            said=$(unshare --mount --propagation private sh -c "mount --bind '$dir/etc' /etc && cd / &&
                exec setpriv --reuid=$user --regid=$user --clear-groups env UNCOPY_VERBOSE=counters UNCOPY_LIBRARY=/tmp/evil.so \
                '$dir/setuid' '$dir/secure'" 2>&1 | grep -v '^uncopy: [a-z_]*=' | tr '\n' ' ')
            check "preloaded by the administrator, it stands aside in such a program and takes nothing from its environment" \
                "$said" "secure=1 library=1 userfaultfds=0 *preload= "
        else
            echo "skip  /etc/ld.so.preload: no mount namespaces here"
        fi
    fi
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
