#!/usr/bin/env bash
# The Debian package (`make deb`) in a clean Debian, booted by systemd in a container: it is installed, used without root, starts
# services of the distribution under uncopy, and is removed; nothing of it stays. As root; needs mmdebstrap and systemd-nspawn.
#
#   tests/package/run.sh [PACKAGE]     default: the one in target/debian/
#   ROOT=DIR                           where the clean Debian is kept for the next run (default target/package-root)
set -uo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)
package=${1:-$(ls -t "$repo"/target/debian/uncopy_*.deb 2>/dev/null | head -n1)}
root=${ROOT:-$repo/target/package-root}
passed=0 failed=0
log=$(mktemp)

# A requirement of this that is missing: a failure where nothing may be left out.
leave_out() {
    echo "skip  package: $1"
    [[ -z ${NO_SKIPS-} ]] || { echo "FAIL  package: $1"; exit 1; }
    exit 0
}
[[ $EUID -eq 0 ]] || leave_out "only root boots a container"
for tool in mmdebstrap systemd-nspawn nsenter; do
    command -v "$tool" >/dev/null || leave_out "there is no $tool"
done
[[ -c /dev/userfaultfd ]] || leave_out "there is no /dev/userfaultfd"
[[ -f $package ]] || { echo "$0: there is no package: 'make deb' makes it" >&2; exit 2; }

"$repo/tests/package/root" "$root" || leave_out "no Debian could be made (above)"

# The tree is an overlay that is forgotten at the end. The device node is the container's own: its rights are not the host's.
device=$(mktemp -d)
mknod "$device/userfaultfd" c "$(stat -c %Hr /dev/userfaultfd)" "$(stat -c %Lr /dev/userfaultfd)"
chmod 600 "$device/userfaultfd"
systemd-nspawn --quiet --directory="$root" --volatile=overlay --boot --register=no --keep-unit --private-network --machine=uncopy-test-$$ \
    --bind="$device/userfaultfd:/dev/userfaultfd" --bind-ro="$package:/mnt/uncopy.deb" \
    --bind-ro="$repo/tests/package/in-container.sh:/mnt/step" --bind-ro="$repo/crates/tcp/c/examples:/mnt/examples" </dev/null >"$log" 2>&1 &
nspawn=$!
cleanup() {
    # (SIGTERM to nspawn shuts the container down.)
    kill "$nspawn" 2>/dev/null && wait "$nspawn" 2>/dev/null
    rm -rf "$device" "$log"
}
trap cleanup EXIT

leader=
for _ in {1..300}; do
    sleep 0.2
    leader=$(pgrep -P "$nspawn" | head -n1)
    [[ -n $leader ]] || continue
    state=$(nsenter -t "$leader" -a -- systemctl is-system-running 2>/dev/null)
    [[ $state != running && $state != degraded ]] || break
done
[[ ${state-} == running || ${state-} == degraded ]] || { tail -n 5 "$log"; leave_out "no systemd could be booted (above)"; }

inside() { nsenter -t "$leader" -a -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null; }
step() { inside bash /mnt/step "$@"; }

# check WHAT FOUND PATTERN: what was found is like the pattern.
check() {
    # shellcheck disable=SC2053
    if [[ $2 == $3 ]]; then
        passed=$((passed + 1))
        echo "ok    $1"
    else
        failed=$((failed + 1))
        printf 'FAIL  %s\n      found:  %s\n      wanted: %s\n' "$1" "$2" "$3"
    fi
}
# Whether the service's main process has the library in its memory.
under() { inside sh -c "grep -c libuncopy.so /proc/\$(systemctl show -P MainPID $1)/maps"; }
dropin() { inside sh -c "ls /etc/systemd/system/$1.service.d 2>&1"; }

step user
before=$(step files)

