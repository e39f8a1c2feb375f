//! Programs under `uncopy run --tcp` that connect to other hosts, which are plain Linux'; and both
//! ends under it.

use std::time::Duration;

use crate::network::{Beside, Network, OUTSIDE};
use crate::{Named, Outcome, same};
use uncopy_tests::verdict::Stop;

/// Those of this file.
pub const ALL: [Named; 13] = [
    ("programs_that_connect_get_every_byte_and_the_names_that_linux_has", echoes),
    ("connections_that_fail_end_as_linux_ends_them", failures),
    ("a_socket_that_has_failed_or_was_dissolved_connects_again_to_whom_it_says", again),
    ("a_connection_that_waits_and_fails_is_forgotten_at_once", waits_and_fails),
    ("a_connection_that_the_library_does_not_follow_is_linuxs_from_the_beginning", not_followed),
    ("where_the_detour_is_taken_away_linux_connects_and_ends_as_ever", no_detour),
    ("where_the_service_has_no_descriptor_for_a_stand_in_linux_connects", no_stand_in),
    ("redis_clients_connect_over_the_wire", redis_clients),
    ("curl_and_wrk_get_every_byte_over_the_wire", curl_and_wrk),
    ("both_ends_are_uncopys", both_ends),
    ("who_connects_while_the_service_dies_is_connected_by_linux", dies_while_connecting),
    ("a_killed_service_resets_the_connections_that_programs_opened", service_killed),
    ("a_killed_client_and_a_killed_server_leave_nothing_behind", killed),
];

/// Sends back what comes, to each who connects; prints whom it has accepted.
pub const ECHO: &str = r#"
import socket, threading
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", 7)); listener.listen(512)
print("listens", flush=True)
def serve(s):
    try:
        while part := s.recv(65536): s.sendall(part)
    except OSError: pass
    s.close()
while True:
    s, peer = listener.accept()
    print(peer[0], peer[1], flush=True)
    threading.Thread(target=serve, args=(s,), daemon=True).start()
"#;

/// Connects in each way there is, and compares what comes back.
const CLIENT: &str = r#"
import errno, os, random, select, socket, sys, threading
peer = (sys.argv[1], 7)
def exchange(s, n, rounds=6):
    for i in range(rounds):
        value = random.Random(n + i).randbytes(n)
        sender = threading.Thread(target=s.sendall, args=(value,)); sender.start()
        got = b""
        while len(got) < n:
            part = s.recv(n - len(got))
            assert part, (n, len(got))
            got += part
        sender.join()
        assert got == value, n
def names(s, ip="10.78.9.2"):
    assert s.getpeername()[:2] == peer, s.getpeername()
    assert s.getsockname()[0] == ip, s.getsockname()
    return s.getsockname()[1]
kept = []
# It waits.
for n in (1, 64, 1448, 1449, 65536, 1 << 20):
    s = socket.socket(); s.settimeout(None); s.connect(peer); names(s); exchange(s, n); kept.append(s)
# It does not, and is polled.
s = socket.socket(); s.setblocking(False)
assert s.connect_ex(peer) == errno.EINPROGRESS
poll = select.poll(); poll.register(s, select.POLLOUT)
assert poll.poll(5000) == [(s.fileno(), select.POLLOUT)]
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert (s.connect_ex(peer), s.connect_ex(peer)) == (0, errno.EISCONN)
s.setblocking(True); names(s); exchange(s, 4096); kept.append(s)
# By epoll, which had it before.
s = socket.socket(); s.setblocking(False)
s.connect_ex(peer)
epoll = select.epoll(); epoll.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
events = 0
while not events & select.EPOLLOUT:
    for _, event in epoll.poll(5): events |= event
assert not events & (select.EPOLLERR | select.EPOLLHUP), events
epoll.unregister(s); s.setblocking(True); names(s); exchange(s, 1000); kept.append(s)
# By select.
s = socket.socket(); s.setblocking(False); s.connect_ex(peer)
assert select.select([], [s], [], 5)[1] == [s]
s.setblocking(True); exchange(s, 1000); kept.append(s)
# Bound before: to a port, to an address, to both.
for own in (("0.0.0.0", 5001), ("10.78.9.2", 0), ("10.78.9.2", 5002)):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(own); s.connect(peer)
    port = names(s)
    assert own[1] in (0, port), (own, port)
    exchange(s, 1000); kept.append(s)
