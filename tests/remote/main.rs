//! Programs over a device: unmodified servers under `uncopy run --tcp` in one network namespace, unmodified clients of Linux in another, a veth between them, and `uncopy tcp serve --if` at the
//! servers' end of it; and programs under it that connect to plain servers there (`connecting`). Every byte is compared; server, service and clients are killed in turn.
//!
//! `cargo test -p uncopy-tests --test remote [NAME]`. Needs root, iproute2, python3, redis, nginx and curl.

#![forbid(unsafe_code)]

mod connecting;
mod looks;
mod network;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use network::{ADDRESS, Beside, Network};
use uncopy_tests::verdict::{Stop, test};

type Outcome = Result<(), Stop>;

/// A test: its name, what it does.
type Named = (&'static str, fn() -> Outcome);

fn main() -> ExitCode {
    let all: [Named; 5] = [
        ("redis_answers_other_hosts_over_the_wire", redis_answers),
        ("nginx_sends_every_byte", nginx_sends),
        ("a_killed_server_resets_its_clients_and_its_port_is_linuxs", server_killed),
        ("a_killed_service_resets_its_connections_and_one_started_anew_takes_over", service_killed),
        ("killed_clients_leave_nothing_behind", clients_killed),
    ];
    let all = all.into_iter().chain(connecting::ALL).chain(looks::ALL);
    let trials: Vec<Trial> = all.map(|(name, body)| test(name, body)).collect();
    let mut arguments = Arguments::from_args();
    // (Each has a machine's worth of processes.)
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

const REDIS: u16 = 6379;

fn redis(network: &Network) -> Result<Beside, Stop> {
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
    let server = network.under_tcp(&words)?;
    network.until_listens(REDIS)?;
    Ok(server)
}

/// So many connections that stay, each of which asks and is answered twenty times; prints a line once all have been, and one for how they have ended. One that
/// has not heard of its end after 5 seconds asks once more.
const HOLD: &str = r#"
import socket, sys, time
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
all = [socket.create_connection((address, port), timeout=20) for _ in range(count)]
def ping(s):
    s.sendall(b"PING\r\n"); got = b""
    while len(got) < 7:
        part = s.recv(7 - len(got))
        if not part: raise SystemExit("ended early")
        got += part
    assert got == b"+PONG\r\n", got
for _ in range(20):
    for s in all: ping(s)
print("here", flush=True)
begun, ends = time.monotonic(), {}
for s in all:
    s.settimeout(max(0.1, begun + 5 - time.monotonic()))
    how = "by itself"
    while True:
        try: how = ("end " if s.recv(1) == b"" else "bytes ") + how
        except ConnectionResetError: how = "reset " + how
        except TimeoutError:
            if how == "when it asks": how = "nothing " + how; break
            how = "when it asks"
            s.settimeout(20); s.sendall(b"PING\r\n"); continue
        break
    ends[how] = ends.get(how, 0) + 1
print(sorted(ends.items()), flush=True)
"#;

fn redis_answers() -> Outcome {
    let network = Network::new("r")?;
    network.needs(&["redis-server", "redis-cli", "redis-benchmark"])?;
    let service = network.serve()?;
    let _redis = redis(&network)?;
    network.until_steered()?;
    // Values of all sizes, there and back.
    let script = r#"
import random, socket, sys
s = socket.create_connection((sys.argv[1], 6379), timeout=20)
f = s.makefile("rb")
for n in [1, 63, 64, 1000, 1448, 1449, 16384, 65535, 65536, 100000, 1 << 20, 3 << 20] * 2:
    value = random.Random(n).randbytes(n)
    s.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % n + value + b"\r\n")
    assert f.readline() == b"+OK\r\n"
    s.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
    assert f.readline() == b"$%d\r\n" % n
    assert f.read(n) == value, n
    assert f.read(2) == b"\r\n"
print("right", s.getsockname()[1], flush=True)
s.recv(1)
"#;
    let mut client = network.outside_python(script, &[ADDRESS])?;
    let line = client.line()?;
    let Some(port) = line.strip_prefix("right ") else { return Err(line.into()) };
    // The program knows its peer by name, and its bytes went by a ring of the service's.
    let clients = network.inside(&["redis-cli", "-h", ADDRESS, "client", "list"])?;
    let peer = format!("addr=10.78.9.1:{port}");
    if !clients.contains(&peer) {
        return Err(format!("no {peer} among: {clients}").into());
    }
    let flows = service.flows()?;
    if !flows.contains(&format!("10.78.9.1:{port}")) {
        return Err(
            format!("the service does not know the connection of port {port}: {flows}").into()
        );
    }
    drop(client);
    for pipeline in ["1", "16"] {
        let words = [
            "redis-benchmark",
            "-h",
            ADDRESS,
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
        let said = network.outside(&words)?;
        if !said.contains("GET:") {
            return Err(format!("redis-benchmark says {said}").into());
        }
    }
    network.until_no_flows(&service)
}

fn nginx_sends() -> Outcome {
    let network = Network::new("n")?;
    network.needs(&["nginx", "curl"])?;
    let service = network.serve()?;
    let (sizes, root) = network.files()?;
    let configuration = network.nginx(&root)?;
    let _nginx = network.under_tcp(&["nginx", "-c", &configuration])?;
    network.until_listens(80)?;
    network.until_steered()?;
    for round in 0..3 {
        for size in &sizes {
            let got = network.directory().join("got");
            let (to, url) = (got.display().to_string(), format!("http://{ADDRESS}/{size}"));
            // (Twice over one connection.)
            network.outside(&[
                "curl",
                "-sS",
                "--fail",
                "--max-time",
                "30",
                "-o",
                &to,
                &url,
                "-o",
                "/dev/null",
                &url,
            ])?;
            same(&got, &root.join(size.to_string())).map_err(|e| format!("round {round}: {e}"))?;
        }
    }
    network.until_no_flows(&service)
}

fn same(got: &Path, wanted: &Path) -> Result<(), String> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let (got, wanted) = (read(got)?, read(wanted)?);
    if got == wanted {
        return Ok(());
    }
    let at = got.iter().zip(&wanted).position(|(a, b)| a != b);
    Err(format!("{} bytes of {}, the first other one at {at:?}", got.len(), wanted.len()))
}

fn hold(network: &Network, count: usize) -> Result<Beside, Stop> {
    let mut clients =
        network.outside_python(HOLD, &[ADDRESS, &REDIS.to_string(), &count.to_string()])?;
    match clients.line()?.as_str() {
        "here" => Ok(clients),
        other => Err(format!("the clients say '{other}'").into()),
    }
}

fn server_killed() -> Outcome {
    let network = Network::new("k")?;
    network.needs(&["redis-server", "redis-cli"])?;
    let service = network.serve()?;
    let server = redis(&network)?;
    network.until_steered()?;
    let mut clients = hold(&network, 30)?;
    if service.count_flows()? < 30 {
        return Err(format!("not all connections go over the wire: {}", service.flows()?).into());
    }
    server.kill();
    let ends = clients.line()?;
    // As Linux: a socket of a killed process is closed in order, or reset where bytes were unread.
    if !["[('end by itself', 30)]", "[('reset by itself', 30)]"].contains(&ends.as_str()) {
        return Err(format!("the clients' connections: {ends}").into());
    }
    network.until_no_flows(&service)?;
    // Nobody listens: Linux says so, at the second try at the latest.
    network.until(Duration::from_secs(10), "new connections are not refused", || {
        let said = network.outside(&["redis-cli", "-h", ADDRESS, "ping"]);
        matches!(said, Err(Stop::Fail(why)) if why.contains("refused"))
    })?;
    // And a new one is steered to again.
    let _server = redis(&network)?;
    network.until_steered()?;
    drop(hold(&network, 3)?);
    Ok(())
}

fn service_killed() -> Outcome {
    let network = Network::new("s")?;
    network.needs(&["redis-server", "redis-cli"])?;
    let service = network.serve()?;
    let _server = redis(&network)?;
    network.until_steered()?;
    let mut clients = hold(&network, 30)?;
    service.kill();
    // The program's ends are reset at once. Their peers' next segment is Linux', which knows no such connection. (Nobody is left who could tell them before.)
    let ends = clients.line()?;
    drop(clients);
    // (By itself where something of its own still reaches Linux: a probe, an acknowledgement.)
    if !ends.contains("reset")
        || ["end ", "bytes ", "nothing "].iter().any(|how| ends.contains(how))
    {
        return Err(format!("the clients' connections: {ends}").into());
    }
    let own = network.inside(&["redis-cli", "-h", ADDRESS, "client", "list"])?;
    if own.contains("addr=10.78.9.1") {
        return Err(format!("the server still has them: {own}").into());
    }
    let plain = network.outside(&["redis-cli", "-h", ADDRESS, "ping"])?;
    if plain.trim() != "PONG" {
        return Err(format!("by Linux: {plain}").into());
    }
    // Started anew: a connection that comes by Linux makes the program show its listener again.
    let service = network.serve()?;
    network.until(
        Duration::from_secs(20),
        "the service that was started anew takes nothing over",
        || {
            let _ = network.outside(&["redis-cli", "-h", ADDRESS, "ping"]);
            std::thread::sleep(Duration::from_millis(1100));
            let clients = hold(&network, 3);
            let taken = service.count_flows().is_ok_and(|count| count >= 3);
            drop(clients);
            taken
        },
    )
}

fn clients_killed() -> Outcome {
    let network = Network::new("c")?;
    network.needs(&["redis-server", "redis-cli"])?;
    let service = network.serve()?;
    let _server = redis(&network)?;
    network.until_steered()?;
    let memory = service.memory()?;
    for _ in 0..3 {
        let clients = hold(&network, 100)?;
        clients.kill();
        network.until_no_flows(&service)?;
        let own = network.inside(&["redis-cli", "-h", ADDRESS, "client", "list"])?;
        if own.contains("addr=10.78.9.1") {
            return Err(format!("the server still has them: {own}").into());
        }
    }
    // (100 connections' buffers would be 13 MB.)
    let begun = Instant::now();
    while service.memory()? > memory + (16 << 20) {
        if begun.elapsed() > Duration::from_secs(5) {
            return Err(format!("{} bytes before, {} after", memory, service.memory()?).into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
