//! A byte ring with one producer and one consumer, as positions: nothing here touches a byte.
//! Positions count bytes and wrap; a position and the *base* make a place in the ring. The base
//! changes only while the ring is empty, so that an empty ring can go on at its home, in memory and
//! cache lines that were in use just before.
//!
//! A side decides by its own [`Writer`] or [`Reader`]. It reads from the other side ([`Produced`],
//! [`Consumed`]) an index that can be at most a ring behind or ahead: else [`Poisoned`].

use crate::Poisoned;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::wanted::Wanted;

/// Bytes of one ring: a message of 1 MB is written with hardly a wait for room ([`Writer::FULL`]),
/// each of which takes a wake-up of both sides. Less than that is used where messages are small, as
/// an empty ring begins anew at its home.
pub const RING: u32 = 1 << 20;

/// One side gives the other so many arenas of blocks at most: its own, and those that it was given.
pub const ARENAS: usize = 8;

/// The words that the producer of a direction writes. One cache line: the consumer of a message
/// fetches it once.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Produced {
    /// Bytes ever written.
    pub tail: AtomicU32,
    /// Position + base = place in the ring. Changes only while the ring is empty.
    pub base: AtomicU32,
    /// [`FINISHED`], [`OWES`].
    pub flags: AtomicU32,
    /// The producer waits for room.
    pub room: Wanted,
    /// Bytes ever written, without wrapping: for readers from outside.
    pub bytes: AtomicU64,
    /// Times that bytes were written, likewise.
    pub writes: AtomicU64,
    /// The producer wants the consumer's copies timed (not 0): [`crate::stores`].
    pub timed: AtomicU32,
    /// Runs ever written: bytes that lie in blocks ([`crate::runs`]).
    pub runs: AtomicU32,
    /// When the consumer was last told of something by a notice
    /// ([`crate::ticks`](mod@crate::ticks)),
    pub told: AtomicU64,
    /// and when the producer's process had last sent anything by Linux. Both order news of several
    /// connections, and nothing else.
    pub by_linux: AtomicU64,
}

#[cfg(all(test, loom))]
impl Produced {
    /// Nothing was written.
    pub fn new() -> Self {
        let (word, count) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        let [bytes, writes, told, by_linux] = core::array::from_fn(|_| count());
        let [tail, base, flags, timed, runs] = core::array::from_fn(|_| word());
        Self { tail, base, flags, room: Wanted::new(), bytes, writes, timed, runs, told, by_linux }
    }
}

/// The words that the consumer of a direction writes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Consumed {
    /// Bytes ever read.
    pub head: AtomicU32,
    /// [`GONE`], [`BY_LINUX`], [`RECEIVES`], [`TAKES_BLOCKS`], [`READS_ARENAS`].
    pub flags: AtomicU32,
    /// The consumer waits for bytes.
    pub data: Wanted,
    /// Bytes of copies that it has timed, and what they took in ns.
    pub timed: [AtomicU64; 2],
    /// The producer's arenas that all who hold this end have mapped, by their numbers: which of
    /// those that ever had the number (0: none).
    pub arenas: [AtomicU32; ARENAS],
}

#[cfg(all(test, loom))]
impl Consumed {
    /// Nothing was read.
    pub fn new() -> Self {
        let word = || AtomicU32::new(0);
        let timed = core::array::from_fn(|_| AtomicU64::new(0));
        let arenas = core::array::from_fn(|_| word());
        Self { head: word(), flags: word(), data: Wanted::new(), timed, arenas }
    }
}

/// The producer finished this direction (FIN or reset): the kernel's connection says how. A hint,
/// set before the kernel is told.
pub const FINISHED: u32 = 1;
/// Linux has no room for what the producer has taken back of the ring: it gives that later.
/// (Without this it is giving it now, while the phase is Linux' and the tail is ahead of the
/// head.)
pub const OWES: u32 = 2;
/// The consumer has closed its end. A hint, as above.
pub const GONE: u32 = 1;
/// The consumer asks for this direction to go through Linux.
pub const BY_LINUX: u32 = 2;
/// The consumer has looked for bytes. Nothing is offered before: a program that hands a socket on
/// as it came (to a program that it executes, to another process) has nothing to give back.
pub const RECEIVES: u32 = 4;
/// The consumer would rather have large messages in blocks ([`crate::runs`]).
pub const TAKES_BLOCKS: u32 = 8;
/// The consumer has received much at once. It would copy from an arena what lies in one already.
pub const READS_ARENAS: u32 = 16;

