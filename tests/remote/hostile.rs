//! Peers that mean harm: floods of SYNs, connections that are never used as they should be. The
//! service's memory stays what it was, or as much as so many connections have at most; and the
//! other connections go on. And programs of this host that listen where they should not.

use crate::network::{ADDRESS, Network, OUTSIDE};
use crate::{Named, Outcome, REDIS, redis};

/// Those of this file.
pub const ALL: [Named; 6] = [
    ("a_far_peer_may_send_what_the_programs_ring_has_room_for", far),
    ("segments_in_any_order_and_several_times_come_to_the_program_once_and_in_order", any_order),
    ("a_flood_of_syns_costs_no_memory_and_connections_go_on", syns),
    ("under_a_flood_of_syns_clients_come_in_by_cookies_and_connections_of_linux_go_on", cookies),
    ("peers_that_leave_holes_and_take_nothing_have_no_more_memory_than_their_buffers", holes),
    ("a_listener_at_another_hosts_address_is_not_steered", anothers),
];

/// Segments from hosts that are not there: `send(source, port, seq, ack, flags, window, payload)`,
/// `answers()`. With a `shift` SYNs say how windows are scaled; `offered` are the options of the
/// last one that came.
const FORGE: &str = r#"
import random, socket, struct, sys, time
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)); wire.bind(("outer", 0x0800))
wire.setblocking(False)
there, here = bytes.fromhex(sys.argv[1].replace(":", "")), wire.getsockname()[4]
server = socket.inet_aton("10.78.9.2")
shift, offered = None, b""
def checksum(data):
    if len(data) % 2: data += b"\0"
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xffff); total += total >> 16
    return ~total & 0xffff
def send(source, port, seq, ack, flags, window=65535, payload=b""):
    options = struct.pack("!BBH", 2, 4, 1460) if flags & 2 else b""
    if options and shift is not None: options += bytes([1, 3, 3, shift])
    def tcp(sum): return struct.pack("!HHIIBBHHH", port, 6379, seq & 0xffffffff, ack & 0xffffffff, (20 + len(options)) << 2, flags, window, sum, 0) + options + payload
    length = len(tcp(0))
    sum = checksum(source + server + struct.pack("!BBH", 0, 6, length) + tcp(0))
    def ip(sum): return struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, seq & 0xffff, 0, 64, 6, sum) + source + server
    frame = there + here + b"\x08\x00" + ip(checksum(ip(0))) + tcp(sum)
    while True:
        try: return wire.send(frame)
        except (BlockingIOError, OSError): time.sleep(0.001)
def answers():
    global offered
    while True:
        try: frame, at = wire.recvfrom(65536)
        except BlockingIOError: return
        if at[2] == 4: continue
        ip = frame[14:]; tcp = ip[20:]
        if ip[9] == 6 and ip[12:16] == server:
            if tcp[13] & 2: offered = tcp[20:tcp[12] >> 2]
            yield ip[16:20], struct.unpack("!HHIIBBH", tcp[:16])
"#;

/// Asks again and again until its input ends; says at once that it is there, and at the end how
/// often it was answered.
const ASKS: &str = r#"
import select, socket, sys
s = socket.create_connection((sys.argv[1], 6379), timeout=20)
count = 0
while True:
    s.sendall(b"PING\r\n"); got = b""
    while len(got) < 7:
        part = s.recv(7 - len(got))
        assert part
        got += part
    assert got == b"+PONG\r\n", got
    count += 1
    if count == 20: print("here", flush=True)
    if select.select([sys.stdin], [], [], 0.001)[0]: break
print(count, flush=True)
"#;

/// With redis behind the service, and routes to hosts that are not there.
fn attacked(network: &Network, script: &str, most: u64) -> Outcome {
    network.needs(&["redis-server"])?;
    let service = network.serve()?;
    let _redis = redis(network)?;
    network.until_steered(REDIS)?;
    network.device("route add 203.0.113.0/24 via 10.78.9.1")?;
    let mut asks = network.outside_python_talking(ASKS, &[ADDRESS])?;
    asks.says("here")?;
    let there = network.inside(&["cat", "/sys/class/net/inner/address"])?;
    let before = service.memory()?;
    let script = format!("{FORGE}{script}");
    let said = network.outside(&["python3", "-c", &script, there.trim()])?;
    let after = service.memory()?;
    asks.tell()?;
    let answered = asks.line()?;
    if answered.parse::<u32>().is_ok_and(|count| count < 100) {
        return Err(format!("answered {answered} times while: {said}").into());
    }
    if after > before + most {
        return Err(format!("{before} bytes before, {after} after: {said}").into());
    }
    println!(
        "{} KB more; {answered} answers meanwhile; {said}",
        (after.max(before) - before) >> 10
    );
    Ok(())
}

