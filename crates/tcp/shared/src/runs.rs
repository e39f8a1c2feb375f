//! Bytes of a direction that lie elsewhere than in its ring: in a block of an arena. Such a *run*
//! has its positions in the stream, as bytes of the ring have theirs, and counts against the ring's
//! room; only the place of its bytes is another. So whatever counts positions (how much is unread,
//! room, phases) knows nothing of runs.
//!
//! A queue of runs lies beside the ring. A run is written before the tail that ends it is
//! published. Its entry is used again once the consumer is past it; then that has counted it, too,
//! for it does so before it publishes its head.
//!
//! A part of the ring that is taken back, runs included, leaves its entries behind: of no bytes, or
//! of those that were taken. The consumer passes over them with the next byte that it takes, and so
//! they are used again only then.

use crate::Poisoned;
use crate::ring::{Produced, RING};
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Runs of one direction that are not received yet, at most.
pub const RUNS: usize = 32;

/// A run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The position of its first byte.
    pub position: u32,
    /// How many there are.
    pub bytes: u32,
    /// Where the first lies, in bytes from the arena's beginning.
    pub at: u32,
    /// Which arena, by the number that its sender has told.
    pub arena: u16,
    /// By which its bytes are given back.
    pub handle: u16,
}

impl Run {
    /// Where it begins and ends, seen from `head`. (Another program may have written anything.)
    fn seen_from(self, head: u32) -> (i64, i64) {
        let begins = i64::from(self.position.wrapping_sub(head).cast_signed());
        (begins, begins + i64::from(self.bytes))
    }
}

#[repr(C)]
#[derive(Debug)]
struct Entry {
    position: AtomicU32,
    bytes: AtomicU32,
    at: AtomicU32,
    of: AtomicU32,
}

impl Entry {
    fn store(&self, run: Run) {
        self.position.store(run.position, Relaxed);
        self.bytes.store(run.bytes, Relaxed);
        self.at.store(run.at, Relaxed);
        self.of.store(u32::from(run.arena) << 16 | u32::from(run.handle), Relaxed);
    }

    fn load(&self) -> Run {
        let of = self.of.load(Relaxed);
        Run {
            position: self.position.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            at: self.at.load(Relaxed),
            arena: (of >> 16) as u16,
            handle: of as u16,
        }
    }
}

/// The queue of a direction: its producer writes it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Queue([Entry; RUNS]);

impl Queue {
    /// Nothing was written.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        let word = || AtomicU32::new(0);
        Self(core::array::from_fn(|_| Entry {
            position: word(),
            bytes: word(),
            at: word(),
            of: word(),
        }))
    }

    fn entry(&self, number: u32) -> &Entry {
        &self.0[number as usize % RUNS]
    }
}

/// Where the next bytes of a direction lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// So many in the ring.
    Ring(u32),
    /// In a block: the part of a run.
    Block(Run),
}

/// Of the runs in their order the piece that begins `skip` bytes after `head`, at most `most` long.
fn piece(
    runs: impl Iterator<Item = Run>,
    (head, skip): (u32, u32),
    most: u32,
) -> Result<Piece, Poisoned> {
    let from = i64::from(skip);
    for run in runs {
        if run.bytes > RING {
            return Err(Poisoned);
        }
        let (begins, ends) = run.seen_from(head);
        if ends <= from {
            continue;
        }
        if begins > from {
            // (It is at most a ring ahead, or `most` ends before it.)
            return Ok(Piece::Ring((begins - from).min(most.into()) as u32));
        }
        let inside = (from - begins) as u32;
        return Ok(Piece::Block(Run {
            position: run.position.wrapping_add(inside),
            bytes: (run.bytes - inside).min(most),
            at: run.at.wrapping_add(inside),
            ..run
        }));
    }
    Ok(Piece::Ring(most))
}

/// The producer's runs, as it remembers them.
#[repr(C)]
#[derive(Debug)]
pub struct Outgoing {
    /// The oldest whose entry is in use,
    first: u32,
    /// and how many there ever were.
    next: u32,
    runs: [Run; RUNS],
}

impl Default for Outgoing {
    fn default() -> Self {
        Self::new()
    }
}