/// One or two runs of a ring: `first` bytes from `place` on, then `second` bytes from the ring's
/// beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// Where the first run begins.
    pub place: u32,
    /// Its bytes.
    pub first: u32,
    /// The bytes of the second, which begins at 0.
    pub second: u32,
}

impl Spans {
    fn new<const SIZE: u32>(place: u32, bytes: u32) -> Self {
        let place = place & (SIZE - 1);
        let first = bytes.min(SIZE - place);
        Self { place, first, second: bytes - first }
    }

    /// Bytes of both runs.
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.first + self.second
    }

    /// The next `bytes` of them after the first `skip`; fewer where there are fewer.
    #[must_use]
    pub fn part(self, skip: u32, bytes: u32) -> Self {
        match self.first.checked_sub(skip) {
            Some(left) if left > 0 => {
                let first = bytes.min(left);
                Self { place: self.place + skip, first, second: (bytes - first).min(self.second) }
            }
            _ => {
                let place = (skip - self.first).min(self.second);
                Self { place, first: bytes.min(self.second - place), second: 0 }
            }
        }
    }
}

/// The producer's end of a ring of `SIZE` bytes (a power of two).
#[repr(C)]
#[derive(Debug)]
pub struct Writer<const SIZE: u32> {
    tail: u32,
    base: u32,
    head: u32,
    home: u32,
    bytes: u64,
    writes: u64,
}

impl<const SIZE: u32> Writer<SIZE> {
    /// Bytes that it holds at most: a cache line less than its 1 MB, so that a program that empties
    /// a full ring by buffers of a round size does not find its end and the end of a buffer in one.
    /// Linux hardly ever has so many bytes; nginx 1.22 goes wrong there (docs/limitations.md).
    /// (The small rings of tests hold all of their bytes.)
    pub const FULL: u32 = SIZE - SIZE / (RING / 64);

    /// Of a ring that was never used.
    pub const fn new(home: u32) -> Self {
        Self { tail: 0, base: 0, head: 0, home, bytes: 0, writes: 0 }
    }

    /// Looks how far the consumer is.
    #[inline]
    pub fn look(&mut self, consumed: &Consumed) -> Result<(), Poisoned> {
        let head = consumed.head.load(Acquire);
        // It may only go forward, and not past what was written.
        if head.wrapping_sub(self.head) > self.used() {
            return Err(Poisoned);
        }
        self.head = head;
        Ok(())
    }

    /// The position of the next byte.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// How far the consumer is, as of the last look.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Bytes in the ring, as of the last look.
    #[inline]
    pub fn used(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Bytes that fit, as of the last look.
    #[inline]
    pub fn free(&self) -> u32 {
        Self::FULL.saturating_sub(self.used())
    }

    /// Bytes of a call that has so many left which may go in a block, as of the last look: all of
    /// them also where they fill the ring to its end.
    #[inline]
    pub fn free_for_run(&self, left: usize) -> u32 {
        let whole = SIZE - self.used();
        if left <= whole as usize { left as u32 } else { self.free() }
    }

    /// Where the next bytes belong: as many as fit, at most `bytes`.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> Spans {
        if self.used() == 0 {
            self.base = self.home.wrapping_sub(self.tail);
        }
        let bytes = bytes.min(self.free() as usize) as u32;
        Spans::new::<SIZE>(self.tail.wrapping_add(self.base), bytes)
    }