check "the package is installed" "$(inside dpkg -i /mnt/uncopy.deb 2>&1; inside dpkg-query -W -f '${Status}' uncopy)" "*install ok installed"
check "all its files are there as they were packed" "$(inside dpkg -V uncopy)" ""
check "the command says what it is" "$(inside uncopy --version)" "uncopy *commit:*built with: rustc*"
check "its group may open the device, and nobody else" "$(inside stat -c '%G %a' /dev/userfaultfd)" "uncopy 660"
check "it has its manual pages" "$(inside sh -c 'zcat /usr/share/man/man1/uncopy-enable.1.gz | head -n 6')" "*uncopy-enable*"
check "which name variables, files, defects and each other" "$(inside sh -c 'zcat /usr/share/man/man1/uncopy-run.1.gz | grep "^.SH" | xargs')" "*ENVIRONMENT*FILES*BUGS*SEE ALSO*"
check "and documents, which refer to nothing that is not there" "$(step documents)" "[1-9]* documents, 0 dangling links"
check "and completions that the shell can read" "$(inside bash -n /usr/share/bash-completion/completions/uncopy 2>&1)" ""

check "a program in C finds its library, and answers" "$(step c-program 2>&1)" "came back"

said=$(step outside-the-group)
check "who is not in the group is told the command, and the program runs" "$said" "*running plainly*adduser alice uncopy*hello"
check "in one line" "$(wc -l <<<"$said")" 2
check "so does the doctor tell" "$(step doctor)" "*adduser alice uncopy*"
inside adduser --quiet alice uncopy
check "who is in the group elides without root" "$(step elide)" "*ready*python3 \[*copies left out*"

# redis-server: Type=notify, and nearly every lock that systemd has.
was=$(inside sha256sum /lib/systemd/system/redis-server.service)
check "a dry run names the file and its lines" "$(inside uncopy enable --dry-run redis-server 2>&1)" \
    "would write /etc/systemd/system/redis-server.service.d/90-uncopy.conf*LD_PRELOAD=*SupplementaryGroups=uncopy*BindPaths=-/dev/userfaultfd*DeviceAllow=*"
check "and writes nothing" "$(dropin redis-server)" "*No such file*"
check "redis-server is enabled, and not restarted" "$(inside uncopy enable redis-server 2>&1); $(under redis-server)" "wrote*until it is restarted*; 0"
check "its unit is sound" "$(inside systemd-analyze verify redis-server.service 2>&1 | grep -i uncopy)" ""
check "again: nothing to do" "$(inside uncopy enable redis-server 2>&1)" "*was as it has to be*"
said=$(inside uncopy enable --now redis-server 2>&1)
check "with --now it is restarted under uncopy, by its alias too" "$said; $(inside uncopy enable --now redis 2>&1)" \
    "*was restarted under uncopy (process *); *redis-server.service runs under uncopy already*"
check "it serves, byte for byte" "$(step redis-load 2>&1)" "600 values came back"
pid=$(inside systemctl show -P MainPID redis-server)
said=$(inside uncopy stat -p "$pid" 2>&1)
check "it elides in its sandbox" "$said" "redis-server*elided copies*"
check "and was not killed for any call" "$(inside systemctl show -P NRestarts -P ActiveState redis-server | xargs)" "0 active"
check "its unit's file is as it was" "$(inside sha256sum /lib/systemd/system/redis-server.service)" "$was"
check "it is disabled" "$(inside uncopy disable --now redis-server 2>&1); $(under redis-server)" "removed*was restarted without uncopy*; 0"
check "and nothing of it stays" "$(dropin redis-server)" "*No such file*"
check "again: nothing to do" "$(inside uncopy disable redis-server 2>&1)" "*is not enabled*"

# nginx: Type=forking, with commands before its start, as root with workers of another user.
inside systemctl start nginx
check "nginx is enabled and restarted" "$(inside uncopy enable --now --threshold 64K nginx 2>&1); $(under nginx)" "*was restarted under uncopy*; [1-9]*"
check "with the option that was given" "$(inside systemctl show -P Environment nginx)" "*UNCOPY_THRESHOLD=65536*"
check "it serves" "$(inside python3 -c 'import socket
s = socket.create_connection(("127.0.0.1", 80)); s.sendall(b"GET / HTTP/1.0\r\n\r\n"); print(s.recv(99).split(b"\r\n")[0].decode())')" "HTTP/1.1 200 OK"