# Of the other family.
s = socket.socket(socket.AF_INET6); s.connect(("::ffff:" + peer[0], 7)); exchange(s, 1000); kept.append(s)
# Beside a listener at the same port.
listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", 7)); listener.listen()
s = socket.socket(); s.connect(peer); exchange(s, 1000); kept.append(s)
# Many at once.
def many():
    for _ in range(10):
        with socket.create_connection(peer, 20) as s: names(s); exchange(s, 100)
threads = [threading.Thread(target=many) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
# Closed while it connects.
for _ in range(5):
    s = socket.socket(); s.setblocking(False); s.connect_ex(peer); s.close()
# A child has it.
if os.fork() == 0:
    exchange(kept[0], 3000); os._exit(0)
assert os.wait()[1] == 0
print("right", flush=True)
sys.stdin.read()
"#;

fn echo_server(network: &Network) -> Result<Beside, Stop> {
    let mut server = network.outside_python(ECHO, &[])?;
    server.says("listens")?;
    Ok(server)
}

fn echoes() -> Outcome {
    echoes_over(&Network::new("e")?)
}

pub fn echoes_over(network: &Network) -> Outcome {
    let service = network.serve()?;
    let _server = echo_server(network)?;
    let mut client = network.under_tcp_talking(&["python3", "-c", CLIENT, OUTSIDE])?;
    client.says("right")?;
    // All but the first of each loop, which Linux may have connected before it knew the neighbour.
    let over = service.count("10.78.9.1:7\"")?;
    if over < 12 {
        return Err(format!("only {over} connections over the wire: {}", service.flows()?).into());
    }
    drop(client);
    network.until_no_flows(&service)
}

/// The fates of connections that cannot be; one line for each.
const FAIL: &str = r#"
import errno, select, socket, sys, time
def how(peer, blocking, retries=1, user=None):
    s = socket.socket(); s.setblocking(blocking)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, retries)
    begun = time.monotonic()
    error = s.connect_ex(peer); said = [errno.errorcode.get(error, error)]
    if error == errno.EINPROGRESS:
        poll = select.poll(); poll.register(s, select.POLLIN | select.POLLOUT)
        # (Of one in some thousand Linux says POLLERR before it says the rest: tcp_done_with_error sets the error first.)
        while (event := poll.poll(20000)[0][1]) == select.POLLERR: pass
        said.append(event)
        said.append(errno.errorcode.get(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))
        said.append(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    took = time.monotonic() - begun
    try: s.getpeername(); said.append("named")
    except OSError as e: said.append(errno.errorcode[e.errno])
    print(peer, blocking, said, "at once" if took < 0.5 else "late", flush=True)
socket.create_connection(("10.78.9.1", 7), 20).close()
for blocking in (True, False):
    how(("10.78.9.1", 9), blocking)
    how(("10.78.9.77", 7), blocking)
    how(("10.78.9.99", 7), blocking, 6)
    how(("192.0.2.1", 7), blocking)
    how(("10.78.9.255", 7), blocking)
    how(("10.78.9.2", 9), blocking)
# A router says that nobody is there, or that nobody may. (What poll says besides, and how soon, depends on whether that comes while the call is in the kernel.)
for blocking in (True, False):
    for peer in (("198.51.100.1", 7), ("198.51.100.200", 7)):
        s = socket.socket(); s.setblocking(blocking); error = s.connect_ex(peer)
        if error == errno.EINPROGRESS:
            poll = select.poll(); poll.register(s, select.POLLIN | select.POLLOUT); poll.poll(20000)
            error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        print(peer, blocking, errno.errorcode.get(error, error), flush=True)
# One that was refused is connected again.
s = socket.socket()
print(s.connect_ex(("10.78.9.1", 9)), s.connect_ex(("10.78.9.1", 7)), flush=True)
s.sendall(b"x"); print(s.recv(1), flush=True)
# SO_SNDTIMEO.
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, (0).to_bytes(8, "little") + (200000).to_bytes(8, "little"))
print(errno.errorcode.get(s.connect_ex(("10.78.9.77", 7))), flush=True)
print("end", flush=True)
"#;

