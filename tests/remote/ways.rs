//! How a service reaches its device: by a TAP beside it where it copies anyway (as in all other
//! tests), by AF_XDP, by the other where one is refused; by several queues, carried by several
//! threads or by fewer.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::network::{ADDRESS, Kind, Network, OUTSIDE, Service, USUAL};
use crate::{Named, Outcome, connecting};
use uncopy_tests::verdict::Stop;

/// Those of this file.
pub const ALL: [Named; 14] = [
    ("redis_answers_other_hosts_by_af_xdp", redis_by_xdp),
    ("nginx_sends_every_byte_by_af_xdp", nginx_by_xdp),
    ("programs_connect_by_af_xdp", echoes_by_xdp),
    ("a_killed_server_resets_its_clients_by_af_xdp", server_killed_by_xdp),
    ("a_killed_service_by_af_xdp_resets_its_connections", service_killed_by_xdp),
    ("a_device_that_cannot_have_a_tap_is_reached_by_af_xdp", no_tap),
    ("a_device_that_has_an_xdp_program_is_reached_by_a_tap", has_a_program),
    ("what_a_program_writes_before_it_closes_is_cut_as_its_device_takes_it", writes_and_closes),
    ("nobody_but_root_may_have_the_tap", foreign_queue),
    ("a_tap_that_goes_down_and_up_is_waited_for", tap_down_and_up),
    ("a_service_has_several_devices_and_goes_on_when_one_is_gone", several_devices),
    ("two_devices_of_one_network_are_each_answered_by", one_network),
    ("several_queues_are_carried_by_as_many_threads", several_queues),
    ("several_queues_by_af_xdp_are_carried_by_fewer_threads_if_so_told", fewer_threads),
];

const XDP: Kind = Kind { queues: 1, offloads: false, options: &["--by", "xdp"] };

fn by_xdp(which: &str) -> Result<Network, Stop> {
    Network::of(which, XDP)
}

fn redis_by_xdp() -> Outcome {
    crate::redis_answers_over(&by_xdp("xr")?)
}

fn nginx_by_xdp() -> Outcome {
    crate::nginx_sends_over(&by_xdp("xn")?)
}

fn echoes_by_xdp() -> Outcome {
    connecting::echoes_over(&by_xdp("xe")?)
}

fn server_killed_by_xdp() -> Outcome {
    crate::server_killed_over(&by_xdp("xk")?)
}

fn service_killed_by_xdp() -> Outcome {
    crate::service_killed_over(&by_xdp("xs")?)
}

/// Three connections go over the wire.
fn carries(network: &Network, service: &Service) -> Outcome {
    let _redis = crate::redis(network)?;
    network.until_steered(crate::REDIS)?;
    let _clients = crate::hold(network, 3)?;
    match service.count_flows()? {
        3.. => Ok(()),
        few => Err(format!("{few} of 3 connections over the wire: {}", service.flows()?).into()),
    }
}

fn says(service: &Service, what: &str) -> Outcome {
    if service.reached.contains(what) {
        return Ok(());
    }
    Err(format!("the service says '{}', not '{what}'", service.reached).into())
}

fn no_tap() -> Outcome {
    let network = Network::of("xt", Kind { options: &[], ..XDP })?;
    let service = network.serve_without_tun()?;
    says(&service, "by AF_XDP on inner")?;
    carries(&network, &service)
}

fn has_a_program() -> Outcome {
    let network = Network::of("xx", USUAL)?;
    // (The owner of the program does not matter: here it is another service's.)
    let _first = network.serve_as("uncopy-tcp-another", &["--by", "xdp"])?;
    let service = network.serve()?;
    says(&service, "by a TAP device beside inner")?;
    carries(&network, &service)
}

fn writes_and_closes() -> Outcome {
    let network = Network::new("wc")?;
    let _service = network.serve()?;
    let script = r#"
import socket, threading
def serve(c):
    if c.recv(1): c.sendall(bytes(range(256)) * 400)
    c.close()
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", 7001)); s.listen()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"#;
    let _server = network.under_tcp(&["python3", "-c", script])?;
    network.until_listens(7001)?;
    network.until_steered(7001)?;
    let client = r#"
import socket, sys, time
for _ in range(20):
    # (The program has closed when the last part finds room here.)
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 40000); s.connect((sys.argv[1], 7001))
    s.sendall(b"x"); time.sleep(0.1); got = b""
    while part := s.recv(65536): got += part
    assert got == bytes(range(256)) * 400, len(got)
