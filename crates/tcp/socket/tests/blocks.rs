//! Messages in blocks: they come as bytes of a ring would, whole or in parts; what is taken without
//! a copy stays as it is until it is given back, and every block comes back.

#![allow(missing_docs)]

mod common;

use common::{End, at_rings, forks, service, wait_until};
use std::io::{Read, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Weak};
use std::time::Duration;
use uncopy_counters::Counters;
use uncopy_tcp_socket::{Blocks, Context, Peer, Settings, Taken, Views, Waiting, iovec};

/// A program whose messages go in blocks, of any size.
fn program(service: &str) -> (Arc<Context>, &'static Counters) {
    let counters: &Counters = Box::leak(Box::default());
    let blocks = Blocks { from: 1, always: true };
    let settings = Settings { waiting: Waiting::Sleep, counters, blocks, ..Settings::new(service) };
    (Context::new(settings).unwrap(), counters)
}

/// Two ends, of which the first one's messages lie in blocks from here on.
fn by_blocks((x, counters): &(Arc<Context>, &Counters), y: &Arc<Context>) -> (End, End) {
    let (a, b) = at_rings(x, y);
    let before = counters.tcp_block_bytes.load(Relaxed);
    wait_until("the arena is given", || {
        a.send(b"block").unwrap();
        assert_eq!(b.receive(&mut [0; 5]), Ok(5));
        counters.tcp_block_bytes.load(Relaxed) > before
    });
    (a, b)
}

/// A program, a relay and a receiver, and their ends, by which blocks go.
fn by_a_relay(service: &str) -> ([(Arc<Context>, &'static Counters); 3], [End; 4]) {
    let [x, y, z] = [(); 3].map(|()| program(service));
    let (a, b) = by_blocks(&x, &y.0);
    let (c, d) = by_blocks(&y, &z.0);
    ([x, y, z], [a, b, c, d])
}

fn message(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i * 31 + (i >> 8) * 7 + seed * 101) % 251) as u8).collect()
}

fn read(taken: &Taken) -> Vec<u8> {
    let mut all = vec![];
    for &(at, bytes) in taken.ranges() {
        // SAFETY: a block's bytes, which stay until they are given back.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(at as *const u8, bytes) });
    }
    all
}

fn give_back(end: &End, taken: &Taken) {
    let _ = end;
    let ranges = taken.ranges().iter().zip(taken.peers());
    ranges.for_each(|(&(at, bytes), peer)| peer.released(at, bytes));
}

#[test]
fn bytes_in_blocks_come_in_any_parts_and_count_as_unread() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, b) = by_blocks(&x, &y.0);
    let right = message(100_000, 1);
    a.send(&right[..40_000]).unwrap();
    a.send(&right[40_000..]).unwrap();
    assert_eq!(b.flow.unread(), Ok(100_000));
    let mut got = vec![0; 50_000];
    assert_eq!(b.receive_with(&mut got, libc::MSG_PEEK), Ok(50_000));
    assert_eq!(got, right[..50_000]);
    let mut all = vec![];
    for part in [1, 39_998, 2, 30_000, 29_999] {
        let mut got = vec![0; part];
        assert_eq!(b.receive(&mut got), Ok(part));
        all.extend(got);
    }
    assert!(all == right, "another byte");
    assert_eq!(b.flow.unread(), Ok(0));
}

/// Another thread may have received what was there, and then the connection was reset.
#[test]
fn an_error_behind_what_was_taken_is_the_next_calls() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, b) = by_blocks(&x, &y.0);
    let bytes = message(100_000, 4);
    assert_eq!(a.send(&bytes), Ok(100_000));
    let taken = b.flow.take_blocks(100_000).unwrap();
    assert_eq!(read(&taken), bytes);
    give_back(&b, &taken);
    let linger = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(a.socket.as_ref().unwrap(), linger).unwrap();
    a.close();
    let mut room = [0; 10];
    let parts = [iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
    // SAFETY: our own room.
    let more = || unsafe { b.flow.receive_more(&parts, 0) };
    // (The call that meets the error has received something.)
    wait_until("it is reset", || more() == 0 && b.flow.has_error());
    assert_eq!(b.receive(&mut [0; 10]), Err(rustix::io::Errno::CONNRESET));
    assert_eq!(b.receive(&mut [0; 10]), Ok(0));
}

#[test]
fn taken_blocks_stay_until_they_are_given_back_and_a_receiver_that_keeps_much_gets_copies() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, b) = by_blocks(&x, &y.0);
    let short = || x.1.tcp_blocks_short.load(Relaxed);
    let mut kept = vec![];
    for i in 0.. {
        let right = message(500_000, i);
        a.send(&right).unwrap();
        match b.flow.take_blocks(500_000) {
            Some(taken) => kept.push((taken, right)),
            None => {
                let mut got = vec![0; right.len()];
                assert_eq!(b.receive(&mut got), Ok(500_000));
                assert!(got == right, "bytes of the ring");
                break;
            }
        }
        assert!(i < 20, "nobody is charged");
    }
    assert_eq!((kept.len(), short()), (8, 1), "4 MB may be out");
    for (taken, right) in kept.iter().rev() {
        assert!(read(taken) == *right, "it has changed");
        give_back(&b, taken);
    }
    for i in 0..50 {
        let right = message(700_000, i);
        a.send(&right).unwrap();
        let taken = b.flow.take_blocks(700_000).expect("a block was free");
        assert!(read(&taken) == right);
        give_back(&b, &taken);
    }
    assert_eq!(short(), 1);
}

#[test]
fn unread_blocks_are_sent_by_linux_where_the_receiver_goes_there() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, mut b) = by_blocks(&x, &y.0);
    let right = message(60_000, 3);
    a.send(&right).unwrap();
    let mut got = vec![0; 10_000];
    assert_eq!(b.receive(&mut got), Ok(10_000));
    assert_eq!(b.flow.by_linux_later(), Ok(true));
    a.flow.serve().unwrap();
    let socket = b.socket.as_mut().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut rest = vec![0; 50_000];
    socket.read_exact(&mut rest).unwrap();
    got.extend(rest);
    assert!(got == right, "another byte");
}

#[test]
fn blocks_of_connections_that_are_closed_unread_are_used_again() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    for i in 0..100 {
        let (a, b) = by_blocks(&x, &y.0);
        a.send(&message(1_000_000, i)).unwrap();
        b.close();
        a.close();
    }
    // (100 MB went by an arena of 64.)
    assert_eq!(x.1.tcp_blocks_short.load(Relaxed), 0);
}

