//! A connection between a wire and a program's ring. Every byte comes, once and in order, in
//! whatever order the wire brings them; and a lane waits for no program. A failing seed is printed
//! (`SEED`).

#![allow(missing_docs)]

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uncopy_tcp_events::line::Line;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_remote::bridge::{Bridge, Wants};
use uncopy_tcp_service::server::Stop;
use uncopy_tcp_service::{Limits, Options, Service};
use uncopy_tcp_socket::{Context, Errno, Flow, Settings, Waiting, iovec};

const BITS: u8 = 16;
/// Bytes of a full ring (`Writer::FULL` of `tcp/shared`).
const FULL: usize = (1 << 20) - 64;
const OUT: u32 = libc::EPOLLOUT as u32;
const HOUR: Duration = Duration::from_secs(60 * 60);

fn byte(at: usize) -> u8 {
    (at * 7 % 251) as u8
}

/// What the wire brings.
struct Wire {
    bridge: Bridge,
    came: usize,
}

impl Wire {
    /// So many bytes more, which all find room.
    fn brings(&mut self, bytes: usize) {
        let payload: Vec<u8> = (self.came..self.came + bytes).map(byte).collect();
        let start = (self.came % (1 << BITS)) as u32;
        let to = RingRange { start, len: bytes as u32 };
        self.bridge.place(Place { skip: 0, to }, &payload, true);
        self.bridge.came(bytes as u32);
        self.bridge.advance();
        assert_eq!(self.bridge.take_unreported().read, bytes as u32);
        self.came += bytes;
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A service of a test's own.
struct Running {
    name: String,
    stop: Stop,
    runs: Option<JoinHandle<()>>,
}

impl Running {
    fn new(which: &str) -> Self {
        let name = format!("uncopy-tcp-bridge-{which}-{}", std::process::id());
        let options = Options { name: name.clone(), limits: Limits::default(), ends_idle: None };
        let service = Service::bind(options).unwrap();
        let stop = service.stop();
        let runs = Some(std::thread::spawn(|| service.run().unwrap()));
        Self { name, stop, runs }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        self.runs.take().into_iter().for_each(|runs| runs.join().unwrap());
    }
}

/// A program's end.
struct Program {
    flow: Arc<Flow>,
    socket: TcpStream,
}

impl Program {
    fn receives(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let part = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        // SAFETY: ours.
        unsafe { self.flow.receive(&[part], libc::MSG_DONTWAIT) }
    }
}

/// A connection at its ring, and the lane's end of it for Linux.
fn at_its_ring(service: &str) -> (Wire, Program, Arc<Flow>, TcpStream) {
    let settings =
        || Settings { waiting: Waiting::Sleep, after: Some(1), ..Settings::new(service) };
    let lane = Context::new(Settings { may_wait: false, asks: false, ..settings() }).unwrap();
    let program = Context::new(settings()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    let linux = ours.try_clone().unwrap();
    let line = Line::new(ours.into(), Some(&lane));
    let flow = line.flow().unwrap().clone();
    let program = Program { flow: program.register(theirs.as_raw_fd(), false), socket: theirs };
    let mut wire = Wire { bridge: Bridge::new(1, BITS, BITS), came: 0 };
    wire.bridge.stands_in(line, true, Duration::from_secs(60));
    until("by the ring", || {
        wire.brings(1);
        until("a byte", || program.receives(&mut [0]) == Ok(1));
        flow.counts.sent_by_ring.load(Relaxed) > 0
    });
    (wire, program, flow, linux)
}

#[test]
fn segments_in_any_order_come_to_the_program_once_and_in_order() {
    const TOTAL: u64 = 4_000_000;
    const WINDOW: u64 = 1 << BITS;
    let seed =
        std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let service = Running::new("order");
    let (mut wire, program, flow, _linux) = at_its_ring(&service.name);
    let begins = wire.came as u64;
    let end = begins + TOTAL;
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(seed ^ 1);
            let (mut at, mut buffer) = (begins as usize, vec![0; 200_000]);
            loop {
                let most = rng.usize(1..buffer.len());
                match program.receives(&mut buffer[..most]) {
                    Ok(0) => break at,
                    Ok(got) => {
                        let right = (at..at + got).map(byte).eq(buffer[..got].iter().copied());
                        assert!(right, "behind {at}");
                        at += got;
                    }
                    Err(Errno::AGAIN) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
                if rng.u32(0..50) == 0 {
                    std::thread::sleep(Duration::from_millis(rng.u64(0..5)));
                }
            }
        });
        // What has come in order, what the bridge has taken of it, and what came before its turn.
        let (mut came, mut taken) = (begins, begins);
        let mut early: BTreeMap<u64, u64> = BTreeMap::new();
        let begun = Instant::now();
        while taken < end {
            assert!(begun.elapsed() < Duration::from_secs(60), "{taken} of {end}");
            let edge = (taken + WINDOW).min(end);
            let from = match rng.u32(0..10) {
                0..6 => came,
                // Once more, or with what was lost.
                6 => came.saturating_sub(rng.u64(1..5000)).max(begins),
                _ => came + rng.u64(0..20_000),
            };
            let most = if rng.u32(0..3) == 0 { WINDOW } else { 6000 };
            let to = (from + rng.u64(1..=most)).min(edge);
            if to > came.max(from) {
                let payload: Vec<u8> = (from as usize..to as usize).map(byte).collect();
                let first = from.max(came);
                let range = RingRange { start: (first % WINDOW) as u32, len: (to - first) as u32 };
                let place = Place { skip: (first - from) as u32, to: range };
                wire.bridge.place(place, &payload, rng.u32(0..8) > 0);
                if first == came {
                    let before = came;
                    came = to;
                    while let Some((&at, &until)) = early.first_key_value()
                        && at <= came
                    {
                        came = came.max(until);
                        early.remove(&at);
                    }
                    wire.bridge.came((came - before) as u32);
                } else {
                    let until = early.entry(first).or_default();
                    *until = to.max(*until);
                }
            }
            if came == end || rng.u32(0..3) == 0 || edge - came < 3000 {
                let _ = wire.bridge.hears(OUT);
                wire.bridge.advance();
                taken += u64::from(wire.bridge.take_unreported().read);
            }
        }
        wire.bridge.peer_closed();
        wire.bridge.advance();
        assert_eq!(wire.bridge.wants(), Wants::Nothing);
        assert_eq!(reads.join().unwrap() as u64, end);
    });
    println!("{} by the ring", flow.counts.sent_by_ring.load(Relaxed));
    assert!(flow.counts.sent_by_ring.load(Relaxed) > TOTAL / 2);
}

