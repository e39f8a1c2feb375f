//! A connection between a wire and a program's ring. Every byte comes, once and in order, in
//! whatever order the wire brings them; and a lane waits for no program. A failing seed is printed
//! (`SEED`).

#![allow(missing_docs)]

use rustix::event::{PollFd, PollFlags};
use rustix::net::{Shutdown, sockopt};
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
use uncopy_tcp_remote::inward::MOST;
use uncopy_tcp_remote::limit::Limit;
use uncopy_tcp_remote::spare::Spare;
use uncopy_tcp_service::server::Stop;
use uncopy_tcp_service::{Limits, Options, Service};
use uncopy_tcp_socket::{Context, Errno, Flow, Settings, Waiting, iovec};

const BITS: u8 = 16;
/// Bytes of a full ring (`Writer::FULL` of `tcp/shared`).
const FULL: usize = (1 << 20) - 64;
const OUT: u32 = libc::EPOLLOUT as u32;
const FAR: Duration = Duration::from_millis(20);
const HOUR: Duration = Duration::from_secs(60 * 60);

fn byte(at: usize) -> u8 {
    (at * 7 % 251) as u8
}

/// The wire's bytes, and what the protocol was told.
struct Wire {
    bridge: Bridge,
    came: usize,
    read: usize,
    /// So much may come that is not read, as a power of two.
    size: u8,
    /// How long a round trip takes, and how often that was asked.
    away: Duration,
    asked: u32,
    /// Before that is said, the program is waited for until it has received all: the lane's end.
    waits: Option<Arc<Flow>>,
}

/// Of a payload without its first `skip` bytes so many, which are missing before them.
fn place(skip: usize, bytes: usize, ahead: usize) -> Place {
    let to = RingRange { start: u32::MAX, len: bytes as u32 };
    Place { skip: skip as u32, to, ahead: ahead as u32 }
}

impl Wire {
    /// So many bytes more, which all find room.
    fn brings(&mut self, bytes: usize) {
        let payload: Vec<u8> = (self.came..self.came + bytes).map(byte).collect();
        assert_eq!(self.bridge.place(place(0, bytes, 0), &payload, true), bytes as u32);
        self.bridge.came(bytes as u32);
        self.came += bytes;
        self.turn();
    }

    /// The lane's turn.
    fn turn(&mut self) {
        self.bridge.advance();
        self.read += self.bridge.take_unreported().read as usize;
        assert!(self.read <= self.came);
        if self.bridge.wants_distance() {
            self.asked += 1;
            if let Some(flow) = &self.waits {
                until("received", || flow.in_ring().unwrap().is_none_or(|found| found.bytes == 0));
            }
            self.bridge.is_away(self.away);
        }
        self.size = self.bridge.take_size().unwrap_or(self.size);
    }

