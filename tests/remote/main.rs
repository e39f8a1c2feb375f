//! Programs over a device: unmodified servers under `uncopy run --tcp` in one network namespace,
//! unmodified clients of Linux in another, a veth between them, and `uncopy tcp serve --if` at the
//! servers' end of it; and programs under it that connect to plain servers there (`connecting`).
//! Every byte is compared; server, service and clients are killed in turn.
//!
//! `cargo test -p uncopy-tests --test remote [NAME]`. Needs root, iproute2, python3, redis, nginx
//! and curl.

#![forbid(unsafe_code)]

mod choices;
mod connecting;
mod far;
mod hostile;
mod looks;
mod network;
mod users;
mod ways;

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
    let all: [Named; 14] = [
        ("redis_answers_other_hosts_over_the_wire", redis_answers),
        ("nginx_sends_every_byte", nginx_sends),
        ("a_killed_server_resets_its_clients_and_its_port_is_linuxs", server_killed),
        ("a_killed_service_resets_its_connections_and_one_started_anew_takes_over", service_killed),
        ("killed_clients_leave_nothing_behind", clients_killed),
        (
            "a_listener_that_its_program_closed_refuses_the_second_client_at_the_latest",
            listener_closed,
        ),
        (
            "listeners_that_are_closed_while_the_service_is_stopped_refuse_and_their_ports_are_free",
            closed_while_stopped,
        ),
        ("a_port_that_another_user_listens_at_now_is_linuxs", others_listener),
        (
            "a_connection_that_the_program_has_closed_and_its_peer_never_does_is_forgotten",
            left_open,
        ),
        ("a_peer_that_takes_its_time_gets_what_a_program_sent_before_it_closed", read_late),
        ("connections_live_through_a_device_that_goes_down_and_up_while_they_send", down_and_up),
        ("neighbours_are_heard_of_after_more_news_than_there_is_room_for", much_news),
        ("connections_follow_the_routes_to_their_peers", routes_change),
        ("a_service_whose_device_is_gone_ends", device_gone),
    ];
    let all = all.into_iter().chain(connecting::ALL).chain(choices::ALL);
    let all = all
        .chain(looks::ALL)
        .chain(hostile::ALL)
        .chain(users::ALL)
        .chain(ways::ALL)
        .chain(far::ALL);
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

/// So many connections that stay, each of which asks and is answered twenty times; prints a line
/// once all have been, and one for how they have ended. One that has not heard of its end after 5
/// seconds asks once more.
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
    redis_answers_over(&Network::new("r")?)
}

fn redis_answers_over(network: &Network) -> Outcome {
    network.needs(&["redis-server", "redis-cli", "redis-benchmark"])?;
    let service = network.serve()?;
    let _redis = redis(network)?;
    network.until_steered(REDIS)?;
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
    nginx_sends_over(&Network::new("n")?)
}

fn nginx_sends_over(network: &Network) -> Outcome {
    network.needs(&["nginx", "curl"])?;
    let service = network.serve()?;
    let (sizes, root) = network.files()?;
    let configuration = network.nginx(&root)?;
    let _nginx = network.under_tcp(&["nginx", "-c", &configuration])?;
    network.until_listens(80)?;
    network.until_steered(80)?;
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
            same(&got, &root.join(size.to_string()), round)?;
        }
    }
    network.until_no_flows(&service)
}

fn same(got: &Path, wanted: &Path, round: usize) -> Result<(), Stop> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|e| format!("round {round}: {}: {e}", path.display()))
    };
    let (got, wanted) = (read(got)?, read(wanted)?);
    if got == wanted {
        return Ok(());
    }
    let at = got.iter().zip(&wanted).position(|(a, b)| a != b);
    let what = format!("{} bytes of {}, the first other one at {at:?}", got.len(), wanted.len());
    Err(format!("round {round}: {what}").into())
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
    server_killed_over(&Network::new("k")?)
}

fn server_killed_over(network: &Network) -> Outcome {
    network.needs(&["redis-server", "redis-cli"])?;
    let service = network.serve()?;
    let server = redis(network)?;
    network.until_steered(REDIS)?;
    let mut clients = hold(network, 30)?;
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
    let _server = redis(network)?;
    network.until_steered(REDIS)?;
    drop(hold(network, 3)?);
    Ok(())
}

fn service_killed() -> Outcome {
    service_killed_over(&Network::new("s")?)
}