"#;
    network.outside(&["python3", "-c", client, ADDRESS])?;
    // A frame that is longer than its MTU, and not said to be several, a device drops.
    let ends = [
        network.inside(&["ip", "-s", "-j", "link", "show", "inner"])?,
        network.outside(&["ip", "-s", "-j", "link", "show", "outer"])?,
    ];
    let dropped = || ends.iter().flat_map(|end| end.split("\"dropped\":").skip(1));
    match dropped().all(|count| count.starts_with("0,") || count.starts_with("0}")) {
        true if dropped().count() == 4 => Ok(()),
        _ => Err(format!("the device has dropped some: {ends:?}").into()),
    }
}

/// The TAP's name.
fn tap(network: &Network) -> Result<String, Stop> {
    let links = network.inside(&["ip", "-br", "link"])?;
    let name = links.lines().filter_map(|line| line.split_whitespace().next());
    name.map(str::to_owned)
        .find(|name| name.starts_with("uncopy-"))
        .ok_or_else(|| format!("no TAP among: {links}").into())
}

fn foreign_queue() -> Outcome {
    let network = Network::new("fq")?;
    let _service = network.serve()?;
    // As nobody: TUNSETIFF with the flags that it was made with.
    let script = r#"
import errno, fcntl, os, struct, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try: fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", sys.argv[1].encode(), 0x5102)); print("attached")
except OSError as e: print(errno.errorcode[e.errno])
"#;
    match network.inside(&["python3", "-c", script, &tap(&network)?])?.trim() {
        "EPERM" => Ok(()),
        said => Err(said.to_owned().into()),
    }
}

fn tap_down_and_up() -> Outcome {
    let network = Network::new("td")?;
    let mut service = network.serve()?;
    let _redis = crate::redis(&network)?;
    network.until_steered(crate::REDIS)?;
    let tap = tap(&network)?;
    let script = r#"
import socket, sys, time
s = socket.create_connection((sys.argv[1], 6379), 60)
for i in range(100):
    s.sendall(b"PING\r\n"); assert s.recv(7) == b"+PONG\r\n"
    if i == 10: print("here", flush=True)
    time.sleep(0.02)
print("done", flush=True)
"#;
    let mut client = network.outside_python(script, &[ADDRESS])?;
    client.says("here")?;
    network.device(&format!("link set {tap} down"))?;
    std::thread::sleep(Duration::from_millis(300));
    network.device(&format!("link set {tap} up"))?;
    client.says("done")?;
    if service.has_ended() { Err("the service has ended".to_owned().into()) } else { Ok(()) }
}

/// Ends of connections by each of two devices: opened there and here, they exchange bytes, and say
/// how they end.
const BOTH: &str = r#"
import socket, sys, threading
def exchange(s):
    part = bytes(range(256)) * 400
    threading.Thread(target=s.sendall, args=(part,), daemon=True).start()
    got = b""
    while len(got) < len(part): got += s.recv(65536)
    assert got == part
def end(s):
    try: return "bytes" if s.recv(1) else "ended"
    except ConnectionResetError: return "reset"
ends = [socket.create_connection((peer, 7), 20) for peer in sys.argv[1:]]
for s in ends: exchange(s)
print("right", *(s.getsockname()[0] for s in ends), flush=True); sys.stdin.readline()
print(end(ends[1]), flush=True)
exchange(ends[0]); print("right", flush=True); sys.stdin.readline()
"#;