# The TCP service of all users.
check "its units are there, and not enabled" "$(inside systemctl is-enabled uncopy-tcp.service uncopy-tcp@.service 2>&1 | xargs)" "disabled disabled"
check "and sound" "$(inside systemd-analyze verify --man=no uncopy-tcp.service uncopy-tcp@eth0.service 2>&1 | grep -i uncopy)" ""
check "the first starts" "$(inside systemctl start uncopy-tcp 2>&1; sleep 1; inside systemctl is-active uncopy-tcp)" "active"
check "it says whom it serves" "$(inside journalctl -u uncopy-tcp -o cat 2>&1)" "*@uncopy-tcp: shared memory between programs of all users, each*"
check "and has no capability" "$(inside sh -c 'grep -E "^(Uid|CapPrm|NoNewPrivs)" /proc/$(systemctl show -P MainPID uncopy-tcp)/status' | xargs)" "Uid: 0 0 0 0 CapPrm: 0000000000000000 NoNewPrivs: 1"
said=$(step tcp)
check "a program of an ordinary user is served" "$said" "@uncopy-tcp \[*1 programs, 1 connections*-> ring, *<- ring, *"
check "it stops" "$(inside systemctl stop uncopy-tcp 2>&1; inside systemctl show -P ActiveState -P Result uncopy-tcp | xargs)" "success inactive"

# A log's bytes come home at boot.
inside sh -c 'mkdir -p /srv/alice/log && chown -R alice:alice /srv/alice && chmod 700 /srv/alice/log'
unit=$(inside systemd-escape --path --template=uncopy-log@.service /srv/alice/log)
check "the unit that recovers is sound" "$(inside systemd-analyze verify --man=no "$unit" 2>&1 | grep -i uncopy)" ""
check "and enabled for a directory" "$(inside systemctl enable --now "$unit" 2>&1; inside systemctl is-active "$unit")" "*sysinit.target.wants*active"
check "it recovers with the owner's rights" "$(inside stat -c %U /srv/alice/log/lock)" "alice"
check "before other services start" "$(inside systemctl show -P Before -P After "$unit" | xargs)" "*sysinit.target*-.mount*"
check "where there is no log there is nothing to do" \
    "$(inside systemctl start uncopy-log@srv-none.service 2>&1; inside journalctl -u uncopy-log@srv-none -o cat)" "*/srv/none: there is none, so there is nothing to do*"
check "nobody but root and the owner can" "$(inside setpriv --reuid=65534 --regid=65534 --clear-groups uncopy log recover --as-owner /srv/alice/log 2>&1)" \
    "uncopy*is user 1*; run this as root, or as that user*"
inside rm -r /srv/alice

# A unit that cannot work is refused, and that is said.
inside sh -c 'printf "[Service]\nExecStart=/bin/sleep 1000\nUser=redis\nSystemCallFilter=@basic-io @process @default @file-system\n" >/etc/systemd/system/narrow.service; systemctl daemon-reload'
check "a filter that would end the service is refused with its calls" "$(inside uncopy enable narrow 2>&1)" "*nothing was written*SystemCallFilter= refuses*systemctl edit narrow.service*"
check "nothing was written" "$(dropin narrow)" "*No such file*"
check "no such unit" "$(inside uncopy enable nosuch 2>&1)" "uncopy: there is no unit nosuch.service*"
check "not a service" "$(inside uncopy enable redis.socket 2>&1)" "*is not a service*"
check "an ordinary user cannot" "$(inside setpriv --reuid=alice --regid=alice --init-groups uncopy enable redis-server 2>&1)" "*cannot write*run this as root*"
inside rm /etc/systemd/system/narrow.service

check "removed, services start without it" "$(inside dpkg -r uncopy 2>&1 >/dev/null; dropin nginx; inside systemctl restart nginx; under nginx)" "*No such file*0"
check "purged" "$(inside dpkg -P uncopy 2>&1 | grep -v Purging; inside dpkg-query -W uncopy 2>&1)" "*no packages found*"
check "the device is root's alone again" "$(inside stat -c '%U %G %a' /dev/userfaultfd)" "root root 600"
check "nothing of it stays" "$(diff <(echo "$before") <(step files))" ""
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
