#!/usr/bin/env bash
# uncopy in a container, with the distribution's default seccomp profile, with examples/container/profile.py's, and with one that
# ends programs for all calls but systemd's @system-service, as a unit's SystemCallFilter= does. As root; needs crun, mmdebstrap and
# the default profile (Debian's golang-github-containers-common).
#
#   tests/container/run.sh      ROOT=DIR: where the clean Debian is kept (default target/package-root, as for tests/package)
set -uo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)
root=${ROOT:-$repo/target/package-root}
default=/usr/share/containers/seccomp.json
passed=0 failed=0

leave_out() {
    echo "skip  container: $1"
    [[ -z ${NO_SKIPS-} ]] || { echo "FAIL  container: $1"; exit 1; }
    exit 0
}
[[ $EUID -eq 0 ]] || leave_out "only root makes containers"
for tool in crun mmdebstrap python3; do
    command -v "$tool" >/dev/null || leave_out "there is no $tool"
done
[[ -f $default ]] || leave_out "there is no $default"
[[ -c /dev/userfaultfd ]] || leave_out "there is no /dev/userfaultfd"
"$repo/tests/package/root" "$root" || leave_out "no Debian could be made (above)"

# crun refuses where both versions of cgroups are mounted, and needs neither here: in a mount namespace of our own there is one.
if [[ -z ${OWN_MOUNTS-} ]]; then
    OWN_MOUNTS=1 exec unshare --mount --propagation private "$0" "$@"
fi
umount /sys/fs/cgroup/unified 2>/dev/null

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mknod "$dir/userfaultfd" c "$(stat -c %Hr /dev/userfaultfd)" "$(stat -c %Lr /dev/userfaultfd)"
# Of a group of its own, as the package makes it.
group=4711
chown 0:$group "$dir/userfaultfd"
chmod 660 "$dir/userfaultfd"
"$repo/examples/container/profile.py" "$default" >"$dir/uncopy.json" || exit 1
python3 - >"$dir/service.json" <<'PY' || exit 1
import json, subprocess
def names(group):
    listed = subprocess.run(["systemd-analyze", "syscall-filter", group], check=True, capture_output=True, text=True).stdout
    for line in map(str.strip, listed.splitlines()[1:]):
        if line.startswith("@"): yield from names(line)
        elif line and not line.startswith("#"): yield line
print(json.dumps({"defaultAction": "SCMP_ACT_KILL_PROCESS", "syscalls": [{"names": sorted(set(names("@system-service"))), "action": "SCMP_ACT_ALLOW"}]}))
PY
head -c 524288 /dev/urandom >"$dir/input"
chmod 644 "$dir/input"