/// The receiver looks for the last time, and then the block is there.
#[test]
fn blocks_of_connections_that_are_closed_while_they_are_filled_are_used_again() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let right = message(1_000_000, 1);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..300 {
        let (a, b) = by_blocks(&x, &y.0);
        std::thread::scope(|scope| {
            scope.spawn(|| while a.send(&right).is_ok() {});
            std::thread::sleep(Duration::from_micros(rng.u64(..300)));
            b.close();
        });
        a.close();
    }
    assert_eq!(x.1.tcp_blocks_short.load(Relaxed), 0);
}

/// The ring is offered anew, and nobody enters it; whichever side closes first.
#[test]
fn blocks_that_were_only_offered_are_used_again() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let right = message(1_000_000, 1);
    let in_blocks = || x.1.tcp_block_bytes.load(Relaxed);
    let mut offered = 0;
    for i in 0..150 {
        let (a, b) = by_blocks(&x, &y.0);
        a.flow.send_by_linux(false).unwrap();
        a.send(b"by Linux").unwrap();
        let mut got = [0; 8];
        assert_eq!(b.receive_with(&mut got, libc::MSG_WAITALL), Ok(8));
        let before = in_blocks();
        a.send_with(&right, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT).unwrap();
        offered += u32::from(in_blocks() > before);
        let ends = if i % 2 == 0 { [a, b] } else { [b, a] };
        ends.into_iter().for_each(End::close);
    }
    assert!(offered > 100, "only {offered} were offered");
    assert_eq!(x.1.tcp_blocks_short.load(Relaxed), 0);
}

/// By then the first block's position seems to lie ahead of the ring's.
#[test]
fn a_run_in_a_block_is_forgotten_when_2_gb_have_gone_by_the_ring() {
    let service = service();
    let (mut x, y) = (program(&service.name), program(&service.name));
    let blocks = Blocks { from: 100_000, always: true };
    let settings =
        Settings { waiting: Waiting::Sleep, counters: x.1, ..Settings::new(&*service.name) };
    x.0 = Context::new(Settings { blocks, ..settings }).unwrap();
    let [(a, b), (c, d)] = [(); 2].map(|()| at_rings(&x.0, &y.0));
    let mut got = vec![0; 120_000];
    for (from, to) in [(&a, &b), (&c, &d)] {
        let before = x.1.tcp_block_bytes.load(Relaxed);
        wait_until("the arena is given", || {
            from.send(&[1; 100_000]).unwrap();
            assert_eq!(to.receive_with(&mut got[..100_000], libc::MSG_WAITALL), Ok(100_000));
            x.1.tcp_block_bytes.load(Relaxed) > before
        });
    }
    let part = vec![2; 99_000];
    let mut sent = 0;
    while sent < (1u64 << 31) + (1 << 20) {
        a.send(&part).unwrap();
        assert_eq!(b.receive(&mut got), Ok(part.len()));
        sent += part.len() as u64;
    }
    // The block that has the same handle is viewed, while what is unread is taken back.
    let right = message(100_000, 7);
    c.send(&right).unwrap();
    let taken = d.flow.take_blocks(right.len()).expect("it lies in a block");
    let unread = message(50_000, 8);
    a.send(&unread).unwrap();
    assert_eq!(b.flow.by_linux_later(), Ok(true));
    a.flow.serve().unwrap();
    let mut rest = vec![0; unread.len()];
    assert_eq!(b.receive_with(&mut rest, libc::MSG_WAITALL), Ok(unread.len()));
    assert!(rest == unread, "another byte");
    for i in 0..3 {
        c.send(&message(100_000, i)).unwrap();
        assert_eq!(d.receive_with(&mut got[..100_000], libc::MSG_WAITALL), Ok(100_000));
    }
    assert!(read(&taken) == right, "it has changed");
    give_back(&d, &taken);
}

/// Views of one range, which come back when they are called.
struct Viewed {
    peer: usize,
    range: (usize, usize),
    calls: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
}

impl Views for Viewed {
    fn recall(&self) {
        // (The first time a call is reading them.)
        if self.calls.fetch_add(1, Relaxed) > 0 {
            // SAFETY: it killed until what was handed over is back.
            let peer = unsafe { &*(self.peer as *const Peer) };
            peer.released(self.range.0, self.range.1);
        }
    }
}

impl Drop for Viewed {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Relaxed);
    }
}

#[test]
fn views_of_a_program_that_has_gone_are_called_back_and_nothing_is_left_of_it() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, b) = by_blocks(&x, &y.0);
    a.send(&message(100_000, 1)).unwrap();
    let taken = b.flow.take_blocks(100_000).unwrap();
    let (calls, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let peer = b.flow.peer().unwrap();
    let range = taken.ranges()[0];
    let made = Viewed {
        peer: Arc::as_ptr(&peer) as usize,
        range,
        calls: calls.clone(),
        ended: ended.clone(),
    };
    assert!(peer.known(|| Some(made)).is_some());
    drop((peer, taken));
    a.close();
    b.close();
    y.0.pump();
    assert_eq!(calls.load(Relaxed), 0, "the program lives");
    drop(x);
    wait_until("the views are called back", || {
        y.0.pump();
        ended.load(Relaxed) == 1
    });
    assert_eq!(calls.load(Relaxed), 2);
}

/// As [`program`], of large messages, and only where the receiver wants them so.
fn program_of_large(service: &str) -> (Arc<Context>, &'static Counters) {
    let counters: &Counters = Box::leak(Box::default());
    let blocks = Blocks { from: LARGE, always: false };
    let settings = Settings { waiting: Waiting::Sleep, counters, blocks, ..Settings::new(service) };
    (Context::new(settings).unwrap(), counters)
}
const LARGE: usize = 100_000;

/// Two ends; the second one's program takes blocks, as the first one knows.
fn by_large_blocks((x, counters): &(Arc<Context>, &Counters), y: &Arc<Context>) -> (End, End) {
    let (a, b) = at_rings(x, y);
    let mut got = vec![0; LARGE];
    wait_until("a message goes in a block", || {
        // (As a call does that could view it.)
        b.flow.await_blocks((1, LARGE), libc::MSG_DONTWAIT).unwrap();
        y.pump();
        a.send(&message(LARGE, 1)).unwrap();
        assert_eq!(b.receive_with(&mut got, libc::MSG_WAITALL), Ok(LARGE));
        counters.tcp_block_bytes.load(Relaxed) > 0
    });
    (a, b)
}