fn lines_until_end(client: &mut Beside) -> Result<Vec<String>, Stop> {
    let mut lines = vec![];
    loop {
        match client.line()? {
            line if line == "end" => return Ok(lines),
            line => lines.push(line),
        }
    }
}

/// The other end is a router that says of the hosts behind it that they cannot be reached.
fn unreachable(network: &Network) -> Outcome {
    network.device("route add 198.51.100.0/24 via 10.78.9.1")?;
    // It says so of each SYN. (Linux' rule is once a second, so a socket that it says nothing to
    // waits for its next SYN, and for the one after.)
    network.outside(&["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.icmp_ratelimit=0"])?;
    network.outside(&["ip", "route", "add", "unreachable", "198.51.100.0/25"])?;
    Ok(())
}

/// Each connects by a socket that has been another connection's, or was to be.
const AGAIN: &str = r#"
import ctypes, errno, select, socket, time
libc = ctypes.CDLL(None)
there, nowhere, nobody = ("10.78.9.1", 7), ("198.51.100.1", 7), ("10.78.9.1", 9)
def ended(s):
    s.settimeout(5); s.sendall(b"x"); return s.recv(1)
def how(s, peer):
    s.setblocking(True)
    try: s.connect(peer); return ended(s)
    except OSError as e: return errno.errorcode.get(e.errno, type(e).__name__)
def later(s):
    # (What it says of the first time depends on when the router's answer came.)
    failed = (errno.EALREADY, errno.ECONNABORTED, errno.EHOSTUNREACH)
    while (error := s.connect_ex(there)) in failed: time.sleep(0.05)
    assert error == errno.EINPROGRESS, error
    poll = select.poll(); poll.register(s, select.POLLOUT)
    return ended(s) if poll.poll(5000) == [(s.fileno(), select.POLLOUT)] else "no"
def dissolve(s): assert libc.connect(s.fileno(), bytes(16), 16) == 0
# Somebody of this host listens there too: he must not answer for the other host.
own = socket.socket(); own.bind(("0.0.0.0", 9)); own.listen()
# (Until Linux knows the neighbour, it connects.)
socket.create_connection(there, 20).close()
s = socket.socket(); print("waits", how(s, nowhere), how(s, there), flush=True)
s = socket.socket(); s.setblocking(False); s.connect_ex(nowhere)
poll = select.poll(); poll.register(s, select.POLLOUT); poll.poll(5000)
print("does not wait", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.EHOSTUNREACH, later(s), flush=True)
s = socket.socket(); first = how(s, there)
dissolve(s); print("dissolved", first, how(s, nobody), flush=True)
s = socket.socket(); s.setblocking(False); s.connect_ex(("10.78.9.77", 7)); s.setblocking(True)
dissolve(s); print("dissolved while it connects", how(s, there), flush=True)
print("end", flush=True)
"#;

fn again() -> Outcome {
    let network = Network::new("ag")?;
    let service = network.serve()?;
    let _server = echo_server(&network)?;
    unreachable(&network)?;
    network.device("neigh replace 10.78.9.77 lladdr 02:00:00:00:00:77 dev inner nud permanent")?;
    let plain = lines_until_end(&mut network.inside_python(AGAIN, &[])?)?;
    let under = lines_until_end(&mut network.under_tcp(&["python3", "-c", AGAIN])?)?;
    if plain != under {
        return Err(format!("{plain:?}\nunder --tcp: {under:?}").into());
    }
    network.until_no_flows(&service)
}

fn waits_and_fails() -> Outcome {
    let network = Network::new("wf")?;
    let service = network.serve()?;
    let _server = echo_server(&network)?;
    unreachable(&network)?;
    let script = r#"
import errno, socket, time
socket.create_connection(("10.78.9.1", 7), 20).close()
for _ in range(4):
    s = socket.socket(); error = s.connect_ex(("198.51.100.1", 7))
    assert error == errno.EHOSTUNREACH, error
print("failed", flush=True)
time.sleep(60)
"#;
    let mut client = network.under_tcp(&["python3", "-c", script])?;
    client.says("failed")?;
    let mut last = String::new();
    let none = network.until(Duration::from_secs(3), "", || {
        last = service.flows().unwrap_or_default();
        !last.is_empty() && !last.contains("198.51.100.1:7")
    });
    none.map_err(|_| format!("the service still has: {last}").into())
}

