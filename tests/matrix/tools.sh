# shellcheck shell=bash
# What scripts of tools have besides lib.sh: files to work on, and comparing trees. Source it: . "$(dirname "$0")/../tools.sh"
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
RUN=${RUN-} CLIENT=${CLIENT-} PORT_BASE=${PORT_BASE-21000}
# Without the summaries of --verbose=counters, for what is checked for an empty standard error.
# shellcheck disable=SC2034
QUIET=${RUN/ --verbose=counters/}
# shellcheck disable=SC2034
MATRIX=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# random FILE BYTES: bytes that depend on its base name and nothing else, and do not compress
random() {
    local key
    key=$(printf %s "${1##*/}" | sha256sum | cut -c1-32)
    head -c "$2" /dev/zero | openssl enc -aes-128-ctr -nosalt -K "$key" -iv 00000000000000000000000000000000 >"$1"
}

# text FILE BYTES: the same as lines, which compress to three quarters
text() {
    random "$1" $(($2 * 3 / 4 + 100))
    base64 -w 79 "$1" >"$1.lines"
    head -c "$2" "$1.lines" >"$1"
    rm "$1.lines"
}

# tree DIRECTORY: digest of the names and contents of all files below it
tree() {
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0 -r sha256sum) | sha256sum | cut -c1-16
}