impl Outgoing {
    /// None was ever.
    pub const fn new() -> Self {
        let none = Run { position: 0, bytes: 0, at: 0, arena: 0, handle: 0 };
        Self { first: 0, next: 0, runs: [none; RUNS] }
    }

    fn run(&self, number: u32) -> Run {
        self.runs[number as usize % RUNS]
    }

    /// None is in the ring: its bytes are all its own.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// The consumer was seen at `head`.
    #[inline]
    pub fn look(&mut self, head: u32) {
        // (Strictly: what was taken back ends where the consumer is, who has not passed it.)
        while self.first != self.next && self.run(self.first).seen_from(head).1 < 0 {
            self.first = self.first.wrapping_add(1);
        }
    }

    /// One more has an entry.
    #[inline]
    pub fn has_room(&self) -> bool {
        (self.next.wrapping_sub(self.first) as usize) < RUNS
    }

    /// One more, at the ring's tail, which is to be published with its bytes.
    pub fn push(&mut self, queue: &Queue, produced: &Produced, run: Run) {
        debug_assert!(self.has_room());
        self.runs[self.next as usize % RUNS] = run;
        queue.entry(self.next).store(run);
        self.next = self.next.wrapping_add(1);
        produced.runs.store(self.next, Release);
    }

    /// Runs that were pushed and not published are dropped: the process that did that was killed in
    /// between, and the ring's own bytes are to come there. `tail` is how far it was published.
    #[inline]
    pub fn drop_unpublished(&mut self, queue: &Queue, tail: u32) {
        if !self.is_empty() && self.run(self.next.wrapping_sub(1)).seen_from(tail).1 > 0 {
            self.take_back(queue, tail, |_| ());
        }
    }

    /// Where the unread bytes are that begin `skip` bytes after `head`.
    pub fn piece(&self, head: u32, skip: u32, most: u32) -> Piece {
        let count = self.next.wrapping_sub(self.first);
        let runs = (0..count).map(|i| self.run(self.first.wrapping_add(i)));
        // (They are our own.)
        piece(runs, (head, skip), most).unwrap_or(Piece::Ring(most))
    }

    /// All that the consumer has not taken, who is at `head` and takes no more, was never there.
    /// Calls `untaken` with what is left of each run.
    pub fn take_back(&mut self, queue: &Queue, head: u32, mut untaken: impl FnMut(Run)) {
        for i in 0..self.next.wrapping_sub(self.first) {
            let number = self.first.wrapping_add(i);
            let run = self.run(number);
            let (begins, ends) = run.seen_from(head);
            if ends <= 0 {
                continue;
            }
            let taken = (-begins).max(0) as u32;
            untaken(Run {
                position: run.position.wrapping_add(taken),
                bytes: run.bytes - taken,
                at: run.at.wrapping_add(taken),
                ..run
            });
            let position = head.wrapping_sub(taken);
            let rest = Run { position, bytes: taken, ..run };
            self.runs[number as usize % RUNS] = rest;
            queue.entry(number).store(rest);
        }
    }
}

/// How far the consumer is in the queue.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Incoming {
    /// So many were written, as of the last look,
    seen: u32,
    /// of which so many are behind it.
    done: u32,
}

impl Incoming {
    /// None was ever.
    pub const fn new() -> Self {
        Self { seen: 0, done: 0 }
    }

    /// Looks how many there are. After each look at the ring's tail.
    #[inline]
    pub fn look(&mut self, produced: &Produced) {
        let seen = produced.runs.load(Acquire);
        if seen != self.seen {
            self.seen = seen;
            // (Entries that are overwritten were behind it.)
            let count = seen.wrapping_sub(self.done).min(RUNS as u32);
            self.done = seen.wrapping_sub(count);
        }
    }