fn no_detour() -> Outcome {
    // Down, connections are still registered with the service, which lets go of them after a while;
    // without it, not any more.
    for (words, most) in [("set uncopy0 down", 7), ("del uncopy0", 1)] {
        let network = Network::new("nd")?;
        let _service = network.serve()?;
        let mut server = network.outside_python(ENDS, &[])?;
        server.says("listens")?;
        let script = r#"
import socket, sys
def short():
    s = socket.create_connection(("10.78.9.1", 7), 20); s.sendall(b"x"); s.close()
short(); print("here", flush=True); sys.stdin.readline()
short(); print("done", flush=True); sys.stdin.readline()
"#;
        let once = "import socket; socket.create_connection(('10.78.9.1', 7), 20)";
        network.inside(&["python3", "-c", once])?;
        server.line()?;
        let mut client = network.under_tcp_talking(&["python3", "-c", script])?;
        client.says("here")?;
        server.line()?;
        network.device(&format!("link {words}"))?;
        // (The service hears of it.)
        std::thread::sleep(Duration::from_millis(200));
        client.tell()?;
        client.says("done")?;
        let said = server.line()?;
        if said.parse::<f64>().is_ok_and(|seconds| seconds <= f64::from(most)) {
            continue;
        }
        return Err(format!("link {words}: the server heard of the end after {said} s").into());
    }
    Ok(())
}

/// Says of each connection how long its end took to come.
const ENDS: &str = r#"
import socket, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", 7)); listener.listen(512)
print("listens", flush=True)
while True:
    s, _ = listener.accept(); begun = time.monotonic(); s.settimeout(20)
    try:
        while s.recv(65536): pass
    except OSError as error: print(error, flush=True); continue
    print(time.monotonic() - begun, flush=True)
"#;

fn not_followed() -> Outcome {
    let network = Network::new("nf")?;
    let service = network.serve()?;
    let _server = echo_server(&network)?;
    network.device("neigh replace 10.78.9.77 lladdr 02:00:00:00:00:77 dev inner nud permanent")?;
    // Closed while they connect: one of the standard numbers, one that signals.
    let script = r#"
import fcntl, os, socket, time
socket.create_connection(("10.78.9.1", 7), 20).close()
s = socket.socket(); s.setblocking(False); os.dup2(s.fileno(), 0); s.close()
s = socket.socket(fileno=0); s.connect_ex(("10.78.9.77", 7)); s.close()
s = socket.socket(); s.setblocking(False); fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)
s.connect_ex(("10.78.9.77", 7)); s.close()
print("closed", flush=True); time.sleep(60)
"#;
    let mut client = network.under_tcp(&["python3", "-c", script])?;
    client.says("closed")?;
    let flows = service.flows()?;
    if flows.contains("10.78.9.77") {
        return Err(format!("the service connects: {flows}").into());
    }
    Ok(())
}

fn failures() -> Outcome {
    let network = Network::new("f")?;
    let service = network.serve()?;
    let _server = echo_server(&network)?;
    // Somebody who is known and does not answer.
    network.inside(&[
        "ip",
        "neigh",
        "replace",
        "10.78.9.77",
        "lladdr",
        "02:00:00:00:00:77",
        "dev",
        "inner",
        "nud",
        "permanent",
    ])?;
    unreachable(&network)?;
    network.outside(&["ip", "route", "add", "prohibit", "198.51.100.128/25"])?;
    let plain = lines_until_end(&mut network.inside_python(FAIL, &[])?)?;
    let under = lines_until_end(&mut network.under_tcp(&["python3", "-c", FAIL])?)?;
    if plain != under {
        let both = plain.iter().zip(&under).filter(|(a, b)| a != b);
        let both: Vec<String> = both.map(|(a, b)| format!("{a}\n  under --tcp: {b}")).collect();
        return Err(both.join("\n").into());
    }
    if !plain[0].contains("ECONNREFUSED") {
        return Err(format!("Linux says {plain:?}").into());
    }
    network.until_no_flows(&service)
}