fn service_killed_over(network: &Network) -> Outcome {
    network.needs(&["redis-server", "redis-cli"])?;
    let service = network.serve()?;
    let _server = redis(network)?;
    network.until_steered(REDIS)?;
    let mut clients = hold(network, 30)?;
    service.kill();
    // The program's ends are reset at once. Their peers' next segment is Linux', which knows no
    // such connection. (Nobody is left who could tell them before.)
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
    // Started anew: a connection that comes by Linux makes the program register its listener again.
    let service = network.serve()?;
    network.until(
        Duration::from_secs(20),
        "the service that was started anew takes nothing over",
        || {
            let _ = network.outside(&["redis-cli", "-h", ADDRESS, "ping"]);
            std::thread::sleep(Duration::from_millis(1100));
            let clients = hold(network, 3);
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
    network.until_steered(REDIS)?;
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

/// Listens at port 7001, and says so.
const LISTEN: &str = r#"
import os, socket, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", 7001)); listener.listen(64)
print("listens", flush=True)
"#;

/// A server under `uncopy run --tcp` of which a test's own script is the program. It says a line
/// once it listens at port 7001.
fn python_server(network: &Network, script: &str) -> Result<Beside, Stop> {
    let mut server = network.under_tcp(&["python3", "-c", &format!("{LISTEN}{script}")])?;
    server.line()?;
    Ok(server)
}

fn listener_closed() -> Outcome {
    let network = Network::new("l")?;
    let service = network.serve()?;
    let script = r#"
while True:
    connection, _ = listener.accept()
    if connection.recv(1) == b"c": break
listener.close()
print("closed", flush=True)
time.sleep(60)
"#;
    let mut server = python_server(&network, script)?;
    network.until_steered(7001)?;
    let client = r#"
import socket, sys
socket.create_connection((sys.argv[1], 7001), timeout=20).sendall(b"c")
"#;
    network.outside(&["python3", "-c", client, ADDRESS])?;
    server.line()?;
    // Linux' errors for the stand-in are passed to its client, soon; from then on Linux tells the
    // client itself.
    let client = r#"
import socket, sys
for attempt in range(2):
    try:
        s = socket.create_connection((sys.argv[1], 7001), timeout=10)
        s.settimeout(10)
        print(s.recv(1))
    except Exception as error: print(type(error).__name__)
"#;
    let said = network.outside(&["python3", "-c", client, ADDRESS])?;
    let refused = "ConnectionRefusedError";
    if ![format!("ConnectionResetError {refused}"), format!("{refused} {refused}")]
        .contains(&said.split_whitespace().collect::<Vec<_>>().join(" "))
    {
        return Err(format!("the clients: {said}").into());
    }
    network.until_no_flows(&service)
}

fn closed_while_stopped() -> Outcome {
    let network = Network::new("cs")?;
    let service = network.serve()?;
    let script = r#"
def refuses(port):
    try: socket.create_connection(("127.0.0.1", port))
    except ConnectionRefusedError: return True
sys.stdin.readline()
refused = bound = 0
for _ in range(50):
    another = socket.socket()
    try: another.bind(("0.0.0.0", 7002)); another.listen(4); bound += 1
    except OSError: pass
    another.close()
    refused += bool(refuses(7002))
listener.close()
print(bound, refused, refuses(7001), flush=True)
time.sleep(60)
"#;
    let script = format!("{LISTEN}{script}");
    let mut server = network.under_tcp_talking(&["python3", "-c", &script])?;
    server.says("listens")?;
    network.until_steered(7001)?;
    service.gets("STOP")?;
    server.tell()?;
    let said = server.says("50 50 True");
    service.gets("CONT")?;
    said
}

fn others_listener() -> Outcome {
    let network = Network::new("ol")?;
    let service = network.serve()?;
    let script = r#"
while (connection := listener.accept()[0]).recv(1) != b"c": pass
listener.close(); connection.close()
print("closed", flush=True)
time.sleep(60)
"#;
    let mut server = python_server(&network, script)?;
    network.until_steered(7001)?;
    let client = r#"
import socket, sys
socket.create_connection((sys.argv[1], 7001), timeout=20).sendall(b"c")
"#;
    network.outside(&["python3", "-c", client, ADDRESS])?;
    server.says("closed")?;
    // Nobody has told the service; and somebody does listen.
    let other = r#"
import os, socket
os.setgid(65534); os.setuid(65534)
listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", 7001)); listener.listen()
print("listens", flush=True)
all = []
while True:
    all.append(listener.accept()[0])
    try: all[-1].sendall(b"secret")
    except ConnectionResetError: pass
"#;
    let mut other = network.inside_python(other, &[])?;
    other.says("listens")?;
    let client = r#"
import socket, sys, time
for _ in range(3):
    try:
        s = socket.create_connection((sys.argv[1], 7001), timeout=10)
        s.settimeout(10)
        print(s.recv(6).decode(), flush=True)
    except OSError as error: print(type(error).__name__, flush=True)
    time.sleep(0.2)
print("here", flush=True); time.sleep(60)
"#;
    let mut clients = network.outside_python(client, &[ADDRESS])?;
    // The first one shows the service that it is not its own any more.
    for wanted in ["ConnectionResetError", "secret", "secret", "here"] {
        clients.says(wanted)?;
    }
    if network.stand_ins()? > 0 {
        return Err(format!("the service stands in: {}", service.flows()?).into());
    }
    Ok(())
}

fn left_open() -> Outcome {
    let network = Network::new("o")?;
    network.inside(&["sysctl", "-qw", "net.ipv4.tcp_fin_timeout=2"])?;
    let _service = network.serve()?;
    // Closed, and shut down only: a side that can still read keeps the connection.
    let script = r#"
def user():
    while True:
        connection, _ = listener.accept()
        while got := connection.recv(1):
            if got == b"x": return connection
closed, shut = user(), user()
closed.close(); shut.shutdown(socket.SHUT_WR)
while True:
    got = shut.recv(1)
    if not got: break
    print("late", got, flush=True)
"#;
    let mut server = python_server(&network, script)?;
    network.until_steered(7001)?;
    let client = r#"
import socket, sys, time
def use():
    s = socket.create_connection((sys.argv[1], 7001), timeout=20)
    for _ in range(50): s.sendall(b"-"); time.sleep(0.01)
    s.sendall(b"x")
    return s
closed, shut = use(), use()
print(closed.recv(1), shut.recv(1), flush=True)
time.sleep(12)
shut.sendall(b"y")
try: closed.sendall(b"y"); time.sleep(1); closed.sendall(b"y"); print("taken", flush=True)
except (ConnectionResetError, BrokenPipeError): print("reset", flush=True)
time.sleep(60)
"#;
    let mut clients = network.outside_python(client, &[ADDRESS])?;
    let both = clients.line()?;
    if both != "b'' b''" {
        return Err(format!("the clients receive {both}").into());
    }
    let one = network.until(Duration::from_secs(11), "", || matches!(network.stand_ins(), Ok(1)));
    one.map_err(|_| format!("not one stand-in is left: {:?}", network.stand_ins()))?;
    let (ends, late) = (clients.line()?, server.line()?);
    if ends != "reset" || late != "late b'y'" {
        return Err(format!("the closed one: {ends}; the one that was shut down: {late}").into());
    }
    Ok(())
}

fn read_late() -> Outcome {
    let network = Network::new("rl")?;
    network.inside(&["sysctl", "-qw", "net.ipv4.tcp_fin_timeout=1"])?;
    let service = network.serve()?;
    let script = r#"
while True:
    connection, _ = listener.accept()
    if connection.recv(1) == b"x": connection.sendall(bytes(range(250)) * 240)
    connection.close()
"#;
    let _server = python_server(&network, script)?;
    network.until_steered(7001)?;
    // It has little room, and looks only after Linux has forgotten the closed socket.
    let client = r#"
import socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048); s.settimeout(20)
s.connect((sys.argv[1], 7001)); s.sendall(b"x"); time.sleep(5)
got = b""
while part := s.recv(65536): got += part
print(got == bytes(range(250)) * 240)
"#;
    let said = network.outside(&["python3", "-c", client, ADDRESS])?;
    if said.trim() != "True" {
        return Err(format!("what came is right: {said}").into());
    }
    // (Its own end comes after that of a connection in FIN_WAIT_2.)
    network.until_no_flows(&service)
}

fn down_and_up() -> Outcome {
    let network = Network::new("d")?;
    let _service = network.serve()?;
    let script = r#"
import random, threading
def serve(connection):
    data = random.Random(1).randbytes(1 << 20)
    try:
        for _ in range(60): connection.sendall(data); time.sleep(0.05)
        connection.close()
    except OSError as error: print(error, flush=True)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,)).start()
"#;
    let _server = python_server(&network, script)?;
    network.until_steered(7001)?;
    let client = r#"
import random, socket, sys, threading
data = random.Random(1).randbytes(1 << 20)
ends = []
def run():
    s = socket.create_connection((sys.argv[1], 7001), timeout=60)
    f = s.makefile("rb")
    for i in range(60):
        if f.read(1 << 20) != data: ends.append("wrong"); return
        if i == 2: print("going", flush=True)
    ends.append("right" if f.read(1) == b"" else "more")
all = [threading.Thread(target=run) for _ in range(4)]
[t.start() for t in all]; [t.join() for t in all]
print(sorted(ends), flush=True)
"#;
    let mut clients = network.outside_python(client, &[ADDRESS])?;
    (0..4).try_for_each(|_| clients.line().map(drop))?;
    for _ in 0..2 {
        network.device("link set inner down")?;
        std::thread::sleep(Duration::from_millis(700));
        network.device("link set inner up")?;
        std::thread::sleep(Duration::from_millis(700));
    }
    let ends = clients.line()?;
    if ends != "['right', 'right', 'right', 'right']" {
        return Err(format!("the clients: {ends}").into());
    }
    Ok(())
}

