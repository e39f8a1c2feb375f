#!/usr/bin/env bash
# With userfaultfd refused everything still runs, with one line said: as an unprivileged user, with the sysctl
# vm.unprivileged_userfaultfd at 0 and no right to /dev/userfaultfd, `uncopy run` must
#   - give the same output, standard error and exit status as the program alone, but for exactly one line of its own
#     on standard error that names both the sysctl and the device;
#   - with --require refuse: exit status 125, the program not started;
# and `uncopy doctor` names the commands that grant it, keeps no costs, and exits 1.
# Needs root (to become nobody). UNCOPY names the command (default target/release/uncopy). Where the test cannot be made
# it says why and exits 0 (77 with --strict).
#
#   tests/refused.sh [--strict]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/.." && pwd)
uncopy=${UNCOPY:-$repo/target/release/uncopy}
sysctl=/proc/sys/vm/unprivileged_userfaultfd
device=/dev/userfaultfd
user=65534
strict=
[[ ${1-} != --strict ]] || strict=1

skip() {
    echo "SKIP: refused.sh: $1"
    [[ -z $strict ]] || exit 77
    exit 0
}

if ! [[ -x $uncopy && ! -d $uncopy ]]; then
    echo "$0: no uncopy at $uncopy: build it with 'cargo build --release', or name it in UNCOPY" >&2
    exit 2
fi
[[ $EUID -eq 0 ]] || skip "not root, so it cannot run a program as another user"
command -v setpriv >/dev/null || skip "no setpriv here (package util-linux)"
unprivileged() { setpriv --reuid=$user --regid=$user --clear-groups --inh-caps=-all --no-new-privs "$@"; }
if [[ -e $sysctl && $(<$sysctl) != 0 ]]; then
    skip "vm.unprivileged_userfaultfd is $(<$sysctl) here; run it after 'sysctl -w vm.unprivileged_userfaultfd=0'"
fi
if unprivileged test -r $device -a -w $device; then
    skip "$device is open to user $user here"
fi

# Copies where that user may read them, whatever this repository's permissions are.
dir=$(mktemp -d /tmp/uncopy-refused.XXXXXX)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir -m 755 "$dir/bin"
mkdir -m 1777 "$dir/tmp"
real=$(realpath "$uncopy")
cp "$real" "$dir/bin/uncopy"
for library in "$(dirname "$real")/libuncopy.so" "$(dirname "$real")/../lib/uncopy/libuncopy.so"; do
    if [[ -e $library ]]; then
        cp "$library" "$dir/bin/libuncopy.so"
        break
    fi
done
"${CC:-cc}" -O2 -pthread -fno-builtin -fno-builtin-memcpy -fno-builtin-memmove \
    -o "$dir/bin/consistency" "$here/consistency/consistency.c"
head -c 20000000 /dev/urandom >"$dir/big"
chmod -R a+rX "$dir/bin" "$dir/big"

passed=0 failed=0
ok() { passed=$((passed + 1)) && echo "ok    $1"; }
fail() { failed=$((failed + 1)) && echo "FAIL  $1"; }

# as_user NAME COMMAND...: output, errors and status of the command into $dir/NAME.{out,err,status}
as_user() {
    local name=$1 status=0
    shift
    (cd / && unprivileged env -u UNCOPY_LIBRARY TMPDIR="$dir/tmp" timeout -k 5 120 "$@") \
        >"$dir/$name.out" 2>"$dir/$name.err" </dev/null || status=$?
    echo "$status" >"$dir/$name.status"
}

compare() { # WHAT COMMAND...
    local what=$1 lines
    shift
    as_user plain "$@"
    as_user uncopy "$dir/bin/uncopy" run -- "$@"
    if ! cmp -s "$dir/plain.status" "$dir/uncopy.status"; then
        fail "$what: exit status $(<"$dir/uncopy.status"), not $(<"$dir/plain.status"): $(tail -n1 "$dir/uncopy.err")"
        return
    fi
    if ! cmp -s "$dir/plain.out" "$dir/uncopy.out"; then
        fail "$what: the output differs"
        return
    fi
    # what the program says itself stays; uncopy's line is what is left
    grep -vxFf "$dir/plain.err" "$dir/uncopy.err" >"$dir/said" || true
    lines=$(wc -l <"$dir/said")
    if [[ $lines -ne 1 ]]; then
        fail "$what: $lines lines on standard error, not 1: $(head -n3 "$dir/said" | tr '\n' '|')"
    elif ! grep -q 'vm\.unprivileged_userfaultfd' "$dir/said" || ! grep -q "$device" "$dir/said"; then
        fail "$what: the line does not name both vm.unprivileged_userfaultfd and $device: $(<"$dir/said")"
    else
        ok "$what: same output, and one line: $(<"$dir/said")"
    fi
}

compare "cat" cat "$dir/big"
compare "a program that fails" cat "$dir/big" "$dir/missing"
compare "consistency" "$dir/bin/consistency" --threads 2 --align odd --size 200000 --rounds 2
compare "a shell's children" sh -c "cat '$dir/big' | wc -c; exit 7"

as_user require "$dir/bin/uncopy" run --require -- touch "$dir/tmp/started"
if [[ $(<"$dir/require.status") -ne 125 ]]; then
    fail "--require: exit status $(<"$dir/require.status"), not 125"
elif [[ -e $dir/tmp/started ]]; then
    fail "--require: the program was started"
elif [[ -s $dir/require.out || $(wc -l <"$dir/require.err") -ne 1 ]]; then
    fail "--require: not exactly one line, on standard error: $(head -n3 "$dir/require.err" | tr '\n' '|')"
else
    ok "--require: refused with 125: $(<"$dir/require.err")"
fi

as_user doctor env XDG_CACHE_HOME="$dir/tmp" "$dir/bin/uncopy" doctor
if [[ $(<"$dir/doctor.status") -ne 1 ]]; then
    fail "doctor: exit status $(<"$dir/doctor.status"), not 1: $(tail -n1 "$dir/doctor.err")"
elif ! grep -q 'sysctl -w vm.unprivileged_userfaultfd=1' "$dir/doctor.out" ||
    ! grep -q "setfacl -m u:[^ ]*:rw $device" "$dir/doctor.out"; then
    fail "doctor: it does not name both commands"
elif [[ -e $dir/tmp/uncopy ]]; then
    fail "doctor: costs are kept although they could not all be measured"
else
    ok "doctor: exit status 1: $(tail -n1 "$dir/doctor.out")"
fi

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