fn redis_clients() -> Outcome {
    let network = Network::new("rc")?;
    network.needs(&["redis-server", "redis-cli", "redis-benchmark"])?;
    let service = network.serve()?;
    let words = [
        "redis-server",
        "--bind",
        "0.0.0.0",
        "--protected-mode",
        "no",
        "--save",
        "",
        "--appendonly",
        "no",
    ];
    let _server = network.outside_beside(&words)?;
    network.until_listens_outside(6379)?;
    network.inside(&["redis-cli", "-h", OUTSIDE, "ping"])?;
    for pipeline in ["1", "16"] {
        let words = [
            "redis-benchmark",
            "-h",
            OUTSIDE,
            "-n",
            "20000",
            "-c",
            "20",
            "-P",
            pipeline,
            "-t",
            "set,get",
            "-q",
            "-e",
        ];
        let said = network.inside_under_tcp(&words)?;
        if !said.contains("GET:") {
            return Err(format!("redis-benchmark says {said}").into());
        }
    }
    // A connection for each request.
    let words = [
        "redis-benchmark",
        "-h",
        OUTSIDE,
        "-n",
        "500",
        "-c",
        "10",
        "-k",
        "0",
        "-t",
        "get",
        "-q",
        "-e",
    ];
    network.inside_under_tcp(&words)?;
    let value = "x".repeat(100_000);
    network.inside_under_tcp(&["redis-cli", "-h", OUTSIDE, "set", "k", &value])?;
    let got = network.inside_under_tcp(&["redis-cli", "-h", OUTSIDE, "get", "k"])?;
    if got.trim() != value {
        return Err(format!("{} bytes came back of 100000", got.len()).into());
    }
    network.until_no_flows(&service)
}

fn curl_and_wrk() -> Outcome {
    let network = Network::new("cw")?;
    network.needs(&["nginx", "curl"])?;
    let service = network.serve()?;
    let (sizes, root) = network.files()?;
    let configuration = network.nginx(&root)?;
    let _nginx = network.outside_beside(&["nginx", "-c", &configuration])?;
    network.until_listens_outside(80)?;
    network.inside(&["curl", "-sS", "-o", "/dev/null", &format!("http://{OUTSIDE}/1")])?;
    for round in 0..3 {
        for size in &sizes {
            let got = network.directory().join("got");
            let (to, url) = (got.display().to_string(), format!("http://{OUTSIDE}/{size}"));
            // (Twice over one connection.)
            network.inside_under_tcp(&[
                "curl",
                "-sS",
                "--fail",
                "--max-time",
                "30",
                "-o",
                "/dev/null",
                &url,
                "-o",
                &to,
                &url,
            ])?;
            same(&got, &root.join(size.to_string()), round)?;
        }
    }
    if network.needs(&["wrk"]).is_ok() {
        let url = format!("http://{OUTSIDE}/1000");
        let said = network.inside_under_tcp(&["wrk", "-t", "2", "-c", "20", "-d", "2", &url])?;
        if said.contains("Non-2xx")
            || said.contains("Socket errors")
            || !said.contains("requests in")
        {
            return Err(format!("wrk says {said}").into());
        }
    }
    network.until_no_flows(&service)
}

fn both_ends() -> Outcome {
    let network = Network::new("b")?;
    let (service, other) = (network.serve()?, network.serve_outside()?);
    let mut server = network.outside_under_tcp(&["python3", "-c", ECHO])?;
    server.says("listens")?;
    network.until_steered_outside(7)?;
    let mut client = network.under_tcp_talking(&["python3", "-c", CLIENT, OUTSIDE])?;
    client.says("right")?;
    let counts = [service.count("10.78.9.1:7\"")?, other.count("10.78.9.1:7\"")?];
    if counts.iter().any(|count| *count < 12) {
        return Err(format!("over the wire: {counts:?}").into());
    }
    drop(client);
    network.until_no_flows(&service)?;
    network.until_no_flows(&other)
}

