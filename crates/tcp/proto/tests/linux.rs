//! The core against Linux's TCP over a TAP device: both connect, data goes both ways at once, the
//! wire loses frames. Both sides compare every byte.
//!
//! Needs root, /dev/net/tun, `ip` and `python3`; is skipped, with the reason, where one is missing.
//! `UNCOPY_TCP_INTEROP_MB=100` is how much goes each way (2 if not set).

mod support;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::Instant;
use support::{Host, Random, config};
use uncopy_tcp_proto::{
    Algorithm, Config, Connect, Event, FlowId, FlowOptions, Listen, State, Time,
};
use uncopy_tests::shell::shell;
use uncopy_tests::verdict::leave_out;

const OURS: [u8; 4] = [10, 77, 0, 2];
const LINUX: [u8; 4] = [10, 77, 0, 1];
const PATTERN: usize = 1_000_003;

/// The Linux side: sends the pattern, compares what comes with it.
const PEER: &str = r#"
import socket, sys, threading
mode, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
P = 1000003
pattern = bytes((i * 7919 + (i >> 8) * 31) & 255 for i in range(P))
twice = memoryview(pattern * 2)
if mode == "listen":
    l = socket.create_server(("10.77.0.1", port)); print("ready", flush=True); s, _ = l.accept()
else:
    print("ready", flush=True); s = socket.create_connection(("10.77.0.2", port))
def send():
    at = 0
    while at < size:
        n = min(1 << 18, size - at)
        s.sendall(twice[at % P:at % P + n]); at += n
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send); t.start()
got, buf = 0, bytearray(1 << 18)
while True:
    n = s.recv_into(buf)
    if n == 0: break
    if memoryview(buf)[:n] != twice[got % P:got % P + n]: print("wrong byte at", got, flush=True); sys.exit(1)
    got += n
t.join()
print("done", got, flush=True)
"#;

/// A TAP device in a network namespace of its own.
struct Tap {
    file: File,
    namespace: String,
}

impl Tap {
    fn open() -> io::Result<Tap> {
        let path = "/dev/net/tun";
        let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
        let name = format!("ucp{}", std::process::id());
        // SAFETY: an all-zero ifreq is a valid one: it has numbers and arrays of numbers only.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives here.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let tap = Tap { file, namespace: name.clone() };
        shell(&format!(
            "ip netns add {name} && ip link set {name} address 04:04:04:04:04:04 && ip link set {name} netns {name} && \
             ip -n {name} addr add 10.77.0.1/24 dev {name} && ip -n {name} link set {name} up && \
             ip -n {name} neigh replace 10.77.0.2 lladdr 02:02:02:02:02:02 dev {name} && python3 -c pass"
        ))?;
        Ok(tap)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = shell(&format!("ip netns del {}", self.namespace));
    }
}

#[test]
fn linux_and_we_understand_each_other_also_when_frames_are_lost() {
    let mut tap = match Tap::open() {
        Ok(tap) => tap,
        Err(reason) => {
            leave_out(&reason);
            return;
        }
    };
    let megabytes: usize = std::env::var("UNCOPY_TCP_INTEROP_MB")
        .map_or(2, |value| value.parse().expect("a number of MB"));
    let mut port = 7000;
    for (algorithm, sack) in [
        (Algorithm::Cubic, true),
        (Algorithm::Cubic, false),
        (Algorithm::Dctcp, true),
        (Algorithm::Reno, true),
        (Algorithm::Timely, true),
    ] {
        for loss in [0.0, 0.001, 0.01, 0.05] {
            for we_connect in [true, false] {
                let slow = loss > 0.001 && (!sack || algorithm == Algorithm::Timely);
                let many = algorithm != Algorithm::Cubic && (megabytes > 2 || !we_connect);
                // Without SACK each lost repair costs a timeout: minutes.
                if slow || (many && algorithm != Algorithm::Dctcp) {
                    continue;
                }
                port += 1;
                let seconds =
                    transfer(&mut tap, port, we_connect, loss, megabytes << 20, algorithm, sack);
                println!(
                    "{algorithm:?} {}, {} connect, loss {:.1}%: {megabytes} MB each way in {seconds:.2} s, {:.0} MB/s",
                    if sack { "SACK" } else { "one interval" },
                    if we_connect { "we" } else { "Linux" },
                    loss * 100.0,
                    2.0 * megabytes as f64 / seconds
                );
            }
        }
    }
}

