//! Choices for the connections of a program: how they slow down, how many there may be, how fast
//! they send.

use std::time::Duration;

use crate::network::{ADDRESS, Beside, Network, OUTSIDE};
use crate::{Named, Outcome, connecting};
use uncopy_tests::verdict::Stop;

/// Those of this file.
pub const ALL: [Named; 8] = [
    ("connections_slow_down_as_their_program_or_the_service_says", slows),
    ("a_program_that_has_all_connections_that_it_may_refuses_more_and_others_do_not", many),
    ("what_a_program_may_not_open_by_the_service_linux_opens", many_opened),
    ("what_a_program_sends_keeps_to_its_rate", fast),
    ("a_listener_that_signs_is_linuxs", signs),
    ("a_listener_that_is_given_a_key_is_linuxs_from_then_on", signs_later),
    ("a_program_that_signs_connects_by_linux", signs_and_connects),
    ("a_listener_with_a_filter_is_linuxs", filters),
];

/// Listens at both ports, at the second with a choice of its own, and connects to both of the other
/// host's.
const CHOOSES: &str = r#"
import socket, sys, threading
def choose(s, port):
    if port == 7002: s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
def listen(port):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); choose(s, port)
    s.bind(("0.0.0.0", port)); s.listen(); return s
listeners = [listen(port) for port in (7001, 7002)]
print("listens", flush=True); sys.stdin.readline()
mine = []
for port in (7001, 7002):
    s = socket.socket(); choose(s, port); s.connect(("10.78.9.1", port)); s.sendall(b"x"); assert s.recv(1) == b"x"; mine.append(s)
print("connected", flush=True)
theirs = []
def serve(listener):
    while True: theirs.append(listener.accept()[0]); theirs[-1].sendall(b"x")
for listener in listeners: threading.Thread(target=serve, args=(listener,), daemon=True).start()
sys.stdin.readline()
"#;

/// The other host's.
const OTHER: &str = r#"
import socket, sys
listeners = []
for port in (7001, 7002):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", port)); s.listen(); listeners.append(s)
print("listens", flush=True)
# (Until Linux knows the neighbour, it connects.)
listeners[0].accept()[0].close()
theirs = []
for listener in listeners: s = listener.accept()[0]; s.sendall(s.recv(1)); theirs.append(s)
print("accepted", flush=True); sys.stdin.readline()
mine = [socket.create_connection((sys.argv[1], port), timeout=20) for port in (7001, 7002)]
for s in mine: assert s.recv(1) == b"x"
print("connected", flush=True); sys.stdin.readline()
"#;

fn slows() -> Outcome {
    let network = Network::new("cc")?;
    let service = network.serve_with(&["--congestion", "timely"])?;
    let mut other = network.outside_python_talking(OTHER, &[ADDRESS])?;
    other.says("listens")?;
    let once = "import socket; socket.create_connection(('10.78.9.1', 7001), 20)";
    network.inside(&["python3", "-c", once])?;
    let mut program = network.under_tcp_talking(&["python3", "-c", CHOOSES])?;
    program.says("listens")?;
    network.until_steered(7001)?;
    network.until_steered(7002)?;
    program.tell()?;
    program.says("connected")?;
    other.says("accepted")?;
    other.tell()?;
    other.says("connected")?;
    let flows = service.wired()?;
    for (end, port, wanted) in [
        ("\"address\":\"10.78.9.2", 7001, "timely"),
        ("\"address\":\"10.78.9.2", 7002, "reno"),
        ("\"peer\":\"10.78.9.1", 7001, "timely"),
        ("\"peer\":\"10.78.9.1", 7002, "reno"),
    ] {
        let of = |flow: &&String| flow.contains(&format!("{end}:{port}\""));
        let right = |flow: &String| flow.contains(&format!("\"{wanted}\""));
        let its: Vec<&String> = flows.iter().filter(of).collect();
        if its.is_empty() || !its.into_iter().all(right) {
            return Err(format!("{end}:{port} not by {wanted}: {flows:?}").into());
        }
    }
    Ok(())
}

/// A server at this port that keeps each connection until its peer closes it.
fn keeps(network: &Network, port: u16) -> Result<Beside, Stop> {
    let script = connecting::ECHO.replace("(\"0.0.0.0\", 7)", &format!("(\"0.0.0.0\", {port})"));
    let mut server = network.under_tcp(&["python3", "-c", &script])?;
    server.says("listens")?;
    network.until_steered(port)?;
    Ok(server)
}