/// Connects without waiting, says so, and how it ends.
const SLOW: &str = r#"
import errno, select, socket
s = socket.socket(); s.setblocking(False)
print(errno.errorcode[s.connect_ex(("10.78.9.1", 7))], flush=True)
poll = select.poll(); poll.register(s, select.POLLOUT)
poll.poll(30000)
print("ended", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), flush=True)
s.setblocking(True); s.sendall(b"hello"); print(s.recv(5), flush=True)
"#;

/// A program connects to somebody who does not answer; then something happens, and he does.
fn connects_slowly(network: &Network, meanwhile: impl FnOnce() -> Outcome) -> Outcome {
    let _server = echo_server(network)?;
    let neighbour = |at: &str| {
        let words =
            ["ip", "neigh", "replace", OUTSIDE, "lladdr", at, "dev", "inner", "nud", "permanent"];
        network.inside(&words)
    };
    let there = network.outside(&["cat", "/sys/class/net/outer/address"])?;
    neighbour("02:00:00:00:00:99")?;
    std::thread::sleep(Duration::from_millis(200));
    let mut client = network.under_tcp_talking(&["python3", "-c", SLOW])?;
    client.says("EINPROGRESS")?;
    std::thread::sleep(Duration::from_millis(300));
    meanwhile()?;
    neighbour(there.trim())?;
    client.says("ended 0")?;
    client.says("b'hello'")
}

fn dies_while_connecting() -> Outcome {
    let network = Network::new("d")?;
    let service = network.serve()?;
    connects_slowly(&network, || {
        let ways = network.inside(&["ip", "-s", "link", "show", "type", "tun"])?;
        if !ways.contains("uncopy0") {
            return Err(format!("no device: {ways}").into());
        }
        service.kill();
        Ok(())
    })
}

fn no_stand_in() -> Outcome {
    let network = Network::new("ns")?;
    network.needs(&["prlimit"])?;
    let service = network.serve()?;
    connects_slowly(&network, || service.has_no_descriptors())
}

fn held(network: &Network, count: usize) -> Result<Beside, Stop> {
    let script = r#"
import socket, sys
all = [socket.create_connection(("10.78.9.1", 7), 20) for _ in range(int(sys.argv[1]))]
for _ in range(10):
    for s in all: s.sendall(b"ping"); assert s.recv(4) == b"ping"
print("here", flush=True)
ends = {}
for s in all:
    s.settimeout(20)
    try: how = repr(s.recv(1))
    except OSError as e: how = type(e).__name__
    ends[how] = ends.get(how, 0) + 1
print(ends, flush=True)
"#;
    // (So that Linux knows the neighbour.)
    let once = "import socket; socket.create_connection(('10.78.9.1', 7), 20)";
    network.inside(&["python3", "-c", once])?;
    let mut client = network.under_tcp(&["python3", "-c", script, &count.to_string()])?;
    client.says("here")?;
    Ok(client)
}

fn service_killed() -> Outcome {
    let network = Network::new("x")?;
    let service = network.serve()?;
    let _server = echo_server(&network)?;
    let mut client = held(&network, 20)?;
    if service.count_flows()? < 20 {
        return Err(format!("not all go over the wire: {}", service.flows()?).into());
    }
    service.kill();
    client.says("{'ConnectionResetError': 20}")?;
    // From then on Linux connects; and the next service takes over.
    let plain = held(&network, 2)?;
    drop(plain);
    let service = network.serve()?;
    let _client = held(&network, 5)?;
    if service.count_flows()? < 5 {
        return Err(format!("the next service has only {}", service.flows()?).into());
    }
    Ok(())
}

fn killed() -> Outcome {
    let network = Network::new("y")?;
    let service = network.serve()?;
    let server = echo_server(&network)?;
    for _ in 0..2 {
        held(&network, 30)?.kill();
        network.until_no_flows(&service)?;
        network.until(Duration::from_secs(10), "the server still has connections", || {
            let said = network.outside(&["ss", "-Htn", "state", "established"]);
            said.is_ok_and(|said| said.trim().is_empty())
        })?;
    }
    let mut client = held(&network, 30)?;
    server.kill();
    client.says("{\"b''\": 30}")?;
    network.until_no_flows(&service)
}
