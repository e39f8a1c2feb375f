//! What is shown of connections over the wire from outside: `uncopy tcp flows` and `uncopy tcp trace`.

use crate::network::{Network, OUTSIDE};
use crate::{Named, Outcome, connecting};

/// Those of this file.
pub const ALL: [Named; 1] =
    [("a_trace_has_every_byte_of_the_chosen_connections_and_flows_tell_of_them", traced)];

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

/// Reads the file: all frames are of port 7, and there are so many; the bytes of both directions, put together by their numbers, are what was sent.
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