#[test]
fn a_receiver_that_copies_all_that_comes_in_blocks_gets_it_by_the_ring() {
    let service = service();
    let (x, y) = (program_of_large(&service.name), program_of_large(&service.name));
    let (a, b) = by_large_blocks(&x, &y.0);
    let mut got = vec![0; LARGE];
    let in_blocks = || x.1.tcp_block_bytes.load(Relaxed);
    let sends = |got: &mut Vec<u8>| {
        let before = in_blocks();
        a.send(&message(LARGE, 5)).unwrap();
        assert_eq!(b.receive_with(got, libc::MSG_WAITALL), Ok(LARGE));
        assert!(*got == message(LARGE, 5));
        in_blocks() > before
    };
    let blocks = (0..50).filter(|_| sends(&mut got)).count();
    assert!(blocks < 10, "{blocks} of 50 went in blocks");
    assert!(!sends(&mut got));
}

#[test]
fn a_receiver_of_little_for_long_does_not_look_for_blocks() {
    let service = service();
    let (x, y) = (program_of_large(&service.name), program_of_large(&service.name));
    let (a, b) = by_large_blocks(&x, &y.0);
    assert!(b.flow.brings_much());
    for _ in 0..100 {
        a.send(b"little").unwrap();
        assert_eq!(b.receive(&mut [0; 6]), Ok(6));
    }
    assert!(!b.flow.brings_much());
    a.send(&message(LARGE, 6)).unwrap();
    assert_eq!(b.receive_with(&mut vec![0; LARGE], libc::MSG_WAITALL), Ok(LARGE));
    assert!(b.flow.brings_much());
}

#[test]
fn a_program_that_gives_up_rights_keeps_no_arena_and_goes_on_by_linux() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, b) = by_blocks(&x, &y.0);
    let bytes = message(100_000, 3);
    a.send(&bytes).unwrap();
    let taken = b.flow.take_blocks(100_000).unwrap();
    let (calls, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let peer = Arc::as_ptr(&taken.peers()[0]) as usize;
    let (range, of) = (taken.ranges()[0], (calls.clone(), ended.clone()));
    let made = Viewed { peer, range, calls: of.0, ended: of.1 };
    assert!(taken.peers()[0].known(|| Some(made)).is_some());
    y.0.forgets_arenas();
    assert!(b.flow.has_arenas(), "a connection reads there");
    assert_eq!(b.flow.by_linux(Duration::from_secs(5)), Ok(true));
    y.0.forgets_arenas();
    // (A view stays until it is called back.)
    assert_eq!(read(&taken), bytes);
    give_back(&b, &taken);
    drop(taken);
    wait_until("nothing of it is mapped", || {
        y.0.pump();
        ended.load(Relaxed) == 1
    });
    assert!(calls.load(Relaxed) > 0 && !b.flow.has_arenas());
    let mut got = [0; 5];
    for (from, to) in [(&a, &b), (&b, &a), (&a, &b)] {
        from.send(b"after").unwrap();
        assert_eq!(to.receive_with(&mut got, libc::MSG_WAITALL), Ok(5));
        assert_eq!(&got, b"after");
    }
    assert!(!b.flow.has_arenas());
}

/// (As before a sandbox, which may end it for the calls that an arena takes.)
#[test]
fn an_arena_that_is_under_way_is_not_taken_by_a_program_that_gives_nothing() {
    let service = service();
    let (x, y) = (program_of_large(&service.name), program_of_large(&service.name));
    let (a, b) = at_rings(&x.0, &y.0);
    a.send(&message(LARGE, 1)).unwrap();
    receive_in_pieces(&b, LARGE);
    // (Which offers it.)
    assert_eq!(a.flow.settles_from(), usize::MAX);
    wait_until("it has come", || y.0.has_news());
    y.0.gives_nothing();
    y.0.forgets_arenas();
    y.0.pump();
    assert!(!y.0.has_news() && !b.flow.has_arenas());
}

#[test]
fn a_program_that_is_not_to_be_looked_at_puts_nothing_more_into_blocks() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, b) = by_blocks(&x, &y.0);
    x.0.gives_nothing();
    let before = x.1.tcp_block_bytes.load(Relaxed);
    let (bytes, mut got) = (message(100_000, 8), vec![0; 100_000]);
    a.send(&bytes).unwrap();
    assert_eq!(b.receive_with(&mut got, libc::MSG_WAITALL), Ok(100_000));
    assert!(got == bytes);
    assert_eq!(x.1.tcp_block_bytes.load(Relaxed), before);
}

/// Blocks that are given back when nobody keeps them any more, as extents are.
struct Kept(Option<Taken>, Arc<AtomicBool>);

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(taken) = self.0.take() else { return };
        // (A process that is killed gives nothing back.)
        if self.1.load(Relaxed) {
            return;
        }
        let ranges = taken.ranges().iter().zip(taken.peers());
        ranges.for_each(|(&(at, bytes), peer)| peer.released(at, bytes));
    }
}

/// Sends on what was taken, with bytes before and behind it, as parts of pages are. The result
/// lives until nobody has the blocks any more.
fn send_on(
    end: &End,
    (before, taken, behind): (&[u8], Taken, &[u8]),
    killed: &Arc<AtomicBool>,
) -> Weak<Kept> {
    let part = |at: usize, bytes| iovec { iov_base: at as *mut _, iov_len: bytes };
    let own = |bytes: &[u8]| part(bytes.as_ptr() as usize, bytes.len());
    let mut parts = vec![own(before)];
    parts.extend(taken.ranges().iter().map(|&(at, bytes)| part(at, bytes)));
    parts.push(own(behind));
    let ranges = taken.ranges().len();
    let kept = Arc::new(Kept(Some(taken), killed.clone()));
    let lives = Arc::downgrade(&kept);
    let mut keeps = vec![None];
    keeps.extend((0..ranges).map(|_| Some(kept.clone())));
    keeps.push(None);
    drop(kept);
    send_kept(end, &parts, keeps);
    lives
}

/// Sends parts, of which each that has a keeper stays as it is until that is dropped.
fn send_kept(end: &End, parts: &[iovec], mut keeps: Vec<Option<Arc<Kept>>>) {
    let all: usize = parts.iter().map(|part| part.iov_len).sum();
    let forward = end.flow.forward(parts, &mut keeps);
    // SAFETY: ours, and a block's that stays.
    let sent = unsafe {
        match &forward {
            Some(forward) => end.flow.send_on(parts, libc::MSG_NOSIGNAL, forward),
            None => end.flow.send(parts, libc::MSG_NOSIGNAL),
        }
    };
    assert_eq!(sent, Ok(all));
}