    /// The next `bytes` are in place.
    #[inline]
    pub fn commit(&mut self, produced: &Produced, bytes: u32) {
        debug_assert!(bytes <= SIZE - self.used());
        self.tail = self.tail.wrapping_add(bytes);
        self.bytes += u64::from(bytes);
        self.writes += 1;
        produced.base.store(self.base, Relaxed);
        produced.bytes.store(self.bytes, Relaxed);
        produced.writes.store(self.writes, Relaxed);
        produced.tail.store(self.tail, Release);
    }

    /// Where the bytes are that the consumer has not taken, as of the last look: `skip` of them
    /// left out.
    pub fn unread(&self, skip: u32) -> Spans {
        let skip = skip.min(self.used());
        Spans::new::<SIZE>(self.head.wrapping_add(skip).wrapping_add(self.base), self.used() - skip)
    }

    /// Takes back everything that the consumer has not taken. Only while it can not be taking it:
    /// see `Phase::withdraw`.
    pub fn take_back(&mut self, produced: &Produced) {
        self.bytes -= u64::from(self.used());
        self.tail = self.head;
        produced.bytes.store(self.bytes, Relaxed);
        produced.tail.store(self.tail, Release);
    }
}

/// The consumer's end.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Reader<const SIZE: u32> {
    head: u32,
    tail: u32,
    base: u32,
}

impl<const SIZE: u32> Reader<SIZE> {
    /// Of a ring that was never used.
    pub const fn new() -> Self {
        Self { head: 0, tail: 0, base: 0 }
    }

    /// Looks how far the producer is.
    #[inline]
    pub fn look(&mut self, produced: &Produced) -> Result<(), Poisoned> {
        let tail = produced.tail.load(Acquire);
        // It may only go forward (what was seen may have been copied already), and not past what
        // there is room for.
        let filled = tail.wrapping_sub(self.head);
        if filled > SIZE || filled < self.filled() {
            return Err(Poisoned);
        }
        self.tail = tail;
        // Belongs to `tail`: it does not change while the ring is not empty, and is written before
        // the tail.
        self.base = produced.base.load(Relaxed);
        Ok(())
    }

    /// The ring is not any more as it was seen: it was given back, or a new offer begins. (Only so
    /// may the tail go back.)
    pub fn forget(&mut self) {
        self.tail = self.head;
    }

