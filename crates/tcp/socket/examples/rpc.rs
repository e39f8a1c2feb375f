//! Closed-loop RPCs between two processes over loopback: Linux' TCP against the shared-memory wire,
//! in the same run. Both ends' processor time is counted, every answer is compared.
//!
//! ```text
//! cargo run --release -p uncopy-tcp-socket --example rpc -- [--size 64] [--connections 1]
//!     [--wait spin|sleep|adaptive] [--seconds 2] [--wire shared|linux|both]
//! ```
//!
//! The server answers each request with as many bytes. One connection blocks in recv (or spins in
//! it); more are served from an epoll set, on both sides. Spinning Linux is recv and epoll_wait
//! without waiting.

use rustix::event::epoll;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uncopy_tcp_service::{Limits, Options, Service};
use uncopy_tcp_socket::set::Event;
use uncopy_tcp_socket::{Context, Errno, Flow, Set, Settings, Waiting, iovec};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Spin,
    Sleep,
    Adaptive,
}

#[derive(Clone)]
struct Load {
    size: usize,
    connections: usize,
    wait: Wait,
    seconds: f64,
    /// The service's name, or Linux.
    wire: Option<String>,
}

/// A connection over either wire.
struct Connection {
    socket: TcpStream,
    flow: Option<Arc<Flow>>,
    spins: bool,
    got: usize,
    sent: usize,
}

impl Connection {
    fn send(&self, bytes: &[u8]) -> usize {
        let part = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let flags = libc::MSG_NOSIGNAL | if self.spins { libc::MSG_DONTWAIT } else { 0 };
        match &self.flow {
            // SAFETY: ours.
            Some(flow) => match unsafe { flow.send(&[part], flags) } {
                Ok(sent) => sent,
                Err(Errno::AGAIN) => 0,
                Err(error) => panic!("send: {error}"),
            },
            None => {
                // SAFETY: ours.
                let sent = unsafe {
                    libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
                };
                would_block(sent)
            }
        }
    }

    fn receive(&self, bytes: &mut [u8], flags: i32) -> Option<usize> {
        let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let flags = flags | if self.spins { libc::MSG_DONTWAIT } else { 0 };
        let got = match &self.flow {
            // SAFETY: ours.
            Some(flow) => match unsafe { flow.receive(&[part], flags) } {
                Ok(got) => got as isize,
                Err(Errno::AGAIN) => return Some(0),
                Err(Errno::CONNRESET) => std::process::exit(0),
                Err(error) => panic!("receive: {error}"),
            },
            // SAFETY: ours.
            None => unsafe {
                libc::recv(self.socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags)
            },
        };
        if got == 0 { None } else { Some(would_block(got)) }
    }
}

fn would_block(result: isize) -> usize {
    if result >= 0 {
        return result as usize;
    }
    let error = std::io::Error::last_os_error();
    if error.kind() == std::io::ErrorKind::ConnectionReset {
        std::process::exit(0);
    }
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
    0
}

/// A set over either wire.
enum Sets {
    Linux(std::os::fd::OwnedFd, bool),
    Shared(Set),
}

impl Sets {
    fn new(load: &Load, context: Option<&Arc<Context>>) -> Self {
        let kernel = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        match context {
            Some(context) => Self::Shared(Set::new(context.clone(), kernel).unwrap()),
            None => Self::Linux(kernel, load.wait == Wait::Spin),
        }
    }

    fn add(&self, connection: &Connection, data: u64) {
        let fd = connection.socket.as_raw_fd();
        match self {
            Self::Shared(set) => {
                set.add(fd, connection.flow.clone(), libc::EPOLLIN as u32, data).unwrap();
            }
            Self::Linux(set, _) => {
                let data = epoll::EventData::new_u64(data);
                epoll::add(set, &connection.socket, data, epoll::EventFlags::IN).unwrap();
            }
        }
    }

    fn wait(&self, ready: &mut Vec<u64>) {
        ready.clear();
        match self {
            Self::Shared(set) => {
                let mut events = [Event::default(); 256];
                if let Ok(count) = set.wait(&mut events, Some(Duration::from_millis(100))) {
                    ready.extend(events[..count].iter().map(|event| event.data));
                }
            }
            Self::Linux(set, spins) => {
                let nothing = epoll::Event {
                    flags: epoll::EventFlags::empty(),
                    data: epoll::EventData::new_u64(0),
                };
                let mut events = [nothing; 256];
                let timeout = rustix::event::Timespec {
                    tv_sec: 0,
                    tv_nsec: if *spins { 0 } else { 100_000_000 },
                };
                let count = epoll::wait(set, &mut events, Some(&timeout)).unwrap();
                ready.extend(events[..count].iter().map(|event| {
                    let data = event.data;
                    data.u64()
                }));
            }
        }
    }
}