/// Receives so many bytes: in blocks, as far as they lie there.
fn receive_all(end: &End, bytes: usize) -> (Vec<u8>, Vec<Taken>) {
    end.flow.context().pump();
    receive_unpumped(end, bytes)
}

/// As above, and looks at what the service says only where it waits, as calls that wait do.
fn receive_unpumped(end: &End, bytes: usize) -> (Vec<u8>, Vec<Taken>) {
    let (mut all, mut kept) = (vec![], vec![]);
    while all.len() < bytes {
        end.flow.await_blocks((1, bytes), 0).unwrap();
        match end.flow.take_blocks(bytes - all.len()) {
            Some(taken) => {
                all.extend(read(&taken));
                kept.push(taken);
            }
            None => {
                let mut got = vec![0; bytes - all.len()];
                let count = end.receive(&mut got).unwrap();
                all.extend_from_slice(&got[..count]);
            }
        }
    }
    (all, kept)
}

/// A message by `a`, `b` and `c`, `d`, of which the second program gives it on.
fn by_two([a, b, c, d]: [&End; 4], seed: usize, killed: &Arc<AtomicBool>) -> (Vec<u8>, Vec<Taken>) {
    let right = message(200_000, seed);
    a.send(&right).unwrap();
    let taken = b.flow.take_blocks(200_000).expect("it lies in a block");
    send_on(c, (b"before", taken, b"behind"), killed);
    let right = [b"before", &right[..], b"behind"].concat();
    let (all, kept) = receive_all(d, right.len());
    assert!(all == right, "another byte");
    (right, kept)
}

/// The same until something is given on.
fn given_on(relay: &Context, ends: [&End; 4], killed: &Arc<AtomicBool>) -> (Vec<u8>, Vec<Taken>) {
    let [a, b, c, d] = ends;
    let before = relay.bytes_given_on();
    let mut found = None;
    wait_until("a block is given on", || {
        let (right, kept) = by_two([a, b, c, d], 1, killed);
        let is_on = relay.bytes_given_on() > before;
        match is_on {
            true => found = Some((right, kept)),
            false => kept.iter().for_each(|taken| give_back(d, taken)),
        }
        is_on
    });
    found.unwrap()
}

#[test]
fn a_block_is_given_on_without_a_copy_and_comes_back_by_who_gave_it_on() {
    let service = service();
    let ([x, y, _z], [a, b, c, d]) = by_a_relay(&service.name);
    let killed: Arc<AtomicBool> = Arc::default();
    let (right, kept) = given_on(&y.0, [&a, &b, &c, &d], &killed);
    let all: usize = kept.iter().map(Taken::bytes).sum();
    assert_eq!(all, right.len(), "all of it lies in blocks");
    let mut others = vec![(kept, right)];
    for i in 2..8 {
        let (right, kept) = by_two([&a, &b, &c, &d], i, &killed);
        others.push((kept, right));
    }
    for (kept, right) in others.iter().rev() {
        let all: Vec<u8> = kept.iter().flat_map(read).collect();
        assert!(all == *right, "it has changed");
        kept.iter().for_each(|taken| give_back(&d, taken));
    }
    drop(others);
    // (4 MB of each connection may be out.)
    let short = x.1.tcp_blocks_short.load(Relaxed);
    for i in 0..100 {
        let (_, kept) = by_two([&a, &b, &c, &d], i, &killed);
        kept.iter().for_each(|taken| give_back(&d, taken));
        // (A call that waits does this.)
        let _ = b.flow.await_blocks((1, 1), libc::MSG_DONTWAIT);
    }
    assert_eq!(x.1.tcp_blocks_short.load(Relaxed), short);
}

/// A program that sends something else next sees that it is back.
#[test]
fn a_part_that_was_given_on_and_is_back_goes_back_with_the_next_wait() {
    let service = service();
    let ([_x, y, _z], [a, b, c, d]) = by_a_relay(&service.name);
    let killed: Arc<AtomicBool> = Arc::default();
    let (_, kept) = given_on(&y.0, [&a, &b, &c, &d], &killed);
    kept.iter().for_each(|taken| give_back(&d, taken));
    let waits = || b.flow.await_blocks((1, 1), libc::MSG_DONTWAIT);
    assert_eq!(waits(), Ok(0));
    let right = message(200_000, 5);
    a.send(&right).unwrap();
    let taken = b.flow.take_blocks(200_000).expect("it lies in a block");
    let lives = send_on(&c, (b"", taken, b""), &killed);
    let (_, kept) = receive_all(&d, right.len());
    assert_eq!(waits(), Ok(0));
    assert!(lives.upgrade().is_some(), "it is out");
    kept.iter().for_each(|taken| give_back(&d, taken));
    c.send(b"else").unwrap();
    assert_eq!(d.receive(&mut [0; 4]), Ok(4));
    assert_eq!(waits(), Ok(0));
    assert!(lives.upgrade().is_none(), "it never goes back");
}

#[test]
fn each_part_of_a_message_goes_back_whatever_becomes_of_the_others() {
    let service = service();
    let ([_x, y, _z], [a, b, c, d]) = by_a_relay(&service.name);
    let killed: Arc<AtomicBool> = Arc::default();
    let (_, kept) = given_on(&y.0, [&a, &b, &c, &d], &killed);
    kept.iter().for_each(|taken| give_back(&d, taken));
    let (mut right, mut parts, mut keeps, mut lives) = (vec![], vec![], vec![], vec![]);
    for bytes in [200_000, 150_000] {
        right.push(message(bytes, bytes));
        a.send(right.last().unwrap()).unwrap();
        let taken = b.flow.take_blocks(bytes).expect("it lies in a block");
        let &[(at, len)] = taken.ranges() else { panic!("in one block") };
        parts.push(iovec { iov_base: at as *mut _, iov_len: len });
        let kept = Arc::new(Kept(Some(taken), killed.clone()));
        lives.push(Arc::downgrade(&kept));
        keeps.push(Some(kept));
    }
    send_kept(&c, &parts, keeps);
    let (all, taken) = receive_all(&d, 350_000);
    assert!(all == right.concat(), "another byte");
    let ranges = || taken.iter().flat_map(|taken| taken.ranges().iter().zip(taken.peers()));
    assert_eq!(ranges().count(), 2);
    let alive = || {
        assert_eq!(b.flow.await_blocks((1, 1), libc::MSG_DONTWAIT), Ok(0));
        lives.iter().map(|lives| lives.upgrade().is_some()).collect::<Vec<_>>()
    };
    assert_eq!(alive(), [true, true]);
    let mut ranges = ranges();
    for left in [[false, true], [false, false]] {
        let (&(at, bytes), peer) = ranges.next().unwrap();
        peer.released(at, bytes);
        assert_eq!(alive(), left);
    }
}

