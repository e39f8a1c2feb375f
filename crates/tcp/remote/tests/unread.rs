//! A program that gives its ring back unread, and reads late: the lane does not wait for it when the
//! peer ends, and every byte comes, and then the end.

#![allow(missing_docs)]

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use uncopy_tcp_events::line::Line;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_remote::bridge::{Bridge, Wants};
use uncopy_tcp_service::{Limits, Options, Service};
use uncopy_tcp_socket::{Context, Settings, Waiting, iovec};

const BITS: u8 = 16;
/// Bytes of a full ring (`Writer::FULL` of `tcp/shared`).
const FULL: usize = (1 << 20) - 64;
const OUT: u32 = libc::EPOLLOUT as u32;

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
        self.bridge.place(Place { skip: 0, to }, &payload);
        self.bridge.came(bytes as u32);
        self.bridge.advance();
        assert_eq!(self.bridge.take_untold().read, bytes as u32);
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

#[test]
fn a_program_that_reads_late_holds_up_no_lane_when_its_peer_ends() {
    let name = format!("uncopy-tcp-unread-{}", std::process::id());
    let options = Options { name: name.clone(), limits: Limits::default(), ends_idle: None };
    let service = Service::bind(options).unwrap();
    let stop = service.stop();
    let runs = std::thread::spawn(|| service.run().unwrap());
    let settings = || Settings { waiting: Waiting::Sleep, after: Some(1), ..Settings::new(&*name) };
    let lane = Context::new(Settings { may_wait: false, asks: false, ..settings() }).unwrap();
    let program = Context::new(settings()).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    let linux = ours.try_clone().unwrap();
    let line = Line::new(ours.into(), Some(&lane));
    let flow = line.flow().unwrap().clone();
    let other = program.show(theirs.as_raw_fd(), false);
    let mut wire = Wire { bridge: Bridge::new(1, BITS, BITS), came: 0 };
    wire.bridge.stands_in(line, true, Duration::from_secs(60));

    // To the ring, and until it is full.
    let receives = |bytes: usize| {
        let mut got = vec![0; bytes];
        let part = iovec { iov_base: got.as_mut_ptr().cast(), iov_len: bytes };
        // SAFETY: ours.
        unsafe { other.receive(&[part], libc::MSG_DONTWAIT) }
    };
    until("by the ring", || {
        wire.brings(1);
        until("a byte", || receives(1) == Ok(1));
        flow.counts.sent_by_ring.load(Relaxed) > 0
    });
    let begins = wire.came;
    while wire.came < begins + FULL {
        wire.brings((begins + FULL - wire.came).min(60_000));
    }
    // Linux has no room either.
    sockopt::set_socket_send_buffer_size(&linux, 4 << 20).unwrap();
    let mut before = 0;
    while let Ok(more) = (&linux).write(&[1; 10_000]) {
        before += more;
    }
    assert_eq!(other.by_linux_later(), Ok(true));

    // The peer ends.
    wire.bridge.peer_closed();
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
    drop((wire, flow, other, lane, program));
    stop.stop();
    runs.join().unwrap();
}
