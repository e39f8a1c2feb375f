//! Messages in blocks: they come as bytes of a ring would, whole or in parts; what is taken without
//! a copy stays as it is until it is given back, and every block comes back.

#![allow(missing_docs)]

mod common;

use common::{End, at_rings, service, wait_until};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use uncopy_counters::Counters;
use uncopy_tcp_socket::{Blocks, Context, Peer, Settings, Taken, Views, Waiting};

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
    let peer = end.flow.peer().unwrap();
    taken.ranges().iter().for_each(|&(at, bytes)| peer.released(at, bytes));
}

#[test]
fn what_lies_in_blocks_comes_in_any_parts_and_counts_as_unread() {
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

#[test]
fn what_was_taken_stays_as_it_is_until_it_is_given_back_and_who_keeps_much_gets_copies() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, b) = by_blocks(&x, &y.0);
    let short = || x.1.tcp_blocks_short.load(Relaxed);
    let mut kept = vec![];
    for i in 0.. {
        let right = message(500_000, i);
        a.send(&right).unwrap();
        match b.flow.take_blocks((1, 500_000)) {
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
        let taken = b.flow.take_blocks((1, 700_000)).expect("a block was free");
        assert!(read(&taken) == right);
        give_back(&b, &taken);
    }
    assert_eq!(short(), 1);
}

#[test]
fn what_is_unread_in_blocks_is_sent_by_linux_where_the_receiver_goes_there() {
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
            // SAFETY: it lives until what was handed over is back.
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
fn what_is_viewed_of_a_program_that_has_gone_is_called_back_and_nothing_is_left_of_it() {
    let service = service();
    let (x, y) = (program(&service.name), program(&service.name));
    let (a, b) = by_blocks(&x, &y.0);
    a.send(&message(100_000, 1)).unwrap();
    let taken = b.flow.take_blocks((1, 100_000)).unwrap();
    let (calls, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let peer = b.flow.peer().unwrap();
    let range = taken.ranges()[0];
    let made = Viewed {
        peer: std::ptr::from_ref(peer) as usize,
        range,
        calls: calls.clone(),
        ended: ended.clone(),
    };
    assert!(peer.known(|| Some(made)).is_some());
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
