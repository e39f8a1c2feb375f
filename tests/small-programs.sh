# Sourced by runners of small programs: where things are, how a program is built and run within bounds, how it is counted.
# UNCOPY names the command (default target/release/uncopy); CC and CXX the compilers.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
uncopy=${UNCOPY:-$repo/target/release/uncopy}
if ! [[ -x $uncopy && ! -d $uncopy ]]; then
    echo "$0: no uncopy at $uncopy: build it with 'cargo build --release', or name it in UNCOPY" >&2
    exit 2
fi
uncopy=$(realpath "$uncopy")
dir=$(mktemp -d "${TMPDIR:-/tmp}/uncopy-small-programs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0 skipped=0

# wanted NAME [NAMES...]: whether NAME is to be run: it is among NAMES, or there are none.
wanted() { [[ $# -eq 1 || " ${*:2} " == *" $1 "* ]]; }

# build SOURCE TARGET FLAGS...: compiles C or C++, by the name.
build() {
    local compiler=${CC:-cc}
    [[ $1 != *.cpp ]] || compiler=${CXX:-c++}
    $compiler -O2 -pthread -o "$2" "$1" "${@:3}"
}

# bounded COMMAND...: runs it without input, and kills it if it does not end.
bounded() { timeout -s KILL "${TIMEOUT:-60}" "$@" </dev/null; }

ok() {
    passed=$((passed + 1))
    echo "ok    $*"
}

fail() {
    failed=$((failed + 1))
    echo "FAIL  $*"
}

# skip NAME REASON: NAME cannot run here. Where everything is to be there (NO_SKIPS=1, as `make test` sets) it has failed.
skip() {
    if [[ -n ${NO_SKIPS-} ]]; then
        fail "$1: $2"
    else
        skipped=$((skipped + 1))
        echo "skip  $1: $2"
    fi
}

# has_library NAME: whether the dynamic linker knows a shared library of this name.
has_library() { ldconfig -p | grep -F "$1 (" >/dev/null; }

# The last line; fails when any program did.
sum_up() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [[ $failed -eq 0 && $passed -gt 0 ]]
}