#[test]
fn a_part_that_was_given_on_stays_when_the_relay_has_gone() {
    let service = service();
    let ([x, y, _z], [a, b, c, d]) = by_a_relay(&service.name);
    let killed: Arc<AtomicBool> = Arc::default();
    let (right, kept) = given_on(&y.0, [&a, &b, &c, &d], &killed);
    // One is unread.
    let unread = message(300_000, 9);
    a.send(&unread).unwrap();
    let taken = b.flow.take_blocks(300_000).unwrap();
    send_on(&c, (b"", taken, b""), &killed);
    killed.store(true, Relaxed);
    [b, c].into_iter().for_each(End::close);
    drop(y);
    a.close();
    // Others' messages do not overwrite it.
    let other = program(&service.name);
    let (e, f) = by_blocks(&x, &other.0);
    for i in 0..200 {
        e.send(&message(900_000, i)).unwrap();
        let (_, taken) = receive_all(&f, 900_000);
        taken.iter().for_each(|taken| give_back(&f, taken));
        x.0.pump();
    }
    let all: Vec<u8> = kept.iter().flat_map(read).collect();
    assert!(all == right, "it has changed");
    let (all, taken) = receive_all(&d, 300_000);
    assert!(all == unread, "what was unread has changed");
    kept.iter().chain(&taken).for_each(|taken| give_back(&d, taken));
}

#[test]
fn numbers_of_arenas_are_used_again_when_their_programs_have_gone() {
    let service = service();
    let [y, z] = [(); 2].map(|()| program(&service.name));
    let killed: Arc<AtomicBool> = Arc::default();
    let (c, d) = by_blocks(&y, &z.0);
    for i in 0..30 {
        let x = program(&service.name);
        let (a, b) = by_blocks(&x, &y.0);
        let (right, kept) = given_on(&y.0, [&a, &b, &c, &d], &killed);
        [a, b].into_iter().for_each(End::close);
        drop(x);
        if i % 3 == 0 {
            y.0.pump();
            z.0.pump();
        }
        let all: Vec<u8> = kept.iter().flat_map(read).collect();
        assert!(all == right, "it has changed");
        kept.iter().for_each(|taken| give_back(&d, taken));
    }
}

/// How all of some bytes are received.
type Receives = fn(&End, usize) -> (Vec<u8>, Vec<Taken>);

/// Looks at the service's answers for so long that all that was said is heard.
fn hears(program: &Context) {
    for _ in 0..50 {
        program.pump();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The first source's arena has the number while the last receiver sleeps, which has not said that
/// it can read it; then the second source's has.
#[test]
fn words_on_the_arena_that_had_a_number_are_not_taken_for_the_next_one() {
    let service = service();
    let [x, y, z, w] = [(); 4].map(|()| program(&service.name));
    let killed: Arc<AtomicBool> = Arc::default();
    let (a, b) = by_blocks(&x, &y.0);
    let (e, f) = by_blocks(&w, &y.0);
    let (c, d) = by_blocks(&y, &z.0);
    let relay = |from: &End, to: &End, seed: usize| {
        let right = message(200_000, seed);
        from.send(&right).unwrap();
        let taken = to.flow.take_blocks(200_000).expect("it lies in a block");
        send_on(&c, (b"before", taken, b"behind"), &killed);
        let right = [b"before", &right[..], b"behind"].concat();
        let (all, kept) = receive_unpumped(&d, right.len());
        assert!(all == right, "another byte of message {seed}");
        kept.iter().for_each(|taken| give_back(&d, taken));
    };
    relay(&a, &b, 1);
    hears(&z.0);
    [a, b].into_iter().for_each(End::close);
    drop(x);
    hears(&y.0);
    for seed in 2..6 {
        relay(&e, &f, seed);
    }
    let before = y.0.bytes_given_on();
    hears(&z.0);
    for seed in 6..10 {
        relay(&e, &f, seed);
    }
    assert!(y.0.bytes_given_on() > before, "the second one's is never known");
}

/// The child sends by Linux what is unread then, and does not know what its parent has given on
/// since.
#[test]
fn a_forked_child_sends_by_linux_what_its_parent_has_sent_since() {
    let service = service();
    let ([_x, y, _z], [a, b, c, mut d]) = by_a_relay(&service.name);
    let killed: Arc<AtomicBool> = Arc::default();
    let (mut goes_on, mut told) = std::io::pipe().unwrap();
    let child = forks(&y.0, &c, || {
        let _ = goes_on.read(&mut [0]);
        let served = c.flow.serve().is_ok();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if served { 0 } else { 1 }) };
    });
    let before = (y.0.bytes_given_on(), y.1.tcp_block_bytes.load(Relaxed));
    for seed in 0..5 {
        let (_, kept) = by_two([&a, &b, &c, &d], seed, &killed);
        kept.iter().for_each(|taken| give_back(&d, taken));
    }
    assert_eq!(before, (y.0.bytes_given_on(), y.1.tcp_block_bytes.load(Relaxed)));
    let right = message(200_000, 9);
    a.send(&right).unwrap();
    let taken = b.flow.take_blocks(right.len()).expect("it lies in a block");
    send_on(&c, (b"", taken, b""), &killed);
    assert_eq!(d.flow.by_linux_later(), Ok(true));
    let socket = d.socket.as_mut().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    told.write_all(b"now").unwrap();
    let mut got = vec![0; right.len()];
    socket.read_exact(&mut got).unwrap();
    assert!(got == right, "another byte");
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
}