# inside PROFILE CAPABILITY DEVICE [MESSAGES [PRIVILEGES]]: what a program says that copies its input, as a user in the device's
# group; with MESSAGES one that receives it again and again from another one, by --tcp. PRIVILEGES: it may gain some.
inside() {
    python3 - "$dir" "$root" "$repo" "$group" "$@" <<'PY'
import json, os, platform, subprocess, sys
dir, root, repo, group, profile, capability, device, messages, privileges = (sys.argv[1:] + ["", ""])[:9]
bundle = os.path.join(dir, "bundle")
os.makedirs(bundle, exist_ok=True)
config = json.loads(subprocess.run(["crun", "spec", "-f", "/dev/stdout"], cwd=bundle, check=True, capture_output=True).stdout)
capabilities = [c for c in [capability] if c]
process = config["process"]
code = """
import sys
file = open("/input", "rb", buffering=0)
for i in range(3000):
    data = bytearray(1 << 19)
    file.seek(0); file.readinto(data)
    sys.stdout.buffer.write(bytes(data))
"""
options = ["--verbose"]
if messages:
    options += ["--tcp", "--backoff=no"]
    code = """
import os, socket, sys
data = open("/input", "rb").read() * 2
l = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    s = socket.create_connection(l.getsockname())
    for i in range(400): s.sendall(data); s.recv(1)
    os._exit(0)
c, _ = l.accept()
room = bytearray(len(data)); view = memoryview(room)
for i in range(400):
    got = 0
    while got < len(data): got += c.recv_into(view[got:])
    if i % 50 == 49: assert room == data, i
    c.sendall(b"n")
os.wait()
sys.stdout.buffer.write(data * 1500)
"""
process.update(terminal=False, user={"uid": 1000, "gid": 1000, "additionalGids": [int(group)]},
               args=["/uncopy/uncopy", "run", *options, "--", "python3", "-c", code])
process["noNewPrivileges"] = not privileges
process["env"].append(f"UNCOPY_TCP_SERVICE=uncopy-container-{os.getpid()}")
# (Of a network of its own nobody makes the loopback device work.)
config["linux"]["namespaces"] = [n for n in config["linux"]["namespaces"] if n["type"] != "network"]
process["capabilities"] = {kind: capabilities for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")}
config["root"] = {"path": root, "readonly": True}
mounts = [(f"{repo}/target/release", "/uncopy"), (f"{dir}/input", "/input")]
if device == "device":
    mounts.append((f"{dir}/userfaultfd", "/dev/userfaultfd"))
config["mounts"] = [m for m in config["mounts"] if m["destination"] not in ("/sys/fs/cgroup",)]
config["mounts"] += [{"destination": to, "type": "bind", "source": of, "options": ["bind", "rw"]} for of, to in mounts]
config["linux"]["resources"] = {}
# The runtime is given rules for this machine and these capabilities, as docker and podman work them out.
with open(profile) as f:
    profile = json.load(f)
release = tuple(int(n) for n in platform.release().split("-")[0].split(".")[:2])
rules = []
for rule in profile["syscalls"]:
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    needed = tuple(int(n) for n in includes.get("minKernel", "0.0").split("."))
    if not set(includes.get("caps", [])) <= set(capabilities) or set(excludes.get("caps", [])) & set(capabilities) \
            or includes.get("arches") and "amd64" not in includes["arches"] or "amd64" in excludes.get("arches", []) or needed > release:
        continue
    kept = {"names": rule["names"], "action": rule["action"]}
    if rule.get("args"):
        kept["args"] = [{k: v for k, v in a.items() if k in ("index", "value", "valueTwo", "op")} for a in rule["args"]]
    if rule.get("errnoRet") is not None:
        kept["errnoRet"] = rule["errnoRet"]
    rules.append(kept)
config["linux"]["seccomp"] = {"defaultAction": profile["defaultAction"], "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
                              "syscalls": rules}
if profile["defaultAction"] == "SCMP_ACT_ERRNO":
    config["linux"]["seccomp"]["defaultErrnoRet"] = profile.get("defaultErrnoRet", 1)
with open(os.path.join(bundle, "config.json"), "w") as f:
    json.dump(config, f)
name = f"uncopy-test-{os.getpid()}"
run = subprocess.run(["crun", "--cgroup-manager=disabled", "--root", f"{dir}/state", "run", "--bundle", bundle, name],
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
with open(f"{dir}/input", "rb") as f:
    whole = f.read() * 3000
print(run.stderr.decode(errors="replace"), end="")
print("every byte" if run.stdout == whole else f"{len(run.stdout)} bytes of {len(whole)}", f"status {run.returncode}")
PY
}
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

said=$(inside "$default" "" "")
check "with the default profile userfaultfd is refused, and the program runs plainly" "$said" "uncopy: running plainly: *every byte status 0"
check "which is said in one line" "$(wc -l <<<"$said")" 2
check "with the device it elides under the same profile" "$(inside "$default" "" device)" "*: ready*copies left out*every byte status 0"
check "with our profile and the capability it elides without the device" "$(inside "$dir/uncopy.json" CAP_SYS_PTRACE "")" \
    "*: ready*copies left out*every byte status 0"
check "the capability alone is not enough" "$(inside "$default" CAP_SYS_PTRACE "")" "uncopy: running plainly: *every byte status 0"
check "nor the profile alone" "$(inside "$dir/uncopy.json" "" "")" "uncopy: running plainly: *every byte status 0"
check "large messages are viewed where they lie under the default profile" "$(inside "$default" "" device messages privileges)" \
    "* received, of that *without a copy*every byte status 0"
check "where a program can gain no rights they are not, and that is said" "$(inside "$default" "" device messages)" \
    "*no message without a copy*NoNewPrivs*every byte status 0"
check "a filter that ends programs for userfaultfd ends nobody" "$(inside "$dir/service.json" "" "")" \
    "uncopy: running plainly: *every byte status 0"
check "with the device copies are left out there" "$(inside "$dir/service.json" "" device)" "*: ready*copies left out*every byte status 0"
check "and large messages are viewed" "$(inside "$dir/service.json" "" device messages privileges)" \
    "* received, of that *without a copy*every byte status 0"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