    /// Up to where the peer may send.
    fn edge(&self) -> usize {
        self.read + (1 << self.size)
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
    at_its_ring_with(service, 0)
}

/// The same where there is so much to spare.
fn at_its_ring_with(service: &str, spare: u64) -> (Wire, Program, Arc<Flow>, TcpStream) {
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
    let spare = Spare::of_both_ways(spare);
    let bridge = Bridge::new(1, BITS, Limit::new(BITS, BITS), spare);
    let mut wire = Wire { bridge, came: 0, read: 0, size: BITS, away: FAR, asked: 0, waits: None };
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
    let seed =
        std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed {seed}");
    let service = Running::new("order");
    // Nothing to spare, too little, and enough.
    for (case, spare) in (0..).zip([0, 300_000, 1 << MOST]) {
        for gives_back in [false, true] {
            in_any_order(&service.name, seed.wrapping_add(case), spare, gives_back);
        }
    }
}

/// `gives_back`: the program leaves its ring in the middle, unread as it is.
fn in_any_order(service: &str, seed: u64, spare: u64, gives_back: bool) {
    const TOTAL: usize = 6_000_000;
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut wire, program, flow, _linux) = at_its_ring_with(service, spare);
    let begins = wire.came;
    let end = begins + TOTAL;
    let leaves = if gives_back { begins + TOTAL * 3 / 4 } else { usize::MAX };
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(seed ^ 1);
            let (mut at, mut buffer, mut leaves) = (begins, vec![0; 200_000], leaves);
            loop {
                if at >= leaves {
                    assert_eq!(program.flow.by_linux_later(), Ok(true));
                    leaves = usize::MAX;
                }
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
        // The runs that came before their turn, and up to where the peer was told that it may send.
        let mut early: BTreeMap<usize, usize> = BTreeMap::new();
        let mut edge = wire.edge();
        let (mut largest, mut ahead, mut refused) = (0, 0, 0);
        let begun = Instant::now();
        while wire.read < end {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} of {end}", wire.read);
            edge = edge.max(wire.edge());
            largest = largest.max(wire.size);
            // (A ring that is never empty has no room for a wide window.)
            wire.waits = (wire.came > begins + TOTAL / 8).then(|| flow.clone());
            let (came, last) = (wire.came, edge.min(end));
            let from = match rng.u32(0..10) {
                0..6 => came,
                // Once more, or with what was lost.
                6 => came.saturating_sub(rng.usize(1..5000)).max(begins),
                7 | 8 => came + rng.usize(0..20_000),
                _ => came + rng.usize(0..1 << wire.size),
            };
            let most = if rng.u32(0..3) == 0 { 1 << BITS } else { 6000 };
            let to = (from + rng.usize(1..=most)).min(last);
            if to > came.max(from) {
                let payload: Vec<u8> = (from..to).map(byte).collect();
                let first = from.max(came);
                let place = place(first - from, to - first, first - came);
                let taken = wire.bridge.place(place, &payload, rng.u32(0..8) > 0) as usize;
                assert!(taken <= to - first);
                refused += (to - first) - taken;
                let to = first + taken;
                if first == came {
                    let mut came = to;
                    while let Some((&at, &until)) = early.first_key_value()
                        && at <= came
                    {
                        came = came.max(until);
                        early.remove(&at);
                    }
                    wire.bridge.came((came - wire.came) as u32);
                    wire.came = came;
                } else if taken > 0 {
                    ahead = ahead.max(to - came);
                    let until = early.entry(first).or_default();
                    *until = to.max(*until);
                }
            }
            if wire.came == end || rng.u32(0..3) == 0 || edge - wire.came < 3000 {
                let _ = wire.bridge.hears(OUT);
                if wire.came == end {
                    // (An end that closes has the program's last bytes counted, however few.)
                    wire.bridge.unreported_read();
                }
                wire.turn();
            }
        }
        wire.bridge.peer_closed();
        wire.turn();
        // (Bytes of those given back that Linux has still to take go before the end.)
        while wire.bridge.unread_until().is_some() {
            let _ = wire.bridge.hears(OUT);
            wire.turn();
        }
        assert_eq!(wire.bridge.wants(), Wants::Nothing);
        assert_eq!(reads.join().unwrap(), end);
        println!("spare {spare}: {ahead} ahead at most, {refused} refused");
        // (By Linux it depends on how fast the program reads.)
        assert!(largest == MOST && (gives_back || wire.size == MOST));
        // A program that leaves its ring, with nothing to spare, gets no more than by right.
        assert!(spare > 0 || ahead <= 1 << BITS);
        assert!(spare < 1 << MOST || ahead > 1 << BITS);
    });
    let by_ring = flow.counts.sent_by_ring.load(Relaxed);
    println!("{by_ring} by the ring");
    assert!(by_ring > TOTAL as u64 / 2);
}

/// So much comes, and is received, that it is known how far the peer is.
fn far_away(wire: &mut Wire, program: &Program) {
    let (begins, mut buffer) = (wire.came, vec![0; 100_000]);
    while wire.size < MOST {
        wire.brings(50_000);
        while let Ok(1..) = program.receives(&mut buffer) {}
        assert!(wire.came - begins < 1_000_000);
    }
    wire.bridge.unreported_read();
    wire.turn();
}

#[test]
fn of_a_near_peer_what_went_to_the_ring_is_read_and_it_is_asked_seldom_how_far_it_is() {
    let service = Running::new("near");
    let (mut wire, program, _flow, _linux) = at_its_ring(&service.name);
    wire.away = Duration::from_micros(100);
    let mut buffer = vec![0; 100_000];
    for _ in 0..100 {
        wire.brings(50_000);
        assert_eq!((wire.read, wire.size), (wire.came, BITS));
        while let Ok(1..) = program.receives(&mut buffer) {}
    }
    assert!((1..=20).contains(&wire.asked), "{}", wire.asked);
    wire.away = FAR;
    far_away(&mut wire, &program);
}

#[test]
fn a_peer_that_does_not_send_what_is_missing_keeps_no_room_of_others() {
    let spare = Spare::of_both_ways(1 << MOST);
    let bridge = || Bridge::new(1, BITS, Limit::new(BITS, BITS), spare.clone());
    let far = |bridge: &mut Bridge| bridge.place(place(0, 1, 900_000), &[1], true);
    let (mut holds, mut other) = (bridge(), bridge());
    let begun = Instant::now();
    assert_eq!((far(&mut holds), far(&mut other)), (1, 0));
    assert!(holds.begins_to_hold_more() && !holds.begins_to_hold_more());
    assert!(holds.holds_more() && !other.begins_to_hold_more() && !other.holds_more());
    // A byte now and then does not count.
    assert_eq!(holds.place(place(0, 10, 0), &[1; 10], true), 10);
    holds.came(10);
    assert!(!holds.has_held_for_too_long(begun + Duration::from_secs(9)));
    assert!(holds.has_held_for_too_long(Instant::now() + Duration::from_secs(10)));
    holds.forgets_early();
    assert!(!holds.holds_more());
    assert_eq!((far(&mut other), other.begins_to_hold_more()), (1, true));
    drop(other);
    // It has shown what it does with it.
    assert_eq!((far(&mut holds), holds.begins_to_hold_more()), (0, false));
}