fn syns() -> Outcome {
    let script = r#"
begun, answered = time.monotonic(), 0
for n in range(60_000):
    send(bytes([203, 0, 113, random.randrange(1, 255)]), random.randrange(1024, 65536), random.randrange(1 << 32), 0, 2)
    if n % 100 == 0: answered += len(list(answers()))
assert answered > 1000, answered
print("60,000 SYNs in", round(time.monotonic() - begun, 1), "s,", answered, "answers")
"#;
    attacked(&Network::new("sf")?, script, 16 << 20)
}

/// Asks twice from each of ten connections; prints their ports.
const COME: &str = r#"
import socket, sys
all = [socket.create_connection((sys.argv[1], 6379), timeout=20) for _ in range(10)]
for n, s in enumerate(all * 2):
    value = b"%d" % n * 3000
    s.settimeout(20)
    f = s.makefile("rb")
    s.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % len(value) + value + b"\r\n")
    assert f.readline() == b"$%d\r\n" % len(value)
    assert f.read(len(value) + 2) == value + b"\r\n"
print(*(s.getsockname()[1] for s in all), flush=True)
sys.stdin.readline()
"#;

fn cookies() -> Outcome {
    let network = Network::new("sc")?;
    network.needs(&["redis-server"])?;
    // Connected before there is a service: that one is Linux'.
    let _redis = redis(&network)?;
    let mut linuxs = network.outside_python_talking(ASKS, &[ADDRESS])?;
    linuxs.says("here")?;
    let service = network.serve()?;
    // (A connection that comes by Linux makes the program register its listener with a service that
    // is new.)
    network.until_steered(REDIS)?;
    let mut services = network.outside_python_talking(ASKS, &[ADDRESS])?;
    services.says("here")?;
    network.device("route add 203.0.113.0/24 via 10.78.9.1")?;
    let there = network.inside(&["cat", "/sys/class/net/inner/address"])?;
    // More than there are slots; they are half open for a minute.
    let script = format!(
        r#"{FORGE}
for n in range(6_000):
    send(bytes([203, 0, 113, 1 + n % 250]), 1024 + n, 977 * n, 0, 2)
    if n % 100 == 0: list(answers())
time.sleep(0.5)
"#
    );
    network.outside(&["python3", "-c", &script, there.trim()])?;
    let before = service.count_flows()?;
    let mut come = network.outside_python_talking(COME, &[ADDRESS])?;
    let ports = come.line()?;
    for port in ports.split_whitespace() {
        if service.count(&format!("{OUTSIDE}:{port}"))? == 0 {
            return Err(format!("port {port} is Linux': {before}, {}", service.flows()?).into());
        }
    }
    for (asks, whose) in [(&mut linuxs, "Linux'"), (&mut services, "the service's")] {
        asks.tell()?;
        let answered = asks.line()?;
        if answered.parse::<u32>().is_ok_and(|count| count < 100) {
            return Err(format!("{whose} was answered {answered} times").into());
        }
    }
    come.tell()
}

fn holes() -> Outcome {
    const PEERS: u64 = 300;
    // Each asks for something, leaves out every second piece of what it sends from then on, and
    // takes nothing: no window. A third of them says besides that it sends no more.
    let script = r#"
open, wanted = {}, {}
for n in range(300):
    wanted[(bytes([203, 0, 113, 1 + n % 250]), 2000 + n)] = 1000 * n
    host, port = list(wanted)[-1]
    send(host, port, 1000 * n, 0, 2)
end = time.monotonic() + 20
while len(open) < 300 and time.monotonic() < end:
    for host, (_, port, seq, ack, _, flags, _) in answers():
        key = (host, port)
        if flags & 0x12 == 0x12 and key in wanted and key not in open:
            open[key] = seq + 1
            send(host, port, wanted[key] + 1, seq + 1, 0x10, 0)
    time.sleep(0.01)
assert len(open) == 300, len(open)
for turn in range(20):
    for n, ((host, port), ack) in enumerate(open.items()):
        seq = wanted[(host, port)] + 1
        if turn == 0: send(host, port, seq, ack, 0x18, 0, b"PING\r\n")
        for piece in range(2):
            send(host, port, seq + 6 + 1000 + (turn * 2 + piece) * 1500, ack, 0x18, 0, b"x" * 700)
        if turn == 19 and n % 3 == 0: send(host, port, seq + 6 + 60_000, ack, 0x11, 0)
    list(answers())
print("300 peers")
"#;
    attacked(&Network::new("sh")?, script, PEERS * (256 << 10))
}