/// A program that sends to the relay, and ends now and then.
struct Source {
    program: (Arc<Context>, &'static Counters),
    ends: (End, End),
    /// Sent, and not received.
    unread: usize,
}

/// Sources, a relay and a sink beside plain lists of bytes: messages of any size are sent, received
/// in blocks or not, kept, sent on with bytes around them, kept again and given back in any order,
/// while sources end and others come. Messages that are kept stay as they are.
#[test]
fn random_messages_by_a_relay_are_what_a_stream_of_bytes_would_bring() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds: Vec<u64> = match number("UNCOPY_RELAY_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("UNCOPY_RELAY_SEEDS").unwrap_or(6)).map(|_| fastrand::u64(..)).collect(),
    };
    let mut given_on = 0;
    for seed in seeds {
        println!("UNCOPY_RELAY_SEED={seed}");
        for receives in [receive_all as Receives, receive_unpumped] {
            given_on += relayed(&mut fastrand::Rng::with_seed(seed), receives);
        }
    }
    assert!(given_on > 1 << 20, "only {given_on} bytes were given on");
}

fn relayed(rng: &mut fastrand::Rng, receives: Receives) -> u64 {
    let service = service();
    let [y, z] = [(); 2].map(|()| program(&service.name));
    let (c, d) = by_blocks(&y, &z.0);
    let source = || {
        let program = program(&service.name);
        let ends = by_blocks(&program, &y.0);
        Source { program, ends, unread: 0 }
    };
    let lives: Arc<AtomicBool> = Arc::default();
    let mut sources = vec![source(), source()];
    // The messages that the relay has taken and those that the sink keeps, with what must be there.
    let (mut taken, mut kept) = (vec![], vec![]);
    let (mut sent, mut seed) = (std::collections::VecDeque::<u8>::new(), 0);
    for step in 0..250 {
        let from = rng.usize(..sources.len());
        match rng.u32(..100) {
            0..30 if sources[from].unread == 0 => {
                seed += 1;
                let right = message(rng.usize(1..300_000), seed);
                sources[from].ends.0.send(&right).unwrap();
                sources[from].unread = right.len();
                let (all, parts) = receives(&sources[from].ends.1, right.len());
                assert!(all == right, "another byte from a source, step {step}");
                sources[from].unread = 0;
                taken.extend(parts);
            }
            30..60 if !taken.is_empty() && sent.len() < 400_000 => {
                let one: Taken = taken.swap_remove(rng.usize(..taken.len()));
                let around = message(rng.usize(..5000), step);
                sent.extend(&around);
                sent.extend(read(&one));
                sent.extend(&around[..around.len() / 2]);
                let behind = around[..around.len() / 2].to_vec();
                send_on(&c, (&around, one, &behind), &lives);
            }
            60..80 if !sent.is_empty() => {
                let (all, parts) = receives(&d, rng.usize(1..=sent.len()));
                let right: Vec<u8> = sent.drain(..all.len()).collect();
                assert!(all == right, "another byte from the relay, step {step}");
                kept.extend(parts.into_iter().map(|part| (read(&part), part)));
            }
            80..95 if !kept.is_empty() => {
                let (right, part): (Vec<u8>, Taken) = kept.swap_remove(rng.usize(..kept.len()));
                assert!(read(&part) == right, "it has changed, step {step}");
                give_back(&d, &part);
            }
            95 | 96 => {
                let Source { program, ends: (a, b), .. } = sources.swap_remove(from);
                [a, b].into_iter().for_each(End::close);
                drop(program);
                sources.push(source());
            }
            _ => {
                [&y.0, &z.0].into_iter().for_each(|program| program.pump());
                for (right, part) in &kept {
                    assert!(read(part) == *right, "it has changed, step {step}");
                }
            }
        }
    }
    let (all, parts) = receives(&d, sent.len());
    assert!(all.iter().copied().eq(sent), "another byte at the end");
    parts.iter().chain(kept.iter().map(|(_, part)| part)).for_each(|part| give_back(&d, part));
    y.0.bytes_given_on()
}

/// Two ends of programs whose messages of 1,000 bytes and more go in blocks, where the receiver
/// asks for them.
fn that_ask(service: &str) -> (End, End, &'static Counters) {
    let counters: &Counters = Box::leak(Box::default());
    let blocks = Blocks { from: 1000, always: false };
    let settings =
        |counters| Settings { waiting: Waiting::Sleep, counters, blocks, ..Settings::new(service) };
    let others: &Counters = Box::leak(Box::default());
    let (x, y) = (Context::new(settings(counters)), Context::new(settings(others)));
    let (a, b) = at_rings(&x.unwrap(), &y.unwrap());
    (a, b, counters)
}

/// Sends what has settled, which is as long as `right`, and says how much went where it lies.
fn send_settled((a, b): (&End, &End), counters: &Counters, at: usize, right: &[u8]) -> u64 {
    let parts = [iovec { iov_base: at as *mut _, iov_len: right.len() }];
    let forward = a.flow.forward(&parts, &mut [Some(())]).expect("it lies in an arena");
    let before = counters.tcp_given_on_bytes.load(Relaxed);
    // SAFETY: a block that has settled.
    assert_eq!(unsafe { a.flow.send_on(&parts, 0, &forward) }, Ok(right.len()));
    let mut got = vec![0; right.len()];
    assert_eq!(b.receive(&mut got), Ok(right.len()));
    assert!(got == right, "other bytes");
    counters.tcp_given_on_bytes.load(Relaxed) - before
}

#[test]
fn what_has_settled_is_given_to_a_receiver_that_rests_from_blocks() {
    let service = service();
    let (a, b, counters) = that_ask(&service.name);
    let (block_bytes, right) = (|| counters.tcp_block_bytes.load(Relaxed), message(50_000, 3));
    let copies = || {
        let before = block_bytes();
        a.send(&right).unwrap();
        let mut got = vec![0; right.len()];
        assert_eq!(b.receive(&mut got), Ok(right.len()));
        block_bytes() > before
    };
    assert_eq!(a.flow.settles_from(), usize::MAX, "the other side has no arena of ours");
    wait_until("it asks for blocks, and gets them", || {
        let _ = b.flow.await_blocks((1, 1), libc::MSG_DONTWAIT);
        let _ = b.flow.peer();
        copies()
    });
    wait_until("it rests", || !copies());
    assert_eq!(a.flow.settles_from(), 1000);
    let block = a.flow.settling(right.len()).expect("there is room");
    // SAFETY: ours.
    unsafe { block.fill(right.as_ptr()) }.unwrap();
    let (own, at) = (block.own().clone(), block.range().0);
    block.is_settled();
    for _ in 0..100 {
        assert_eq!(send_settled((&a, &b), counters, at, &right), right.len() as u64);
    }
    assert!(!copies(), "what is copied goes by the ring");
    own.released(at);
}