fn many() -> Outcome {
    let network = Network::new("lm")?;
    let service = network.serve_with(&["--connections", "3"])?;
    let (_server, _other) = (keeps(&network, 7001)?, keeps(&network, 7002)?);
    let none =
        || service.wired().is_ok_and(|flows| !flows.iter().any(|flow| flow.contains("ESTAB")));
    network.until(Duration::from_secs(10), "connections are left", none)?;
    let clients = r#"
import socket, sys
all, ends = [], []
for port in [7001] * 5 + [7002]:
    try:
        s = socket.create_connection((sys.argv[1], port), timeout=10); s.settimeout(10)
        s.sendall(b"x"); ends.append(s.recv(1)); all.append(s)
    except OSError as error: ends.append(type(error).__name__)
print(ends, flush=True); sys.stdin.readline()
# Room is there again once some have ended.
all.pop(0).close()
for _ in range(50):
    try:
        s = socket.create_connection((sys.argv[1], 7001), timeout=10); s.settimeout(10)
        s.sendall(b"x"); print(s.recv(1), flush=True); break
    except ConnectionRefusedError: import time; time.sleep(0.1)
"#;
    let mut clients = network.outside_python_talking(clients, &[ADDRESS])?;
    let refused = "'ConnectionRefusedError'";
    clients.says(&format!("[b'x', b'x', b'x', {refused}, {refused}, b'x']"))?;
    let flows = service.flows()?;
    if !flows.contains("\"over-limit\":2") {
        return Err(format!("two are not counted: {flows}").into());
    }
    clients.tell()?;
    clients.says("b'x'")
}

fn many_opened() -> Outcome {
    let network = Network::new("lo")?;
    let service = network.serve_with(&["--connections", "2"])?;
    let mut server = network.outside_python(connecting::ECHO, &[])?;
    server.says("listens")?;
    let once = "import socket; socket.create_connection(('10.78.9.1', 7), 20)";
    network.inside(&["python3", "-c", once])?;
    let script = r#"
import socket, sys
all = [socket.create_connection((sys.argv[1], 7), 20) for _ in range(4)]
for s in all: s.sendall(b"x"); assert s.recv(1) == b"x"
print("right", flush=True); sys.stdin.readline()
"#;
    let mut client = network.under_tcp_talking(&["python3", "-c", script, OUTSIDE])?;
    client.says("right")?;
    let over = service.wired()?.len();
    if over == 2 { Ok(()) } else { Err(format!("{over} over the wire").into()) }
}