/// A side that spins has a core of its own, on either wire.
fn pin(load: &Load, core: usize) {
    if load.wait == Wait::Spin {
        // SAFETY: a set of our own.
        unsafe {
            let mut set = std::mem::zeroed::<libc::cpu_set_t>();
            libc::CPU_SET(core, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}

fn processor_seconds() -> f64 {
    // SAFETY: fills what it is given.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn context(load: &Load) -> Option<Arc<Context>> {
    load.wire.as_ref().map(|name| {
        let waiting = match load.wait {
            Wait::Spin => Waiting::Spin,
            Wait::Sleep => Waiting::Sleep,
            Wait::Adaptive => Waiting::Adaptive,
        };
        Context::new(Settings { waiting, ..Settings::new(name.clone()) }).unwrap()
    })
}

fn connection(load: &Load, context: Option<&Arc<Context>>, socket: TcpStream) -> Connection {
    socket.set_nodelay(true).unwrap();
    let flow = context.map(|context| context.register(socket.as_raw_fd(), false));
    // Over Linux spinning is a loop around a call that does not wait; over the ring it is the
    // library's.
    let spins = load.wait == Wait::Spin && flow.is_none();
    Connection { socket, flow, spins, got: 0, sent: 0 }
}

fn server(load: &Load) {
    pin(load, 1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let context = context(load);
    let mut connections: Vec<Connection> = (0..load.connections)
        .map(|_| connection(load, context.as_ref(), listener.accept().unwrap().0))
        .collect();
    println!("ready");
    let mut buffer = vec![0; load.size.max(64 << 10)];
    if load.connections == 1 {
        let it = &mut connections[0];
        while let Some(got) = it.receive(&mut buffer, 0) {
            let mut sent = 0;
            while sent < got {
                sent += it.send(&buffer[sent..got]);
            }
        }
    } else {
        let set = Sets::new(load, context.as_ref());
        for (i, it) in connections.iter().enumerate() {
            set.add(it, i as u64);
        }
        let (mut ready, mut open) = (vec![], load.connections);
        while open > 0 {
            set.wait(&mut ready);
            for &i in &ready {
                let it = &mut connections[i as usize];
                match it.receive(&mut buffer, libc::MSG_DONTWAIT) {
                    None => {
                        open -= 1;
                        if let Sets::Shared(set) = &set {
                            let _ = set.remove(it.socket.as_raw_fd());
                        } else if let Sets::Linux(set, _) = &set {
                            let _ = epoll::delete(set, &it.socket);
                        }
                    }
                    Some(got) => {
                        let mut sent = 0;
                        while sent < got {
                            sent += it.send(&buffer[sent..got]);
                        }
                    }
                }
            }
        }
    }
    println!("{}", processor_seconds());
}

struct Row {
    rpcs: u64,
    seconds: f64,
    processor: f64,
    p50: f64,
    p99: f64,
    by_ring: bool,
}

fn request(size: usize, number: u64, into: &mut [u8]) {
    // Eight bytes that are unlike every other request's, over and over: cheap beside what is
    // measured.
    let word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    for part in into[..size].chunks_mut(8) {
        part.copy_from_slice(&word[..part.len()]);
    }
}

fn run(load: &Load) -> Row {
    pin(load, 0);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(std::env::args().skip(1))
        .env("RPC_SERVER", load.wire.as_deref().unwrap_or("linux"))
        .env("RPC_LOAD", format!("{} {} {}", load.size, load.connections, load.wait as u8))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let port: u16 = lines.next().unwrap().parse().unwrap();
    let context = context(load);
    let mut connections: Vec<Connection> = (0..load.connections)
        .map(|_| {
            let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            connection(load, context.as_ref(), socket)
        })
        .collect();
    assert_eq!(lines.next().unwrap(), "ready");

    let mut latencies: Vec<f64> = Vec::with_capacity(1 << 20);
    let mut out = vec![0; load.size];
    let mut got = vec![0; load.size];
    let mut rpcs = 0u64;
    // Warm: to the rings, and until every page is there.
    let mut measured = false;
    let mut begun = Instant::now();
    let (mut before, mut warm_until) = (processor_seconds(), 0.3);
    let server_before = processor_of(child.id());
    let mut server_began = server_before;
    let mut end = |rpcs: &mut u64, latencies: &mut Vec<f64>| {
        let elapsed = begun.elapsed().as_secs_f64();
        if !measured && elapsed > warm_until {
            measured = true;
            latencies.clear();
            *rpcs = 0;
            begun = Instant::now();
            before = processor_seconds();
            server_began = processor_of(child.id());
            warm_until = 0.0;
        }
        measured && begun.elapsed().as_secs_f64() > load.seconds
    };
    if load.connections == 1 {
        let it = &mut connections[0];
        loop {
            request(load.size, rpcs, &mut out);
            let at = Instant::now();
            // A message larger than all buffers is sent and received in turns.
            let (mut sent, mut received) = (0, 0);
            while received < load.size {
                if sent < load.size {
                    let piece = (load.size - sent).min(128 << 10);
                    sent += it.send(&out[sent..sent + piece]);
                    if sent < load.size {
                        let flags = libc::MSG_DONTWAIT;
                        received += it.receive(&mut got[received..sent], flags).unwrap();
                    }
                    continue;
                }
                received += it.receive(&mut got[received..], 0).unwrap();
            }
            assert!(got == out, "a wrong answer");
            latencies.push(at.elapsed().as_secs_f64());
            rpcs += 1;
            if rpcs.is_multiple_of(16) && end(&mut rpcs, &mut latencies) {
                break;
            }
        }
    } else {
        let set = Sets::new(load, context.as_ref());
        let mut numbers = vec![0u64; connections.len()];
        let mut times = vec![Instant::now(); connections.len()];
        for (i, it) in connections.iter_mut().enumerate() {
            set.add(it, i as u64);
            numbers[i] = i as u64;
            request(load.size, numbers[i], &mut out);
            while it.sent < load.size {
                it.sent += it.send(&out[it.sent..]);
            }
        }
        let mut next = numbers.len() as u64;
        let mut ready = vec![];
        loop {
            set.wait(&mut ready);
            for &i in &ready {
                let i = i as usize;
                let it = &mut connections[i];
                let bytes = it.receive(&mut got[it.got..], libc::MSG_DONTWAIT).unwrap();
                request(load.size, numbers[i], &mut out);
                assert!(
                    got[it.got..it.got + bytes] == out[it.got..it.got + bytes],
                    "a wrong answer"
                );
                it.got += bytes;
                if it.got < load.size {
                    continue;
                }
                latencies.push(times[i].elapsed().as_secs_f64());
                rpcs += 1;
                it.got = 0;
                numbers[i] = next;
                next += 1;
                request(load.size, numbers[i], &mut out);
                times[i] = Instant::now();
                it.sent = 0;
                while it.sent < load.size {
                    it.sent += it.send(&out[it.sent..]);
                }
            }
            if end(&mut rpcs, &mut latencies) {
                break;
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let processor = processor_seconds() - before + processor_of(child.id()) - server_began;
    let by_ring = connections.iter().all(|it| {
        let count = |flow: &Arc<Flow>| {
            flow.counts.sent_by_ring.load(std::sync::atomic::Ordering::Relaxed) > 0
        };
        it.flow.as_ref().is_some_and(count)
    });
    drop(connections);
    let _ = child.kill();
    child.wait().unwrap();
    latencies.sort_by(f64::total_cmp);
    let percentile = |p: f64| latencies[((latencies.len() - 1) as f64 * p) as usize] * 1e6;
    Row { rpcs, seconds, processor, p50: percentile(0.5), p99: percentile(0.99), by_ring }
}

/// User and system time of another process, to the nanosecond: its first thread's, and it has no
/// other.
fn processor_of(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn main() {
    let mut load = Load { size: 64, connections: 1, wait: Wait::Spin, seconds: 2.0, wire: None };
    if let Ok(wire) = std::env::var("RPC_SERVER") {
        let text = std::env::var("RPC_LOAD").unwrap();
        let [size, connections, wait] = text.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        load.size = size.parse().unwrap();
        load.connections = connections.parse().unwrap();
        load.wait = [Wait::Spin, Wait::Sleep, Wait::Adaptive][wait.parse::<usize>().unwrap()];
        load.wire = (wire != "linux").then_some(wire);
        return server(&load);
    }
    let mut wires = "both".to_owned();
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match option.as_str() {
            "--size" => load.size = value.parse().expect("--size BYTES"),
            "--connections" => load.connections = value.parse().expect("--connections NUMBER"),
            "--seconds" => load.seconds = value.parse().expect("--seconds NUMBER"),
            "--wire" => wires = value,
            "--wait" => {
                load.wait = match value.as_str() {
                    "spin" => Wait::Spin,
                    "sleep" => Wait::Sleep,
                    "adaptive" => Wait::Adaptive,
                    _ => panic!("--wait spin|sleep|adaptive"),
                }
            }
            _ => panic!("unknown option {option}"),
        }
    }
    let name = format!("uncopy-tcp-rpc-{}", std::process::id());
    let options = Options { name: name.clone(), limits: Limits::default(), ends_idle: None };
    let service = Service::bind(options).unwrap();
    std::thread::spawn(|| service.run().unwrap());
    let mut cpu = vec![];
    for wire in ["linux", "shared"] {
        if wires != "both" && wires != wire {
            continue;
        }
        load.wire = (wire == "shared").then(|| name.clone());
        let row = run(&load);
        assert!(wire == "linux" || row.by_ring, "a connection did not come to the ring");
        let each = row.processor * 1e6 / row.rpcs as f64;
        println!(
            "{wire:7} {:5} x {:7} B: {:9.0} RPC/s, {each:8.3} us CPU of both, p50 {:8.2} us, p99 \
             {:8.2} us",
            load.connections,
            load.size,
            row.rpcs as f64 / row.seconds,
            row.p50,
            row.p99
        );
        let _ = std::io::stdout().flush();
        cpu.push((each, row.rpcs as f64 / row.seconds));
    }
    if let [linux, shared] = cpu[..] {
        println!(
            "        RPCs per CPU second: {:.1} times; per second: {:.1} times",
            linux.0 / shared.0,
            shared.1 / linux.1
        );
    }
}