#[test]
fn parts_of_files_go_by_the_ring_to_who_may_ask_for_blocks_and_else_are_tried() {
    let service = service();
    let (a, b, counters) = that_ask(&service.name);
    let goes = || a.flow.files_from() == 1000 && a.flow.takes_file();
    let count = |calls: u32| {
        let went = |_: &u32| {
            let goes = goes();
            goes.then(|| a.flow.sends_file());
            goes
        };
        (0..calls).filter(went).count()
    };
    assert_eq!(count(20), 8);
    assert_eq!(count(6400), 100);
    wait_until("it asks for blocks, and gets them", || {
        a.send(&message(5000, 1)).unwrap();
        let _ = b.flow.await_blocks((1, 1), libc::MSG_DONTWAIT);
        let _ = b.flow.peer();
        assert_eq!(b.receive(&mut [0; 5000]), Ok(5000));
        counters.tcp_block_bytes.load(Relaxed) > 0
    });
    assert_eq!(count(100), 100);
}

/// As [`program_of_large`], twice; the receiver has been sent a large message, received in pieces,
/// and has the sender's arena since.
fn that_copies(service: &str) -> (End, End, &'static Counters) {
    let ((x, counters), (y, _)) = (program_of_large(service), program_of_large(service));
    let (a, b) = at_rings(&x, &y);
    assert_eq!(a.flow.settles_from(), usize::MAX, "it has received nothing");
    wait_until("it has the arena", || {
        a.send(&message(LARGE, 1)).unwrap();
        receive_in_pieces(&b, LARGE);
        y.pump();
        a.flow.settles_from() == LARGE
    });
    (a, b, counters)
}

fn receive_in_pieces(end: &End, bytes: usize) -> Vec<u8> {
    let mut all = vec![];
    while all.len() < bytes {
        let mut got = vec![0; (bytes - all.len()).min(16 << 10)];
        assert_eq!(end.receive(&mut got), Ok(got.len()));
        all.extend(got);
    }
    all
}

/// What has settled, where it lies, and its bytes.
fn settled(end: &End, bytes: usize) -> (Arc<uncopy_tcp_socket::Own>, usize, Vec<u8>) {
    let right = message(bytes, 3);
    let block = end.flow.settling(bytes).expect("there is room");
    // SAFETY: ours.
    unsafe { block.fill(right.as_ptr()) }.unwrap();
    let (own, at) = (block.own().clone(), block.range().0);
    block.is_settled();
    (own, at, right)
}

#[test]
fn a_receiver_of_pieces_is_given_what_has_settled_and_what_lies_around_it_by_the_ring() {
    let service = service();
    let (a, b, counters) = that_copies(&service.name);
    let (own, at, right) = settled(&a, 2 * LARGE);
    let around = message(5000, 4);
    let part = |at: usize, bytes| iovec { iov_base: at as *mut _, iov_len: bytes };
    let beside = || part(around.as_ptr() as usize, around.len());
    let parts = [beside(), beside(), part(at, right.len()), beside()];
    let all = [&around[..], &around, &right, &around].concat();
    for i in 0..100 {
        let mut keeps = [None, None, Some(()), None];
        let forward = a.flow.forward(&parts, &mut keeps).expect("it lies in an arena");
        // SAFETY: ours, and a block that has settled.
        assert_eq!(unsafe { a.flow.send_on(&parts, 0, &forward) }, Ok(all.len()));
        assert_eq!((forward.given(), b.flow.unread()), (right.len(), Ok(all.len())));
        if i % 3 == 0 {
            let mut seen = vec![0; all.len()];
            assert_eq!(b.receive_with(&mut seen, libc::MSG_PEEK), Ok(all.len()));
            assert!(seen == all, "other bytes are seen");
        }
        assert!(receive_in_pieces(&b, all.len()) == all, "other bytes");
        assert!(!b.flow.brings_much(), "it would look for blocks with each call");
    }
    assert_eq!(counters.tcp_given_on_bytes.load(Relaxed), 100 * right.len() as u64);
    assert_eq!(counters.tcp_block_bytes.load(Relaxed), 0, "it asks for no blocks");
    own.released(at);
}

/// Sends as much as there is room for.
fn fill(end: &End, bytes: &[u8]) {
    while end.send_with(bytes, libc::MSG_DONTWAIT).is_ok() {}
}

#[test]
fn a_receiver_of_pieces_that_never_waits_gets_the_arena() {
    let service = service();
    let (x, y) = (program_of_large(&service.name), program_of_large(&service.name));
    let (a, b) = at_rings(&x.0, &y.0);
    wait_until("it has the arena", || {
        fill(&a, &message(LARGE, 1));
        assert_eq!(b.receive_with(&mut [0; 16 << 10], libc::MSG_DONTWAIT), Ok(16 << 10));
        a.flow.settles_from() == LARGE
    });
}

#[test]
fn small_messages_behind_a_large_one_do_not_look_for_the_arena() {
    let service = service();
    let (x, y) = (program_of_large(&service.name), program_of_large(&service.name));
    let (a, b) = at_rings(&x.0, &y.0);
    a.send(&message(LARGE, 1)).unwrap();
    receive_in_pieces(&b, LARGE);
    let little = || {
        a.send(b"little").unwrap();
        assert_eq!(b.receive_with(&mut [0; 6], libc::MSG_DONTWAIT), Ok(6));
    };
    little();
    // (Which offers the arena.)
    assert_eq!(a.flow.settles_from(), usize::MAX);
    wait_until("it has come to the program", || y.0.has_news());
    for _ in 0..100 {
        little();
    }
    assert!(!b.flow.has_arenas(), "it was looked for");
    y.0.pump();
    assert!(b.flow.has_arenas());
}

#[test]
fn a_receiver_of_pieces_that_empties_a_full_ring_finds_no_round_number_of_bytes() {
    let service = service();
    let (a, b, counters) = that_copies(&service.name);
    let (own, at, right) = settled(&a, 1 << 20);
    let parts = [iovec { iov_base: at as *mut _, iov_len: right.len() }];
    let forward = a.flow.forward(&parts, &mut [Some(())]).expect("it lies in an arena");
    // SAFETY: a block that has settled.
    let sent = unsafe { a.flow.send_on(&parts, libc::MSG_DONTWAIT, &forward) };
    assert_eq!((sent, b.flow.unread()), (Ok((1 << 20) - 64), Ok((1 << 20) - 64)));
    assert_eq!(forward.given(), (1 << 20) - 64);
    // In a gap of little room no run begins.
    assert_eq!(b.receive(&mut [0; 8 << 10]), Ok(8 << 10));
    // SAFETY: as above.
    let more = unsafe { a.flow.send_on(&parts, libc::MSG_DONTWAIT, &forward) };
    assert_eq!((more, forward.given()), (Ok(8 << 10), (1 << 20) - 64));
    let got = receive_in_pieces(&b, (1 << 20) - 64);
    assert!(got[..right.len() - 64 - (8 << 10)] == right[8 << 10..right.len() - 64]);
    assert!(got[right.len() - 64 - (8 << 10)..] == right[..8 << 10]);
    assert_eq!(counters.tcp_block_bytes.load(Relaxed), 0);
    own.released(at);
}

