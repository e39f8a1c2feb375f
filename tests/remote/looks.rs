//! Looks at connections over the wire: from outside by `uncopy tcp flows` and `uncopy tcp trace`,
//! to their program by TCP_INFO.

use crate::network::{Network, OUTSIDE};
use crate::{Named, Outcome, connecting};

/// Those of this file.
pub const ALL: [Named; 2] = [
    ("a_trace_has_every_byte_of_the_chosen_connections_and_flows_tell_of_them", traced),
    ("tcp_info_tells_of_the_way_to_the_other_host", informed),
];

/// Connects, says so, and exchanges bytes that both sides can tell when told to.
const CLIENT: &str = r#"
import socket, sys
s = socket.create_connection((sys.argv[1], 7), 20); other = socket.create_connection((sys.argv[1], 8), 20)
print(s.getsockname()[1], flush=True)
sys.stdin.readline()
for i in range(100):
    part = b"%06d" % i * 200
    for c in (s, other):
        c.sendall(part); got = b""
        while len(got) < len(part): got += c.recv(65536)
        assert got == part
print("done", flush=True)
sys.stdin.readline()
s.close(); other.close()
print("closed", flush=True)
sys.stdin.readline()
"#;

/// Reads the file: all frames are of port 7, and there are so many; the bytes of both directions,
/// put together by their numbers, are what was sent.
const READ: &str = r#"
import struct, sys
file, port, said = open(sys.argv[1], "rb").read(), int(sys.argv[2]), int(sys.argv[3])
at, frames, streams, begins = 0, 0, {}, {}
while at < len(file):
    kind, length = struct.unpack_from("<II", file, at)
    if kind == 6:
        captured, = struct.unpack_from("<I", file, at + 20)
        frame = file[at + 28:at + 28 + captured]
        assert frame[12:14] == b"\x08\x00" and frame[23] == 6
        ip = frame[14:]; tcp = ip[(ip[0] & 15) * 4:struct.unpack_from("!H", ip, 2)[0]]
        ends = struct.unpack_from("!HH", tcp)
        assert set(ends) == {7, port}, ends
        number, = struct.unpack_from("!I", tcp, 4); body = tcp[(tcp[12] >> 4) * 4:]
        if tcp[13] & 2: begins[ends] = number
        stream = streams.setdefault(ends, {})
        for i, byte in enumerate(body): stream[number + i & 0xffffffff] = byte
        frames += 1
    at += length
assert frames == said > 100, (frames, said)
wanted = b"".join(b"%06d" % i * 200 for i in range(100))
for ends, stream in streams.items():
    first = min(stream)
    got = bytes(stream[n] for n in sorted(stream))
    assert len(stream) == max(stream) - first + 1 and got == wanted, (ends, len(got), len(wanted))
assert len(streams) == 2
print("right")
"#;

/// Says what TCP_INFO tells of one connection that came, one that it opened, and one within this
/// host: the state, the payload of a segment, the round trip, bytes that were acknowledged, what
/// the peer has room for. By libc's function, and by number.
const INFORMED: &str = r#"
import ctypes, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def info(s, by_number):
    if not by_number: told = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    else:
        room, length = ctypes.create_string_buffer(232), ctypes.c_uint(232)
        assert libc.syscall(55, s.fileno(), socket.IPPROTO_TCP, socket.TCP_INFO, room, ctypes.byref(length)) == 0
        told = room.raw[:length.value]
    assert len(told) == 232
    number = lambda at, kind="I": struct.unpack_from(kind, told, at)[0]
    return told[0], number(16), number(68), number(120, "Q"), number(228)
def exchange(s, n):
    s.sendall(bytes(n)); left = n
    while left: left -= len(s.recv(left))
listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); listener.bind(("0.0.0.0", 7001)); listener.listen()
print("listens", flush=True); sys.stdin.readline()
came = listener.accept()[0]
# (Not one that only looked whether the listener is the service's.)
while came.recv(1) != b"x": came = listener.accept()[0]
exchange(came, 100000)
opened = socket.create_connection((sys.argv[1], 7), 20); exchange(opened, 100000)
within = socket.create_connection(("127.0.0.1", 7001), 20)
ends = came, opened, within
for s in ends:
    for by_number in (False, True):
        state, mss, rtt, acked, room = info(s, by_number)
        far = s is not within
        assert state == 1 and (mss == 1448) == far and (acked >= 100000) == far and 0 < rtt < 1000000 and room > 0, (far, state, mss, rtt, acked, room)
# No more than is asked for.
assert len(came.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 20)) == 20
try: came.getsockopt(socket.IPPROTO_TCP, 9999, 20); print("?")
except OSError as e: assert e.errno == 92, e
print("right", flush=True); sys.stdin.readline()
# The service has gone: Linux tells what it knows.
for s in ends: assert len(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)) == 232
print("right", flush=True)
"#;

fn informed() -> Outcome {
    let network = Network::new("ti")?;
    let service = network.serve()?;
    let mut server = network.outside_python(connecting::ECHO, &[])?;
    server.says("listens")?;
    let once = "import socket; socket.create_connection(('10.78.9.1', 7), 20)";
    network.inside(&["python3", "-c", once])?;
    let mut program = network.under_tcp_talking(&["python3", "-c", INFORMED, OUTSIDE])?;
    program.says("listens")?;
    network.until_steered(7001)?;
    let echo = "import socket, sys\ns = socket.create_connection((sys.argv[1], 7001), 20); \
        s.sendall(b'x')\nwhile (got := s.recv(65536)): s.sendall(got)";
    let _client = network.outside_python(echo, &[crate::ADDRESS])?;
    program.tell()?;
    program.says("right")?;
    service.kill();
    program.tell()?;
    program.says("right")
}

fn traced() -> Outcome {
    let network = Network::new("t")?;
    let service = network.serve()?;
    let mut servers = [7, 8].map(|port| {
        let script =
            connecting::ECHO.replace("(\"0.0.0.0\", 7)", &format!("(\"0.0.0.0\", {port})"));
        network.outside_python(&script, &[])
    });
    for server in &mut servers {
        server.as_mut().map_err(|why| why.clone())?.says("listens")?;
    }
    let once = "import socket; socket.create_connection(('10.78.9.1', 7), 20)";
    network.inside(&["python3", "-c", once])?;
    let mut client = network.under_tcp_talking(&["python3", "-c", CLIENT, OUTSIDE])?;
    let port = client.line()?;
    let file = network.directory().join("trace.pcapng").display().to_string();
    let mut trace = service.trace(":7", &file)?;
    client.tell()?;
    client.says("done")?;
    let flows = service.flows()?;
    let wired = flows.split("\"wired\":").nth(1).unwrap_or_default();
    for wanted in [
        format!("\"address\":\"10.78.9.2:{port}\""),
        "\"peer\":\"10.78.9.1:7\"".into(),
        "\"peer\":\"10.78.9.1:8\"".into(),
        "\"state\":\"ESTAB\"".into(),
        // (Bytes, and the SYN.)
        "\"delivered\":120000".into(),
    ] {
        if !wired.contains(&wanted) {
            return Err(format!("no {wanted} among: {flows}").into());
        }
    }
    trace.interrupt()?;
    let said = trace.line()?;
    let Some(frames) = said.strip_suffix(&format!(" frames in {file}")) else {
        return Err(said.into());
    };
    let read = network.inside(&["python3", "-c", READ, &file, &port, &frames.replace(',', "")])?;
    if read.trim() != "right" {
        return Err(read.into());
    }
    client.tell()?;
    client.says("closed")?;
    network.until_no_flows(&service)
}