fn anothers() -> Outcome {
    // A host behind this one, which is a router.
    const ANOTHER: &str = "198.51.100.7";
    let network = Network::new("an")?;
    network.inside(&["sysctl", "-qw", "net.ipv4.ip_forward=1"])?;
    network.outside(&["ip", "route", "add", "198.51.100.0/24", "via", ADDRESS])?;
    let _service = network.serve()?;
    // (An address that is registered later is steered to later. 15: IP_FREEBIND)
    let script = r#"
import socket, sys, time
all = []
for at in ((sys.argv[1], 7001), ("0.0.0.0", 7002)):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_IP, 15, 1); s.bind(at); s.listen(); all.append(s)
print("listens", flush=True); time.sleep(60)
"#;
    let mut server = network.under_tcp(&["python3", "-c", script, ANOTHER])?;
    server.says("listens")?;
    network.until_steered(7002)?;
    let client = r#"
import socket, sys
try: socket.create_connection((sys.argv[1], 7001), timeout=3); print("connected")
except OSError: print("nobody is there")
"#;
    let said = network.outside(&["python3", "-c", client, ANOTHER])?;
    if said.trim() != "nobody is there" {
        return Err(format!("a client of {ANOTHER}: {said}").into());
    }
    Ok(())
}

/// Takes what comes over each connection, says how much it was, and its hash.
const TAKES: &str = r#"
import hashlib, socket, time
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("0.0.0.0", 6379)); l.listen()
print("listens", flush=True)
while True:
    c, _ = l.accept(); hashed, count = hashlib.sha256(), 0
    while part := c.recv(100_000):
        hashed.update(part); count += len(part)
        if count % 7 == 0: time.sleep(0.002)
    if count: print(count, hashed.hexdigest(), flush=True)
    c.close()
"#;

/// Some in order, some shuffled, some twice, some with parts of their neighbours; lost ones again.
const SHUFFLES: &str = r#"
import hashlib
random.seed(int(sys.argv[2]))
host, port, data = bytes([203, 0, 113, 7]), 4321 + int(sys.argv[2]), random.randbytes(1_000_000)
first, theirs, acked, window = 5_000, None, 0, 0
def hear():
    global theirs, acked, window
    for to, (_, at, seq, ack, _, flags, room) in answers():
        if to != host or at != port: continue
        if flags & 4: raise SystemExit("reset")
        if flags & 2: theirs = seq + 1
        acked, window = max(acked, (ack - first - 1) & 0xffffffff), room
def until(done, again):
    end, next = time.monotonic() + 20, 0
    while not done():
        assert time.monotonic() < end, (acked, window)
        if time.monotonic() > next: again(); next = time.monotonic() + 0.02
        hear(); time.sleep(0.0002)
until(lambda: theirs is not None, lambda: send(host, port, first, 0, 2))
def give(at, to): send(host, port, first + 1 + at, theirs, 0x18, 65535, data[at:to])
send(host, port, first + 1, theirs, 0x10)
# One at a time, so that it comes to the ring.
at = 0
while at < 100_000:
    to = at + 1000; until(lambda: acked >= to, lambda: give(at, to)); at = to