    /// The position of the next byte.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Bytes to read, as of the last look.
    #[inline]
    pub fn filled(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Where the next bytes are: as many as there are, at most `bytes`, `skip` of them left out.
    #[inline]
    pub fn peek(&self, skip: u32, bytes: usize) -> Spans {
        let skip = skip.min(self.filled());
        let bytes = bytes.min((self.filled() - skip) as usize) as u32;
        Spans::new::<SIZE>(self.head.wrapping_add(skip).wrapping_add(self.base), bytes)
    }

    /// The next `bytes` are read.
    #[inline]
    pub fn release(&mut self, consumed: &Consumed, bytes: u32) {
        debug_assert!(bytes <= self.filled());
        self.head = self.head.wrapping_add(bytes);
        consumed.head.store(self.head, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Where an empty ring goes on. (`layout::home` has such places; here any does.)
    const HOMES: [u32; 2] = [0, RING - 1792];

    struct Words {
        produced: Produced,
        consumed: Consumed,
    }

    fn zeroed() -> Box<Words> {
        // SAFETY: atomics of integers; zero is a value of each.
        unsafe { Box::new(core::mem::zeroed()) }
    }

    #[test]
    fn an_empty_ring_goes_on_at_its_home() {
        for home in HOMES {
            let d = zeroed();
            let (mut w, mut r) = (Writer::<RING>::new(home), Reader::<RING>::new());
            for bytes in [64, 2048, 100_000, 1, Writer::<RING>::FULL as usize] {
                let spans = w.reserve(bytes);
                assert_eq!(spans.place, home);
                w.commit(&d.produced, bytes as u32);
                r.look(&d.produced).unwrap();
                assert_eq!(r.peek(0, usize::MAX), spans);
                r.release(&d.consumed, bytes as u32);
                w.look(&d.consumed).unwrap();
            }
        }
    }

    #[test]
    fn bytes_that_fill_a_ring_do_not_end_with_a_buffer_of_a_round_size() {
        let mut w = Writer::<RING>::new(0);
        let full = w.reserve(2 * RING as usize).bytes();
        for buffer in (7..=20).map(|bits| 1 << bits) {
            assert_ne!(full % buffer, 0, "{buffer}");
        }
    }

    #[test]
    fn parts_of_a_place_are_its_bytes_in_order() {
        let places = |s: Spans| (s.place..s.place + s.first).chain(0..s.second).collect::<Vec<_>>();
        let whole = Spans::new::<64>(50, 40);
        for skip in 0..=41 {
            for bytes in 0..=41 {
                let wanted: Vec<u32> = places(whole).into_iter().skip(skip).take(bytes).collect();
                let part = whole.part(skip as u32, bytes as u32);
                assert_eq!(places(part), wanted, "{skip} {bytes}");
                assert_eq!(part.bytes() as usize, wanted.len());
            }
        }
    }

    #[test]
    fn random_lengths_come_out_in_order() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        const SIZE: u32 = 64;
        let d = zeroed();
        let (mut w, mut r) = (Writer::<SIZE>::new(48), Reader::<SIZE>::new());
        let mut bytes = [0u8; SIZE as usize];
        let (mut written, mut read) = (0u8, 0u8);
        for _ in 0..100_000 {
            if rng.bool() {
                w.look(&d.consumed).unwrap();
            }
            let s = w.reserve(rng.usize(0..80));
            let places = (s.place..s.place + s.first).chain(0..s.second);
            for p in places {
                bytes[p as usize] = written;
                written = written.wrapping_add(1);
            }
            w.commit(&d.produced, s.first + s.second);
            if rng.bool() {
                r.look(&d.produced).unwrap();
            }
            let s = r.peek(0, rng.usize(0..80));
            for p in (s.place..s.place + s.first).chain(0..s.second) {
                assert_eq!(bytes[p as usize], read);
                read = read.wrapping_add(1);
            }
            r.release(&d.consumed, s.first + s.second);
        }
        assert!(w.tail > 100_000);
    }

    #[test]
    fn a_producer_that_takes_back_what_was_seen_poisons_the_ring() {
        let d = zeroed();
        let (mut w, mut r) = (Writer::<RING>::new(0), Reader::<RING>::new());
        w.commit(&d.produced, 100);
        r.look(&d.produced).unwrap();
        d.produced.tail.store(99, Release);
        assert_eq!(r.look(&d.produced), Err(Poisoned));
        assert_eq!(r.filled(), 100, "what was copied can be released");
        r.release(&d.consumed, 100);
        d.produced.tail.store(99, Release);
        assert_eq!(r.look(&d.produced), Err(Poisoned));
    }

    #[test]
    fn a_ring_that_was_given_back_may_be_offered_anew() {
        let d = zeroed();
        let (mut w, mut r) = (Writer::<RING>::new(0), Reader::<RING>::new());
        w.commit(&d.produced, 100);
        r.look(&d.produced).unwrap();
        w.take_back(&d.produced);
        r.forget();
        assert_eq!(r.look(&d.produced), Ok(()));
        assert_eq!(r.filled(), 0);
    }

    #[test]
    fn positions_wrap_with_all_their_bits() {
        let d = zeroed();
        let start = u32::MAX - 10;
        let mut w =
            Writer::<64> { tail: start, base: 0, head: start, home: 0, bytes: 0, writes: 0 };
        let mut r = Reader::<64> { head: start, tail: start, base: 0 };
        d.consumed.head.store(start, Relaxed);
        w.reserve(40);
        w.commit(&d.produced, 40);
        r.look(&d.produced).unwrap();
        assert_eq!(r.filled(), 40);
        r.release(&d.consumed, 40);
        w.look(&d.consumed).unwrap();
        assert_eq!(w.used(), 0);
    }

    #[test]
    fn an_index_out_of_range_is_poison_whatever_it_is() {
        let d = zeroed();
        let mut w = Writer::<RING>::new(0);
        w.reserve(1000);
        w.commit(&d.produced, 1000);
        for head in [1001, u32::MAX, RING, RING + 1, 1 << 31] {
            d.consumed.head.store(head, Relaxed);
            assert_eq!(w.look(&d.consumed), Err(Poisoned), "{head}");
        }
        d.consumed.head.store(1000, Relaxed);
        assert_eq!(w.look(&d.consumed), Ok(()));
        d.consumed.head.store(999, Relaxed);
        assert_eq!(w.look(&d.consumed), Err(Poisoned), "it went back");
        let mut r = Reader::<RING>::new();
        for tail in [RING + 1, u32::MAX, 1 << 31] {
            d.produced.tail.store(tail, Relaxed);
            assert_eq!(r.look(&d.produced), Err(Poisoned), "{tail}");
        }
    }

    #[test]
    fn no_place_is_outside_whatever_the_other_side_writes() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let d = zeroed();
        let (mut w, mut r) = (Writer::<RING>::new(HOMES[1]), Reader::<RING>::new());
        for _ in 0..1_000_000 {
            let near = rng.u32(0..2 * RING);
            match rng.u32(0..6) {
                0 => d.produced.tail.store(rng.u32(..), Relaxed),
                1 => d.produced.tail.store(r.head.wrapping_add(near), Relaxed),
                2 => d.produced.base.store(rng.u32(..), Relaxed),
                3 => d.consumed.head.store(rng.u32(..), Relaxed),
                4 => d.consumed.head.store(w.head.wrapping_add(near), Relaxed),
                _ => {}
            }
            let _ = w.look(&d.consumed);
            let _ = r.look(&d.produced);
            let bytes = rng.usize(0..2 * RING as usize);
            for s in [w.reserve(bytes), r.peek(rng.u32(..), bytes), w.unread(rng.u32(..))] {
                assert!(s.place < RING && s.place + s.first <= RING && s.second <= s.place);
            }
            let put = w.reserve(bytes);
            w.commit(&d.produced, put.first + put.second);
            let got = r.peek(0, bytes);
            r.release(&d.consumed, got.first + got.second);
        }
    }
}

/// Every order of the steps (`make loom`). Each test says what it was seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const SIZE: u32 = 4;