fn much_news() -> Outcome {
    let network = Network::new("w")?;
    let _service = network.serve()?;
    let script = r#"
all = []
while True:
    connection, _ = listener.accept()
    connection.sendall(b"hello"); all.append(connection)
"#;
    let _server = python_server(&network, script)?;
    network.until_steered(7001)?;
    // A routing daemon's.
    let commands: String = (0..20_000)
        .map(|i| format!("route add 10.{}.{}.0/24 via 10.78.9.1\n", 100 + i / 200 % 100, i % 200))
        .collect();
    let more = commands.replace("add", "del");
    let file = network.directory().join("routes");
    std::fs::write(&file, commands + &more).map_err(|e| e.to_string())?;
    let file = file.display().to_string();
    for _ in 0..2 {
        network.device(&format!("-force -batch {file} 2>/dev/null || true"))?;
    }
    // A client of another address is a neighbour that is to be heard of.
    network.outside(&["ip", "addr", "add", "10.78.9.77/24", "dev", "outer"])?;
    let client = r#"
import socket, sys
s = socket.create_connection((sys.argv[1], 7001), timeout=15, source_address=("10.78.9.77", 0))
s.settimeout(15)
print(s.recv(5).decode())
"#;
    let said = network.outside(&["python3", "-c", client, ADDRESS])?;
    if said.trim() == "hello" { Ok(()) } else { Err(said.into()) }
}