/// The peer sends all that it may while the program reads nothing.
fn until_the_window_is_closed(wire: &mut Wire) {
    while wire.edge() > wire.came {
        wire.brings((wire.edge() - wire.came).min(50_000));
    }
}

#[test]
fn all_that_a_peer_may_send_in_order_has_room_where_what_lies_in_the_ring_counted_as_read() {
    let service = Running::new("full");
    let (mut wire, program, flow, _linux) = at_its_ring(&service.name);
    let in_ring = || flow.in_ring().unwrap().unwrap().bytes as usize;
    // A program that does not read: its ring has no room for more than came by right.
    let begins = wire.came;
    until_the_window_is_closed(&mut wire);
    assert!(wire.asked > 1);
    assert_eq!((wire.size, wire.came), (BITS, begins + FULL + (1 << BITS)));
    let mut buffer = vec![0; 100_000];
    while let Ok(1..) = program.receives(&mut buffer) {
        let _ = wire.bridge.hears(OUT);
        wire.turn();
    }
    assert_eq!((in_ring(), wire.size), (0, BITS));
    // One that is behind by less than that.
    let begins = wire.came;
    while wire.size < MOST {
        while let Ok(1..) = program.receives(&mut buffer) {}
        assert!(wire.came - begins < 1_000_000);
        wire.brings((1 << BITS) - 64);
    }
    assert_eq!(in_ring(), (1 << BITS) - 64);
    until_the_window_is_closed(&mut wire);
}

#[test]
fn a_peer_may_send_what_the_ring_has_room_for_and_the_lane_is_told_of_room() {
    let service = Running::new("window");
    let (mut wire, program, _flow, _linux) = at_its_ring(&service.name);
    far_away(&mut wire, &program);
    let begins = wire.came;
    assert_eq!(wire.read, begins);
    let wants_room = |wire: &mut Wire| {
        let wanted = wire.bridge.wanted().and_then(|(_, _, wanted)| wanted);
        wanted.is_some_and(|events| events & OUT != 0)
    };
    assert!(!wants_room(&mut wire));
    // A program that reads nothing: each byte that goes to its ring makes the window smaller.
    while wire.edge() - wire.came > 50_000 {
        wire.brings(50_000);
        assert!(wire.came - wire.read <= 1 << MOST);
    }
    assert_eq!((wire.read, wants_room(&mut wire)), (begins, true));
    wire.turn();
    assert_eq!(wire.read, begins);
    let mut buffer = vec![0; 1 << MOST];
    let read = program.receives(&mut buffer[..600_000]).unwrap();
    assert!(buffer[..read].iter().copied().eq((begins..begins + read).map(byte)));
    let _ = wire.bridge.hears(OUT);
    wire.turn();
    assert_eq!((wire.read, wants_room(&mut wire)), (begins + read, false));
    // A small number of bytes is not looked for, and is known to a caller that asks.
    while let Ok(1..) = program.receives(&mut buffer) {}
    wire.turn();
    let read = wire.read;
    wire.brings(5000);
    while let Ok(1..) = program.receives(&mut buffer) {}
    wire.turn();
    assert_eq!(wire.read, read);
    assert_eq!(wire.bridge.unreported_read(), 5000);
    wire.turn();
    assert_eq!(wire.read, wire.came);
}

#[test]
fn a_far_peer_may_send_as_much_by_linux_to_a_program_that_has_ended_its_stream() {
    let service = Running::new("ended");
    let (mut wire, program, flow, _linux) = at_its_ring_with(&service.name, 1 << MOST);
    program.flow.shutdown(Shutdown::Write).unwrap();
    let (begins, mut at, mut buffer) = (wire.came, wire.came, vec![0; 100_000]);
    let mut receives = |at: &mut usize| {
        while let Ok(got @ 1..) = program.receives(&mut buffer) {
            assert!((*at..*at + got).map(byte).eq(buffer[..got].iter().copied()), "behind {at}");
            *at += got;
        }
    };
    while wire.size < MOST {
        wire.brings(50_000);
        receives(&mut at);
        assert!(wire.came - begins < 2_000_000);
    }
    assert!(!flow.sends_by_ring());
    // While it reads nothing Linux has room for megabytes, and then no more.
    while wire.size == MOST {
        assert!(wire.came - begins < 1 << 28);
        wire.brings((wire.edge() - wire.came).min(50_000));
    }
    until("all has come", || {
        receives(&mut at);
        let _ = wire.bridge.hears(OUT);
        wire.turn();
        at == wire.came
    });
    assert_eq!(wire.read, wire.came);
    // It may send no more than by right from then on: that would come and go.
    let narrow = wire.came;
    while wire.came < narrow + 2_000_000 {
        wire.brings(50_000);
        receives(&mut at);
        assert!(wire.size < MOST, "behind {} bytes", wire.came - narrow);
    }
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
