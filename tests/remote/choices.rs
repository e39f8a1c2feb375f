//! What is chosen for the connections of a program: how they slow down.

use crate::network::{ADDRESS, Network};
use crate::{Named, Outcome};

/// Those of this file.
pub const ALL: [Named; 1] = [("connections_slow_down_as_their_program_or_the_service_says", slows)];

/// Listens at both ports, at the second with a choice of its own, and connects to both of the other host's.
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