/// The program has given a full ring back unread, Linux is full too, and the peer ends: how many
/// bytes stand before the ring's.
fn ends_before_it_is_read(service: &str) -> (Wire, Program, Arc<Flow>, TcpStream, usize) {
    let (mut wire, program, flow, linux) = at_its_ring(service);
    let begins = wire.came;
    while wire.came < begins + FULL {
        wire.brings((begins + FULL - wire.came).min(60_000));
    }
    sockopt::set_socket_send_buffer_size(&linux, 4 << 20).unwrap();
    let mut before = 0;
    while let Ok(more) = (&linux).write(&[1; 10_000]) {
        before += more;
    }
    assert_eq!(program.flow.by_linux_later(), Ok(true));
    wire.bridge.peer_closed();
    (wire, program, flow, linux, before)
}

#[test]
fn a_program_has_an_hour_to_read_something_once_both_streams_have_ended() {
    let service = Running::new("hour");
    let (mut wire, program, flow, _linux, _) = ends_before_it_is_read(&service.name);
    wire.bridge.advance();
    let begun = Instant::now();
    let late = |bridge: &mut Bridge, hours| bridge.was_unread_for_too_long(begun + hours * HOUR);
    // The program may send for as long as it likes.
    assert!(!late(&mut wire.bridge, 2) && !late(&mut wire.bridge, 4));
    wire.bridge.over(false);
    let untaken = flow.unsent().unwrap();
    let mut read = 0;
    until("Linux has taken something", || {
        let mut buffer = vec![0; 100_000];
        read += (&program.socket).read(&mut buffer).unwrap();
        flow.unsent().unwrap() < untaken
    });
    println!("{read} bytes were read");
    assert!(!late(&mut wire.bridge, 6), "it reads");
    assert!(!late(&mut wire.bridge, 6));
    assert!(late(&mut wire.bridge, 8), "it does not read");
}

#[test]
fn a_program_that_reads_late_holds_up_no_lane_when_its_peer_ends() {
    let service = Running::new("late");
    let (mut wire, Program { flow: other, socket: theirs }, flow, linux, before) =
        ends_before_it_is_read(&service.name);
    let begins = wire.came - FULL;
    let (told, says) = std::sync::mpsc::channel();
    let advances = std::thread::spawn(move || {
        wire.bridge.advance();
        told.send(()).unwrap();
        wire
    });
    let said = says.recv_timeout(Duration::from_secs(5));
    // (Also where this fails, so that nobody waits for ever.)
    let reader = std::thread::spawn(move || {
        let mut got = vec![];
        (&theirs).read_to_end(&mut got).map(|_| got)
    });
    assert_eq!(said, Ok(()), "the lane does not wait");
    let mut wire = advances.join().unwrap();
    let hour = Duration::from_secs(3500);
    assert!(wire.bridge.unread_until().is_some_and(|until| until > Instant::now() + hour));
    let wanted = wire.bridge.wanted().and_then(|(_, _, wanted)| wanted);
    assert!(wanted.is_some_and(|events| events & OUT != 0), "{wanted:?}");
    while wire.bridge.unread_until().is_some() {
        let mut fds = [PollFd::new(&linux, PollFlags::OUT)];
        rustix::event::poll(&mut fds, None).unwrap();
        let _ = wire.bridge.hears(OUT);
        wire.bridge.advance();
    }
    assert_eq!(wire.bridge.wants(), Wants::Nothing);
    let got = reader.join().unwrap().unwrap();
    assert_eq!(got.len(), before + FULL);
    let wanted: Vec<u8> = (begins..begins + FULL).map(byte).collect();
    assert!(got[before..] == wanted);
    drop((wire, flow, other));
}