fn transfer(
    tap: &mut Tap,
    port: u16,
    we_connect: bool,
    loss: f64,
    size: usize,
    algorithm: Algorithm,
    sack: bool,
) -> f64 {
    let mut random = Random::new(u64::from(port));
    let pattern: Vec<u8> = (0..PATTERN).map(|i| (i * 7919 + (i >> 8) * 31) as u8).collect();
    let pattern = pattern.repeat(2);
    let mode = if we_connect { "listen" } else { "connect" };
    let flow = FlowOptions { rcv_bits: 20, snd_bits: 20, algorithm, ..FlowOptions::default() };
    let mut host = Host::new(Config { sack, reset_strangers: true, ..config(u64::from(port)) });
    host.listen = flow;
    host.endpoint
        .listen(Listen { app: 0, ip: OURS.into(), port, backlog: 4, flow })
        .expect("listen");
    let mut peer = Command::new("ip")
        .args([
            "netns",
            "exec",
            &tap.namespace,
            "python3",
            "-c",
            PEER,
            mode,
            &port.to_string(),
            &size.to_string(),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the peer starts");
    let mut out = peer.stdout.take().expect("piped");
    let mut ready = [0; 6];
    out.read_exact(&mut ready).expect("the peer is ready");
    let start = Instant::now();
    let now = || Time(1_000_000_000 + start.elapsed().as_nanos() as u64);
    let mut id: Option<FlowId> = None;
    if we_connect {
        let connect = Connect {
            app: 0,
            local_ip: OURS.into(),
            local_port: None,
            peer_ip: LINUX.into(),
            peer_port: port,
            route: 0,
            flow,
        };
        id = Some(host.connect(now(), &connect));
    }
    let mut buffer = vec![0; 2000];
    let mut ended = None;
    let (mut sent, mut got) = (0, 0);
    let mut shut = false;
    while ended.is_none() {
        assert!(
            start.elapsed().as_secs() < 300,
            "stuck: sent {sent}, got {got}: {:?}",
            id.and_then(|id| host.endpoint.info(id).ok())
        );
        let mut idle = true;
        for _ in 0..64 {
            match tap.file.read(&mut buffer) {
                Ok(n) => {
                    idle = false;
                    if !random.chance(loss) {
                        host.frame(now(), &buffer[..n]);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("the TAP device: {error}"),
            }
        }
        let moment = now();
        if host.poll_at.is_some_and(|at| at <= moment) {
            host.poll(moment);
        }
        while let Some(frame) = host.frames.pop_front() {
            idle = false;
            if !random.chance(loss) {
                // A full queue is a loss like any other.
                let _ = tap.file.write(&frame);
            }
        }
        if id.is_none() {
            id = host.incoming();
        }
        for event in std::mem::take(&mut host.events) {
            match event {
                (of, Event::Incoming { .. }) => {
                    id = Some(of);
                    host.endpoint.accept(of, 0, 0).expect("accept");
                }
                (of, end @ (Event::Closed | Event::Reset(_))) if Some(of) == id => {
                    ended = Some(end)
                }
                _ => {}
            }
        }
        if let Some(id) = id.filter(|_| ended.is_none()) {
            if host.endpoint.state(id) == State::SynSent {
                continue;
            }
            if sent < size {
                let at = sent % PATTERN;
                let n = (size - sent).min(PATTERN);
                sent += host.write(now(), id, &pattern[at..at + n]);
            } else if !shut {
                shut = true;
                host.endpoint.shutdown(id).expect("shutdown");
                host.poll_at = Some(now());
            }
            let there = (host.socket(id).arrived - host.socket(id).taken) as usize;
            if there > 0 {
                let data = host.read(now(), id, there.min(PATTERN));
                assert!(
                    data == pattern[got % PATTERN..got % PATTERN + data.len()],
                    "wrong byte near {got}"
                );
                got += data.len();
            }
        }
        if idle {
            let wait = host.poll_at.map_or(10_000_000, |at| at.since(now())).min(10_000_000);
            let mut ready =
                libc::pollfd { fd: tap.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let wait = libc::timespec { tv_sec: 0, tv_nsec: wait as i64 };
            // SAFETY: one pollfd and one timespec, both alive; no signal mask.
            unsafe { libc::ppoll(&mut ready, 1, &wait, std::ptr::null()) };
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(ended, Some(Event::Closed));
    let rest = host.finished.pop().expect("it has ended").rest();
    assert!(rest == pattern[got % PATTERN..got % PATTERN + rest.len()], "wrong byte near {got}");
    got += rest.len();
    assert_eq!((sent, got), (size, size));
    // Linux may still ask for our last acknowledgement.
    let mut said = String::new();
    while peer.try_wait().expect("the peer").is_none() {
        while let Ok(n) = tap.file.read(&mut buffer) {
            host.frame(now(), &buffer[..n]);
        }
        host.poll(now());
        while let Some(frame) = host.frames.pop_front() {
            let _ = tap.file.write(&frame);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    out.read_to_string(&mut said).expect("the peer's words");
    assert_eq!(said, format!("done {size}\n"), "what Linux says");
    seconds
}