    struct Bytes([UnsafeCell<u8>; SIZE as usize]);
    // SAFETY: the ring orders who uses a byte when; loom reports where it does not.
    unsafe impl Sync for Bytes {}
    // SAFETY: as above.
    unsafe impl Send for Bytes {}

    /// Caught: the tail or the head published relaxed; the base changed while the ring was not
    /// empty.
    #[test]
    fn bytes_come_once_and_in_order_also_from_home() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let shared = Arc::new((
                Produced::new(),
                Consumed::new(),
                Bytes(core::array::from_fn(|_| UnsafeCell::new(0))),
            ));
            let other = shared.clone();
            let producer = thread::spawn(move || {
                let (produced, consumed, bytes) = &*other;
                let mut w = Writer::<SIZE>::new(2);
                let mut next = 1u8;
                for length in [1, 2, 2] {
                    w.look(consumed).unwrap();
                    let s = w.reserve(length);
                    for p in (s.place..s.place + s.first).chain(0..s.second) {
                        // SAFETY: loom reports a reader.
                        bytes.0[p as usize].with_mut(|b| unsafe { *b = next });
                        next += 1;
                    }
                    w.commit(produced, s.first + s.second);
                }
                next - 1
            });
            let (produced, consumed, bytes) = &*shared;
            let mut r = Reader::<SIZE>::new();
            let mut got = 0u8;
            let read = |r: &mut Reader<SIZE>, got: &mut u8| {
                r.look(produced).unwrap();
                let s = r.peek(0, 2);
                for p in (s.place..s.place + s.first).chain(0..s.second) {
                    *got += 1;
                    // SAFETY: loom reports a writer.
                    assert_eq!(bytes.0[p as usize].with(|b| unsafe { *b }), *got);
                }
                r.release(consumed, s.first + s.second);
            };
            for _ in 0..2 {
                read(&mut r, &mut got);
            }
            let written = producer.join().unwrap();
            while got < written {
                read(&mut r, &mut got);
            }
        });
    }
}