fn fast() -> Outcome {
    let network = Network::new("lr")?;
    let _service = network.serve_with(&["--rate", "8M"])?;
    let _server = keeps(&network, 7001)?;
    // Two connections together: two million bytes, a million a second.
    let client = r#"
import socket, sys, threading, time
def run():
    s = socket.create_connection((sys.argv[1], 7001), timeout=20); s.settimeout(20)
    threading.Thread(target=s.sendall, args=(bytes(1_000_000),), daemon=True).start()
    n = 0
    while n < 1_000_000: n += len(s.recv(65536))
begun = time.monotonic()
threads = [threading.Thread(target=run) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
print(time.monotonic() - begun)
"#;
    let took = network.outside(&["python3", "-c", client, ADDRESS])?;
    let right = took.trim().parse().is_ok_and(|seconds: f64| (1.8..5.0).contains(&seconds));
    if right { Ok(()) } else { Err(format!("it took {took} s").into()) }
}

/// Segments to this peer are signed by a key, and so are those that come from there (TCP_MD5SIG).
const SIGN: &str = r#"
import socket, struct, sys
def sign(s, peer):
    at = struct.pack("HH4s120x", socket.AF_INET, 0, socket.inet_aton(peer))
    try: s.setsockopt(socket.IPPROTO_TCP, 14, at + struct.pack("BBHi80s", 0, 0, 3, 0, b"key"))
    except OSError as error: print("none:", error, flush=True); sys.exit()
"#;

/// Answers who signs.
const SIGNING_SERVER: &str = r#"
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", 7001)); sign(s, sys.argv[1]); s.listen()
print("listens", flush=True)
while True: c = s.accept()[0]; c.sendall(c.recv(1))
"#;

/// Connects with the key, and without one.
const SIGNED: &str = r#"
s = socket.socket(); s.settimeout(5); sign(s, sys.argv[1])
try: s.connect((sys.argv[1], 7001)); s.sendall(b"x"); print(s.recv(1))
except OSError as error: print(error)
"#;
const UNSIGNED: &str = r#"
import socket, sys
s = socket.socket(); s.settimeout(3)
try: s.connect((sys.argv[1], 7001)); print("connected")
except OSError as error: print(error)
"#;

/// The output of a program that signs, unless the kernel knows no signing.
fn signing(line: String) -> Result<String, Stop> {
    if line.starts_with("none") {
        return Err(Stop::Skip(format!("the kernel does not sign: {line}")));
    }
    Ok(line)
}

fn signs() -> Outcome {
    let network = Network::new("sg")?;
    let service = network.serve()?;
    let script = format!("{SIGN}{SIGNING_SERVER}");
    let mut server = network.under_tcp(&["python3", "-c", &script, OUTSIDE])?;
    signing(server.line()?)?;
    // (A listener that was registered before is steered to as well by then.)
    let _other = keeps(&network, 7002)?;
    let said = network.outside(&["python3", "-c", &format!("{SIGN}{SIGNED}"), ADDRESS])?;
    if said.trim() != "b'x'" {
        return Err(format!("{said}; the service has {}", service.flows()?).into());
    }
    Ok(())
}

fn signs_later() -> Outcome {
    let network = Network::new("sl")?;
    let service = network.serve()?;
    // (Its child, which accepts, does not hear of the key, and registers the listener again when a
    // connection has come by Linux.)
    let script = r#"
import os
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", 7001)); s.listen(); ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    while True:
        c = s.accept()[0]
        if c.getsockopt(socket.SOL_SOCKET, 36) == 0x75637079:
            try: c.setsockopt(socket.IPPROTO_TCP, 14, bytes(216)); theirs.send(b"?")
            except OSError as error: theirs.send(b"%d" % error.errno)
        if byte := c.recv(1): c.sendall(byte)
        c.close()
print("listens", flush=True); sys.stdin.readline()
sign(s, sys.argv[1]); print("signs", ours.recv(9).decode(), flush=True); sys.stdin.readline()
"#;
    let script = format!("{SIGN}{script}");
    let mut server = network.under_tcp_talking(&["python3", "-c", &script, OUTSIDE])?;
    server.says("listens")?;
    network.until_steered(7001)?;
    server.tell()?;
    let said = signing(server.line()?)?;
    let signed = format!("{SIGN}{SIGNED}");
    for turn in 0..3 {
        let answer = network.outside(&["python3", "-c", &signed, ADDRESS])?;
        if answer.trim() != "b'x'" {
            return Err(format!("turn {turn}: {answer}; {}", service.flows()?).into());
        }
        // A segment that is not signed is not answered.
        let answer = network.outside(&["python3", "-c", UNSIGNED, ADDRESS])?;
        if answer.trim() != "timed out" {
            return Err(format!("turn {turn}, unsigned: {answer}").into());
        }
    }
    // A connection that the service carries cannot be signed (EBUSY).
    if said == "signs 16" { Ok(()) } else { Err(said.into()) }
}

fn signs_and_connects() -> Outcome {
    let network = Network::new("sc2")?;
    let service = network.serve()?;
    let mut server = network.outside_python(&format!("{SIGN}{SIGNING_SERVER}"), &[ADDRESS])?;
    signing(server.line()?)?;
    // (Now Linux knows the neighbour, and the service would take the next one.)
    let knock = "import socket, sys; socket.socket().connect_ex((sys.argv[1], 9))";
    network.inside(&["python3", "-c", knock, OUTSIDE])?;
    let said = network.inside_under_tcp(&["python3", "-c", &format!("{SIGN}{SIGNED}"), OUTSIDE])?;
    if said.trim() == "b'x'" {
        return Ok(());
    }
    Err(format!("{said}; the service has {}", service.flows()?).into())
}

fn filters() -> Outcome {
    let network = Network::new("fi")?;
    let service = network.serve()?;
    // Lets all through. Three listeners: with a filter before, one that gets it, none.
    let script = r#"
import ctypes, socket, struct, sys, threading
code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffffffff))
def filters(s): s.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 1, ctypes.addressof(code)))
all = []
for port in (7001, 7002, 7003):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", port)); all.append(s)
    if port == 7001: filters(s)
    s.listen()
def serve(s):
    while True: c = s.accept()[0]; kept.append(c); threading.Thread(target=echo, args=(c,), daemon=True).start()
def echo(c):
    try:
        while part := c.recv(100): c.sendall(part)
    except OSError: pass
kept = []
for s in all: threading.Thread(target=serve, args=(s,), daemon=True).start()
print("listens", flush=True); sys.stdin.readline()
filters(all[1]); print("filters", flush=True); sys.stdin.readline()
"#;
    let mut server = network.under_tcp_talking(&["python3", "-c", script])?;
    server.says("listens")?;
    network.until_steered(7002)?;
    network.until_steered(7003)?;
    server.tell()?;
    server.says("filters")?;
    let client = r#"
import socket, sys
all = []
for port in (7001, 7002, 7003) * 2:
    s = socket.create_connection((sys.argv[1], port), timeout=20); s.settimeout(20); all.append(s)
    for _ in range(10): s.sendall(b"x"); assert s.recv(1) == b"x"
print(*(s.getsockname()[1] for s in all), flush=True); sys.stdin.readline()
"#;
    let mut client = network.outside_python_talking(client, &[ADDRESS])?;
    let ports = client.line()?;
    let wired = service.wired()?;
    let is_wired = |port: &str| {
        let peer = format!("\"peer\":\"{OUTSIDE}:{port}\"");
        wired.iter().any(|flow| flow.contains(&peer))
    };
    let found: Vec<bool> = ports.split(' ').map(is_wired).collect();
    if found == [false, false, true, false, false, true] {
        return Ok(());
    }
    Err(format!("{found:?} of {ports}: {wired:?}").into())
}