fn routes_change() -> Outcome {
    let network = Network::new("v")?;
    let service = network.serve()?;
    let script = r#"
all = []
while True:
    connection, _ = listener.accept()
    def serve(connection):
        while part := connection.recv(4096): connection.sendall(part)
    import threading
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"#;
    let _server = python_server(&network, script)?;
    // The client is behind a router, which has two addresses.
    for words in ["addr add 192.0.2.1/32 dev lo", "addr add 10.78.9.3/24 dev outer"] {
        let words: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        network.outside(&words)?;
    }
    let there = network.outside(&["cat", "/sys/class/net/outer/address"])?;
    network.device("route add 192.0.2.0/24 via 10.78.9.1")?;
    network.until_steered(7001)?;
    let client = r#"
import socket, sys
s = socket.create_connection((sys.argv[1], 7001), timeout=20, source_address=("192.0.2.1", 0))
s.settimeout(20)
def echo(n):
    part = bytes([n]) * 100_000; s.sendall(part[:50_000]); s.sendall(part[50_000:]); got = b""
    while len(got) < len(part):
        more = s.recv(65536)
        assert more
        got += more
    assert got == part
for n in range(20): echo(n)
print("here", flush=True); sys.stdin.readline()
for n in range(20): echo(n)
print("right", flush=True)
"#;
    let mut client = network.outside_python_talking(client, &[ADDRESS])?;
    client.says("here")?;
    if service.count("192.0.2.1:")? == 0 {
        return Err(format!("not over the wire: {}", service.flows()?).into());
    }
    // The router is not to be reached by its first address any more; Linux' route leads by the
    // second one.
    network.device("neigh replace 10.78.9.1 lladdr 02:00:00:00:00:99 dev inner nud permanent")?;
    network.device(&format!(
        "neigh replace 10.78.9.3 lladdr {} dev inner nud permanent",
        there.trim()
    ))?;
    network.device("route replace 192.0.2.0/24 via 10.78.9.3")?;
    client.tell()?;
    client.says("right")
}

fn device_gone() -> Outcome {
    let network = Network::new("g")?;
    let mut service = network.serve()?;
    network.device("link del inner")?;
    network.until(Duration::from_secs(10), "the service goes on without its device", || {
        service.has_ended()
    })
}