    /// All that is in the ring, as of the last look, is its own.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.done == self.seen
    }

    fn runs<'a>(&self, queue: &'a Queue) -> impl Iterator<Item = Run> + use<'a> {
        let Self { done, seen } = *self;
        (0..seen.wrapping_sub(done)).map(move |i| queue.entry(done.wrapping_add(i)).load())
    }

    /// Where the bytes are that begin `skip` bytes after `head`, of which `most` were published.
    #[inline]
    pub fn piece(&self, queue: &Queue, head: u32, skip: u32, most: u32) -> Result<Piece, Poisoned> {
        if self.is_empty() {
            return Ok(Piece::Ring(most));
        }
        piece(self.runs(queue), (head, skip), most)
    }

    /// The next `bytes` after `head` are taken: before the new head is published. Calls `taken`
    /// with each part of a run that is among them.
    pub fn consume(&mut self, queue: &Queue, head: u32, bytes: u32, mut taken: impl FnMut(Run)) {
        let mut done = 0;
        for run in self.runs(queue) {
            let (begins, ends) = run.seen_from(head);
            if begins >= i64::from(bytes) {
                break;
            }
            let (from, to) = (begins.max(0), ends.min(bytes.into()));
            if from < to {
                let inside = (from - begins) as u32;
                taken(Run {
                    position: run.position.wrapping_add(inside),
                    bytes: (to - from) as u32,
                    at: run.at.wrapping_add(inside),
                    ..run
                });
            }
            if ends > i64::from(bytes) {
                break;
            }
            done += 1;
        }
        self.done = self.done.wrapping_add(done);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn produced() -> Box<Produced> {
        // SAFETY: atomics of integers; zero is a value of each.
        unsafe { Box::new(core::mem::zeroed()) }
    }

    fn run(position: u32, bytes: u32, at: u32) -> Run {
        Run { position, bytes, at, arena: 1, handle: 2 }
    }

    #[test]
    fn a_run_is_found_among_the_rings_bytes_and_in_parts() {
        let (queue, p) = (Queue::new(), produced());
        let (mut out, mut inc) = (Outgoing::new(), Incoming::new());
        assert!(out.is_empty() && inc.is_empty());
        out.push(&queue, &p, run(10, 20, 4096));
        inc.look(&p);
        for (skip, most, right) in [
            (0, 100, Piece::Ring(10)),
            (4, 3, Piece::Ring(3)),
            (10, 100, Piece::Block(run(10, 20, 4096))),
            (15, 5, Piece::Block(run(15, 5, 4101))),
            (30, 70, Piece::Ring(70)),
        ] {
            assert_eq!(inc.piece(&queue, 0, skip, most), Ok(right), "{skip} {most}");
            assert_eq!(out.piece(0, skip, most), right);
        }
        let mut taken = vec![];
        inc.consume(&queue, 0, 12, |part| taken.push(part));
        assert_eq!(inc.piece(&queue, 12, 0, 100), Ok(Piece::Block(run(12, 18, 4098))));
        inc.consume(&queue, 12, 18, |part| taken.push(part));
        assert_eq!(taken, [run(10, 2, 4096), run(12, 18, 4098)]);
        assert!(inc.is_empty());
    }

    #[test]
    fn an_entry_is_used_again_once_the_consumer_is_past_it() {
        let (queue, p) = (Queue::new(), produced());
        let mut out = Outgoing::new();
        for i in 0..RUNS as u32 {
            assert!(out.has_room());
            out.push(&queue, &p, run(i * 10, 10, 0));
        }
        assert!(!out.has_room());
        out.look(10);
        assert!(!out.has_room(), "it is at the end of the first, and perhaps has not counted it");
        out.look(11);
        assert!(out.has_room());
    }

    #[test]
    fn a_run_that_is_taken_back_leaves_what_was_taken_and_no_more() {
        let (queue, p) = (Queue::new(), produced());
        let (mut out, mut inc) = (Outgoing::new(), Incoming::new());
        out.push(&queue, &p, run(0, 100, 0));
        out.push(&queue, &p, run(150, 50, 200));
        inc.look(&p);
        let mut got = vec![];
        inc.consume(&queue, 0, 30, |part| got.push(part));
        out.look(30);
        let mut back = vec![];
        out.take_back(&queue, 30, |part| back.push(part));
        assert_eq!((got, back), (vec![run(0, 30, 0)], vec![run(30, 70, 30), run(150, 50, 200)]));
        // The ring goes on at 30, with others.
        out.push(&queue, &p, run(40, 10, 300));
        inc.look(&p);
        assert_eq!(inc.piece(&queue, 30, 0, 100), Ok(Piece::Ring(10)));
        assert_eq!(inc.piece(&queue, 30, 10, 100), Ok(Piece::Block(run(40, 10, 300))));
        let mut got = vec![];
        inc.consume(&queue, 30, 25, |part| got.push(part));
        assert_eq!(got, [run(40, 10, 300)]);
        assert!(inc.is_empty());
    }

    /// The process that pushed it was killed then, and a child of its takes the lock over.
    #[test]
    fn a_run_that_was_not_published_gives_its_place_to_the_rings_bytes() {
        let (queue, p) = (Queue::new(), produced());
        let (mut out, mut inc) = (Outgoing::new(), Incoming::new());
        out.push(&queue, &p, run(0, 100, 0));
        out.push(&queue, &p, run(100, 50, 200));
        out.drop_unpublished(&queue, 100);
        // The tail goes on from 100, by bytes of the ring, and then by a run.
        out.push(&queue, &p, run(120, 10, 300));
        out.drop_unpublished(&queue, 130);
        inc.look(&p);
        for (skip, right) in [
            (0, Piece::Block(run(0, 100, 0))),
            (100, Piece::Ring(20)),
            (120, Piece::Block(run(120, 10, 300))),
            (130, Piece::Ring(1000)),
        ] {
            assert_eq!(inc.piece(&queue, 0, skip, 1000), Ok(right), "{skip}");
            assert_eq!(out.piece(0, skip, 1000), right, "{skip}");
        }
    }

    #[test]
    fn a_run_longer_than_a_ring_poisons_it() {
        let (queue, p) = (Queue::new(), produced());
        let mut inc = Incoming::new();
        queue.entry(0).store(run(0, RING + 1, 0));
        p.runs.store(1, Release);
        inc.look(&p);
        assert_eq!(inc.piece(&queue, 0, 0, 1), Err(Poisoned));
    }

    #[test]
    fn no_part_is_larger_than_what_was_asked_for_whatever_the_other_side_writes() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (queue, p) = (Queue::new(), produced());
        let mut inc = Incoming::new();
        let mut head = 0u32;
        for _ in 0..200_000 {
            let any = |rng: &mut fastrand::Rng| match rng.u32(0..3) {
                0 => rng.u32(..),
                1 => rng.u32(0..2 * RING),
                _ => rng.u32(0..100),
            };
            let wild = Run {
                position: head.wrapping_add(any(&mut rng)),
                bytes: any(&mut rng),
                at: any(&mut rng),
                arena: rng.u16(..),
                handle: rng.u16(..),
            };
            queue.entry(rng.u32(..)).store(wild);
            p.runs.store(p.runs.load(Relaxed).wrapping_add(any(&mut rng)), Relaxed);
            inc.look(&p);
            let (skip, most) = (rng.u32(0..RING), rng.u32(1..RING));
            match inc.piece(&queue, head, skip, most) {
                Ok(Piece::Ring(bytes)) => assert!((1..=most).contains(&bytes)),
                Ok(Piece::Block(run)) => assert!((1..=most).contains(&run.bytes)),
                Err(Poisoned) => {}
            }
            let mut taken = 0;
            inc.consume(&queue, head, most, |part| {
                assert!(part.bytes <= most);
                taken += 1;
            });
            assert!(taken <= RUNS);
            head = head.wrapping_add(most);
        }
    }

    /// Beside a plain list of bytes: inline ones and runs, taken in parts, taken back.
    #[test]
    fn random_streams_come_out_as_they_went_in() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (queue, p) = (Queue::new(), produced());
        let (mut out, mut inc) = (Outgoing::new(), Incoming::new());
        let (mut head, mut tail) = (u32::MAX - 5000, u32::MAX - 5000);
        // Where each unread byte lies: none, in the ring.
        let mut right: VecDeque<Option<u32>> = VecDeque::new();
        let mut runs = 0;
        for _ in 0..100_000 {
            match rng.u32(0..10) {
                0..3 => {
                    let bytes = rng.u32(1..50);
                    right.extend((0..bytes).map(|_| None));
                    tail = tail.wrapping_add(bytes);
                }
                3..6 => {
                    out.look(head);
                    if out.has_room() {
                        let (bytes, at) = (rng.u32(1..50), rng.u32(0..1 << 20));
                        out.push(&queue, &p, run(tail, bytes, at));
                        right.extend((at..at + bytes).map(Some));
                        tail = tail.wrapping_add(bytes);
                        runs += 1;
                    }
                }
                6 if rng.u32(0..8) == 0 => {
                    let mut back = vec![];
                    out.take_back(&queue, head, |part| back.extend(part.at..part.at + part.bytes));
                    assert_eq!(back, right.drain(..).flatten().collect::<Vec<_>>());
                    tail = head;
                }
                _ => {
                    inc.look(&p);
                    let wanted = rng.u32(0..80).min(right.len() as u32);
                    let mut skip = 0;
                    while skip < wanted {
                        let got = inc.piece(&queue, head, skip, wanted - skip).unwrap();
                        assert_eq!(got, out.piece(head, skip, wanted - skip));
                        let places = right.range(skip as usize..);
                        skip += match got {
                            Piece::Ring(bytes) => {
                                assert!(places.take(bytes as usize).all(Option::is_none));
                                bytes
                            }
                            Piece::Block(part) => {
                                let at = (part.at..part.at + part.bytes).map(Some);
                                assert!(at.eq(places.take(part.bytes as usize).copied()));
                                part.bytes
                            }
                        };
                    }
                    let mut taken = vec![];
                    inc.consume(&queue, head, wanted, |part| {
                        taken.extend(part.at..part.at + part.bytes);
                    });
                    let places = right.drain(..wanted as usize).flatten();
                    assert_eq!(taken, places.collect::<Vec<_>>());
                    head = head.wrapping_add(wanted);
                }
            }
        }
        assert!(runs > 1000);
    }
}