fn several_devices() -> Outcome {
    let network = Network::new("sd")?;
    network.second_device()?;
    let service = network.serve_with(&["--if", "inner2"])?;
    let mut echo = network.outside_python(connecting::ECHO, &[])?;
    echo.says("listens")?;
    // (Until Linux knows the neighbours, it connects.)
    let once = "import socket\nfor end in ('10.78.9.1', '10.79.9.1'): \
        socket.create_connection((end, 7), 20)";
    network.inside(&["python3", "-c", once])?;
    let words = ["python3", "-c", BOTH, OUTSIDE, "10.79.9.1"];
    let mut client = network.under_tcp_talking(&words)?;
    client.says("right 10.78.9.2 10.79.9.2")?;
    // And from there, to one that listens at all addresses.
    let mut server = network.under_tcp(&["python3", "-c", connecting::ECHO])?;
    server.says("listens")?;
    network.until_steered(7)?;
    let words = ["python3", "-c", BOTH, ADDRESS, "10.79.9.2"];
    let mut outside = network.outside_python_talking(BOTH, &words[3..])?;
    outside.says("right 10.78.9.1 10.79.9.1")?;
    let flows = service.wired()?;
    for (end, port) in [("address", 7), ("peer", 7)] {
        for ip in ["10.78.9.", "10.79.9."] {
            let its = |flow: &&String| {
                flow.contains(&format!("\"{end}\":\"{ip}")) && flow.contains(&format!(":{port}\""))
            };
            if flows.iter().filter(its).count() < 2 {
                return Err(format!("not two of {ip}: {flows:?}").into());
            }
        }
    }
    network.device("link del inner2")?;
    client.tell()?;
    client.says("reset")?;
    client.says("right")?;
    // New ones go on by the first.
    let again = network.inside_under_tcp(&["python3", "-c", AGAIN, OUTSIDE])?;
    if again.trim() != "right" {
        return Err(again.into());
    }
    match service.wired()?.iter().any(|flow| flow.contains("10.79.9.")) {
        false => Ok(()),
        true => Err("connections by the device that is gone are still told of".to_owned().into()),
    }
}

/// Both devices of one network: a peer that asks for either's address is answered by it, and what
/// is opened goes as Linux would send it.
fn one_network() -> Outcome {
    let network = Network::new("so")?;
    network.second_device_of_its_network()?;
    let service = network.serve_with(&["--if", "inner2"])?;
    let mut server = network.under_tcp(&["python3", "-c", connecting::ECHO])?;
    server.says("listens")?;
    network.until_steered(7)?;
    let words = [ADDRESS, "10.78.9.4"];
    let mut outside = network.outside_python_talking(BOTH, &words)?;
    outside.says("right 10.78.9.1 10.78.9.1")?;
    let flows = service.wired()?;
    for own in words {
        if !flows.iter().any(|flow| flow.contains(&format!("\"address\":\"{own}:7\""))) {
            return Err(format!("{own} is not reached over the wire: {flows:?}").into());
        }
    }
    drop(outside);
    let mut other =
        network.outside_python(&connecting::ECHO.replace("0.0.0.0\", 7", "0.0.0.0\", 8"), &[])?;
    other.says("listens")?;
    // (The first is Linux', if it does not know the neighbour.)
    let opens = AGAIN.replace(", 7)", ", 8)");
    for _ in 0..2 {
        let said = network.inside_under_tcp(&["python3", "-c", &opens, OUTSIDE])?;
        if said.trim() != "right" {
            return Err(said.into());
        }
    }
    network.device("link del inner2")?;
    let said = network.outside(&["python3", "-c", AGAIN, ADDRESS])?;
    if said.trim() == "right" { Ok(()) } else { Err(said.into()) }
}

const AGAIN: &str = r#"
import socket, sys
s = socket.create_connection((sys.argv[1], 7), 20); s.sendall(b"x"); assert s.recv(1) == b"x"
print("right")
"#;

fn several_queues() -> Outcome {
    let kind = Kind { queues: 4, ..USUAL };
    carried("q4", kind, "(4 queues, carried by 4 threads at most)", 4)
}

fn fewer_threads() -> Outcome {
    let options = &["--by", "xdp", "--cores", "2"];
    let kind = Kind { queues: 4, options, ..XDP };
    carried("q2", kind, "(4 queues, carried by 2 threads at most)", 2)
}

/// All that redis does; and its connections are so many lanes'.
fn carried(which: &str, kind: Kind, queues: &str, lanes: usize) -> Outcome {
    let network = Network::of(which, kind)?;
    crate::redis_answers_over(&network)?;
    let service = network.serve()?;
    says(&service, queues)?;
    let _redis = crate::redis(&network)?;
    network.until_steered(crate::REDIS)?;
    let _clients = crate::hold(&network, 40)?;
    let flows = service.wired()?;
    let lane = |flow: &String| Some(flow.split("\"lane\":").nth(1)?.split(',').next()?.to_owned());
    let seen: BTreeSet<String> = flows.iter().filter_map(lane).collect();
    if seen.len() == lanes { Ok(()) } else { Err(format!("lanes {seen:?}: {flows:?}").into()) }
}