while at < len(data):
    end, pieces, from_ = min(at + random.randrange(1, 40_000), len(data)), [], at
    while from_ < end:
        to = min(from_ + random.randrange(1, 1400), end)
        pieces.append((max(at, from_ - random.choice([0, 0, 0, 30])), to)); from_ = to
    how = random.randrange(3)
    if how == 1: random.shuffle(pieces)
    if how == 2: pieces = pieces[1:] + pieces[:1] + random.sample(pieces, len(pieces) // 3)
    for piece in pieces:
        if random.randrange(30): give(*piece)
    def again():
        for piece in pieces:
            if piece[1] > acked: give(*piece)
    until(lambda: acked >= end, again); at = end
until(lambda: acked > len(data), lambda: send(host, port, first + 1 + len(data), theirs, 0x11))
print(len(data), hashlib.sha256(data).hexdigest())
"#;

/// A peer whose acknowledgement of the SYN comes 30 ms late, and which sends as much as it may, but
/// so much at once that no queue loses it. Says how large the largest window was.
const FAR: &str = r#"
import hashlib
shift, host, port, data = 7, bytes([203, 0, 113, 9]), 4400, random.Random(5).randbytes(3_000_000)
first, theirs, scale, acked, room = 9_000, None, 0, 0, 0
def hear():
    global theirs, acked, room
    for to, (_, at, seq, ack, _, flags, window) in answers():
        if to != host or at != port: continue
        if flags & 4: raise SystemExit("reset")
        if flags & 2: theirs = seq + 1
        acked, room = max(acked, (ack - first - 1) & 0xffffffff), window << scale
def until(done, again):
    end, next = time.monotonic() + 20, 0
    while not done():
        assert time.monotonic() < end, (acked, room)
        if time.monotonic() > next: again(); next = time.monotonic() + 0.5
        hear(); time.sleep(0.0002)
until(lambda: theirs is not None, lambda: send(host, port, first, 0, 2))
at = 0
while at < len(offered) and offered[at] != 3: at += 1 if offered[at] < 2 else offered[at + 1]
scale = offered[at + 2]
def give(at, to): send(host, port, first + 1 + at, theirs, 0x18, 512, data[at:to])
time.sleep(0.03)
send(host, port, first + 1, theirs, 0x10, 512)
# One at a time, so that it comes to the ring.
at = 0
while at < 100_000:
    to = at + 1000; until(lambda: acked >= to, lambda: give(at, to)); at = to
largest, end, moved = 0, time.monotonic() + 20, time.monotonic()
while acked < len(data):
    assert time.monotonic() < end, (acked, room)
    before = acked
    hear(); largest = max(largest, room)
    if acked > before: moved = time.monotonic()
    if time.monotonic() - moved > 0.2: at, moved = acked, time.monotonic()
    at = max(at, acked)
    to = min(at + 1400, len(data), acked + min(room, 300_000))
    if to > at: give(at, to); at = to
    else: time.sleep(0.0002)
until(lambda: acked > len(data), lambda: send(host, port, first + 1 + len(data), theirs, 0x11, 512))
print(len(data), hashlib.sha256(data).hexdigest(), largest)
"#;

fn far() -> Outcome {
    let network = Network::new("fa")?;
    let service = network.serve()?;
    let mut server = network.under_tcp(&["python3", "-c", TAKES])?;
    server.says("listens")?;
    network.until_steered(REDIS)?;
    network.device("route add 203.0.113.0/24 via 10.78.9.1")?;
    let there = network.inside(&["cat", "/sys/class/net/inner/address"])?;
    let script = format!("{FORGE}{FAR}");
    let sent = network.outside(&["python3", "-c", &script, there.trim()])?;
    let got = server.line()?;
    let Some((sent, largest)) = sent.trim().rsplit_once(' ') else { return Err(sent.into()) };
    if got != sent {
        return Err(format!("sent {sent}, got {got}: {}", service.flows()?).into());
    }
    // (64 KB are what it has by right.)
    if largest.parse().is_ok_and(|largest: u32| (500_000..=1 << 20).contains(&largest)) {
        Ok(())
    } else {
        Err(format!("the largest window: {largest}").into())
    }
}

fn any_order() -> Outcome {
    let network = Network::new("ao")?;
    let service = network.serve()?;
    let mut server = network.under_tcp(&["python3", "-c", TAKES])?;
    server.says("listens")?;
    network.until_steered(REDIS)?;
    network.device("route add 203.0.113.0/24 via 10.78.9.1")?;
    let there = network.inside(&["cat", "/sys/class/net/inner/address"])?;
    let script = format!("{FORGE}{SHUFFLES}");
    for seed in 1..=3 {
        let words = ["python3", "-c", &script, there.trim(), &seed.to_string()];
        let sent = network.outside(&words)?;
        let got = server.line()?;
        if got != sent.trim() {
            return Err(format!("seed {seed}: sent {sent}, got {got}: {}", service.flows()?).into());
        }
    }
    Ok(())
}