#[test]
fn files_of_which_nothing_is_given_where_it_lies_go_by_linux_whatever_else_is() {
    let service = service();
    let (a, b, counters) = that_copies(&service.name);
    let (own, at, right) = settled(&a, LARGE);
    let goes = || a.flow.takes_file().then(|| a.flow.sends_file()).is_some();
    for _ in 0..8 {
        assert!(goes());
        let parts = [iovec { iov_base: at as *mut _, iov_len: right.len() }];
        let forward = a.flow.forward(&parts, &mut [Some(())]).expect("it lies in an arena");
        // SAFETY: a block that has settled.
        assert_eq!(unsafe { a.flow.send_on(&parts, 0, &forward) }, Ok(right.len()));
        receive_in_pieces(&b, right.len());
    }
    assert_eq!(counters.tcp_given_on_bytes.load(Relaxed), 8 * right.len() as u64);
    assert!((0..60).filter(|_| goes()).count() <= 1);
    a.flow.gives_file();
    assert!((0..8).all(|_| goes()));
    own.released(at);
}

#[test]
fn nothing_that_has_settled_makes_room_for_a_receiver_that_copies() {
    let service = service();
    let (a, b, _) = that_copies(&service.name);
    let mut all: Vec<_> = (0..).map_while(|_| a.flow.settling(1 << 20)).collect();
    assert_eq!(all.len(), 16);
    all.drain(..).for_each(uncopy_tcp_socket::Settling::is_settled);
    std::thread::sleep(Duration::from_millis(5100));
    assert_eq!(a.flow.unused(), None);
    let _ = b.flow.await_blocks((1, 1), libc::MSG_DONTWAIT);
    assert!(a.flow.unused().is_some(), "it asks for blocks");
}

#[test]
fn what_is_not_in_an_arena_goes_by_the_ring_to_a_receiver_of_pieces() {
    let service = service();
    let (a, b, counters) = that_copies(&service.name);
    for i in 0..50 {
        let right = message(3 * LARGE, i);
        a.send(&right).unwrap();
        assert!(receive_in_pieces(&b, right.len()) == right, "other bytes");
    }
    assert_eq!(counters.tcp_block_bytes.load(Relaxed), 0);
}

/// A connection has 4 MB out at most, of which none comes back while a receiver stops in a piece.
#[test]
fn what_a_receiver_of_pieces_has_not_read_is_out_and_comes_back_with_what_it_reads() {
    let service = service();
    let (a, b, counters) = that_copies(&service.name);
    let (own, at, right) = settled(&a, 900_000);
    let parts = [iovec { iov_base: at as *mut _, iov_len: right.len() }];
    let keeps = Arc::new(());
    for _ in 0..50 {
        let mut kept = [Some(keeps.clone())];
        let forward = a.flow.forward(&parts, &mut kept).expect("it lies in an arena");
        // SAFETY: a block that has settled.
        assert_eq!(unsafe { a.flow.send_on(&parts, 0, &forward) }, Ok(right.len()));
        drop(forward);
        assert!(receive_in_pieces(&b, 500_000) == right[..500_000]);
        a.flow.context().pump();
        assert_eq!(Arc::strong_count(&keeps), 2, "its rest is unread");
        assert!(receive_in_pieces(&b, 400_000) == right[500_000..]);
        a.flow.context().pump();
        assert_eq!(Arc::strong_count(&keeps), 1, "all of it is back");
    }
    assert_eq!(counters.tcp_given_on_bytes.load(Relaxed), 50 * right.len() as u64);
    own.released(at);
}

#[test]
fn what_has_settled_and_is_half_read_goes_by_linux_to_a_receiver_of_pieces() {
    let service = service();
    let (a, mut b, _) = that_copies(&service.name);
    let (own, at, right) = settled(&a, 900_000);
    let parts = [iovec { iov_base: at as *mut _, iov_len: right.len() }];
    let forward = a.flow.forward(&parts, &mut [Some(())]).expect("it lies in an arena");
    // SAFETY: a block that has settled.
    assert_eq!(unsafe { a.flow.send_on(&parts, 0, &forward) }, Ok(right.len()));
    let mut got = receive_in_pieces(&b, 777_777);
    assert_eq!(b.flow.by_linux_later(), Ok(true));
    a.flow.serve().unwrap();
    let socket = b.socket.as_mut().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut rest = vec![0; right.len() - got.len()];
    socket.read_exact(&mut rest).unwrap();
    got.extend(rest);
    assert!(got == right, "another byte");
    own.released(at);
}

#[test]
fn what_a_relay_gives_on_is_read_in_pieces_where_it_lies() {
    let service = service();
    let [x, y, z] = [(); 3].map(|()| program_of_large(&service.name));
    let (a, b) = by_large_blocks(&x, &y.0);
    let (c, d) = at_rings(&y.0, &z.0);
    let killed: Arc<AtomicBool> = Arc::default();
    let given_on = || y.1.tcp_given_on_bytes.load(Relaxed);
    let relays = |seed: usize| {
        let before = given_on();
        let right = message(2 * LARGE, seed);
        a.send(&right).unwrap();
        let _ = b.flow.await_blocks((1, right.len()), 0);
        let taken = b.flow.take_blocks(right.len()).expect("it lies in a block");
        send_on(&c, (b"before", taken, b"behind"), &killed);
        let right = [b"before", &right[..], b"behind"].concat();
        assert!(receive_in_pieces(&d, right.len()) == right, "other bytes");
        z.0.pump();
        y.0.pump();
        given_on() - before
    };
    let mut seed = 0;
    wait_until("it is given on", || {
        seed += 1;
        relays(seed) > 0
    });
    for seed in 100..200 {
        assert_eq!(relays(seed), 2 * LARGE as u64);
    }
    assert_eq!(y.1.tcp_block_bytes.load(Relaxed), 0, "it asks for no blocks");
}