/// Every order of the steps (`make loom`). Each test says what it was seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::ring::{Consumed, Reader, Writer};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const SIZE: u32 = 4;

    struct Fixture {
        produced: Produced,
        consumed: Consumed,
        queue: Queue,
        /// A run's one byte.
        blocks: [UnsafeCell<u8>; 3],
    }
    // SAFETY: the ring orders who uses a byte when; loom reports where it does not.
    unsafe impl Sync for Fixture {}
    // SAFETY: as above.
    unsafe impl Send for Fixture {}

    /// Caught: the count of runs read or written relaxed.
    #[test]
    fn a_run_is_seen_whole_with_the_tail_that_ends_it() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let shared = Arc::new(Fixture {
                produced: Produced::new(),
                consumed: Consumed::new(),
                queue: Queue::new(),
                blocks: core::array::from_fn(|_| UnsafeCell::new(0)),
            });
            let other = shared.clone();
            let producer = thread::spawn(move || {
                let Fixture { produced, consumed, queue, blocks } = &*other;
                let (mut w, mut out) = (Writer::<SIZE>::new(0), Outgoing::new());
                for i in 0..3 {
                    // SAFETY: loom reports a reader.
                    blocks[i].with_mut(|b| unsafe { *b = i as u8 + 1 });
                    w.look(consumed).unwrap();
                    out.look(w.head());
                    assert!(w.free() > 0);
                    let position = w.tail();
                    let run = Run { position, bytes: 1, at: i as u32, arena: 0, handle: i as u16 };
                    out.push(queue, produced, run);
                    w.commit(produced, 1);
                }
            });
            let Fixture { produced, consumed, queue, blocks } = &*shared;
            let (mut r, mut inc) = (Reader::<SIZE>::new(), Incoming::new());
            let mut next = 0;
            let mut read = || {
                r.look(produced).unwrap();
                inc.look(produced);
                if r.filled() == 0 {
                    return;
                }
                let Piece::Block(run) = inc.piece(queue, r.head(), 0, 1).unwrap() else {
                    panic!("no run though there is one");
                };
                assert_eq!((run.at, run.bytes), (next, 1));
                next += 1;
                // SAFETY: loom reports a writer.
                assert_eq!(u32::from(blocks[run.at as usize].with(|b| unsafe { *b })), next);
                inc.consume(queue, r.head(), 1, |_| {});
                r.release(consumed, 1);
            };
            read();
            read();
            producer.join().unwrap();
            (0..3).for_each(|_| read());
            assert_eq!(next, 3);
        });
    }
}
