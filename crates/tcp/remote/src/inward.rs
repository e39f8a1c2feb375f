//! Bytes that have come by the wire and did not go to the program yet: a circular buffer. A byte's
//! place follows from its position in the stream.
//!
//! It has room for a small window by right. A peer may send more than that while the program's ring
//! has room: what comes in order goes there, but what comes before its turn stays here, and so does
//! what comes after the program has given its ring back, until the protocol is told: it takes what
//! has room by right from then on. For that a buffer grows, as far as all of a service's together
//! have something to spare, and is as it was once it is empty, or its peer lets nothing of it go on
//! for too long. Bytes that find no room have not come: the protocol is told so, and its peer sends
//! them again.

use crate::circle;
use crate::spare::Spare;
use std::ops::Range;
use std::sync::Arc;

/// A buffer has so many bytes at most, as a power of two, unless it has more by right: as many as a
/// program's ring. So large are the windows of peers whose bytes go there.
pub const MOST: u8 = 20;

/// See the module.
#[derive(Debug)]
pub struct Inward {
    bytes: Box<[u8]>,
    /// So many it has by right.
    own: usize,
    spare: Arc<Spare>,
    /// Bytes that ever came in order,
    came: u64,
    /// and that went on.
    went: u64,
    /// Behind the last one that has come, in order or not.
    end: u64,
    /// It may grow once so many bytes have gone on.
    grows_from: u64,
}

impl Inward {
    /// With so many bytes by right, as a power of two.
    pub fn new(bits: u8, spare: Arc<Spare>) -> Self {
        let own = 1 << bits;
        Self { bytes: vec![0; own].into(), own, spare, came: 0, went: 0, end: 0, grows_from: 0 }
    }

    /// Bytes that ever went on.
    pub fn went(&self) -> u64 {
        self.went
    }

    /// The position behind the last byte that has come, in order or not.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// It has more than by right.
    pub fn has_grown(&self) -> bool {
        self.bytes.len() > self.own
    }

    /// Bytes in order that wait to go on.
    pub fn waiting(&self) -> u64 {
        self.came - self.went
    }

    /// So many that come next in order have room, as large as it is now.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.waiting() + bytes as u64 <= self.bytes.len() as u64
    }

    /// These have come; so many are missing before them. How many of them have found room.
    pub fn put(&mut self, ahead: u32, bytes: &[u8]) -> u32 {
        let at = self.came + u64::from(ahead);
        let wanted = at + bytes.len() as u64 - self.went;
        if wanted > self.bytes.len() as u64 {
            self.grow(wanted);
        }
        let room = (self.went + self.bytes.len() as u64).saturating_sub(at);
        let bytes = &bytes[..bytes.len().min(room as usize)];
        let first = self.piece(at, bytes.len() as u64);
        let (front, rest) = bytes.split_at(first.len());
        self.bytes[first].copy_from_slice(front);
        self.bytes[..rest.len()].copy_from_slice(rest);
        if !bytes.is_empty() {
            self.end = self.end.max(at + bytes.len() as u64);
        }
        bytes.len() as u32
    }

    /// So many more are in order now.
    pub fn comes(&mut self, bytes: u32) {
        self.came += u64::from(bytes);
        self.end = self.end.max(self.came);
    }

    /// So many have come next in order, and went on without having been here. Nothing waits.
    pub fn passes(&mut self, bytes: u32) {
        debug_assert_eq!(self.waiting(), 0, "the stream's order");
        self.comes(bytes);
        self.goes(bytes as usize);
    }

    /// The next that are to go on, up to the buffer's end.
    pub fn front(&self) -> &[u8] {
        &self.bytes[self.piece(self.went, self.waiting())]
    }

    /// So many of them went on.
    pub fn goes(&mut self, bytes: usize) {
        self.went += bytes as u64;
        if self.went == self.end && self.bytes.len() > self.own {
            self.spare.give(self.bytes.len() - self.own);
            self.bytes = vec![0; self.own].into();
        }
    }

    /// Where the bytes from this position on lie, up to the buffer's end.
    fn piece(&self, from: u64, length: u64) -> Range<usize> {
        circle::piece(self.bytes.len(), from, length)
    }

    /// Has room for so many, if there is something to spare.
    #[cold]
    fn grow(&mut self, wanted: u64) {
        if self.went < self.grows_from {
            return;
        }
        let size = wanted.next_power_of_two().min(1 << MOST) as usize;
        if size <= self.bytes.len() || !self.spare.take(size - self.bytes.len()) {
            return;
        }
        self.bytes = circle::moved(&self.bytes, self.went..self.end, size);
    }

    /// Forgets the bytes that came before their turn: the protocol was told so. The buffer is as
    /// it was, but where what waits has no room in that; and it grows once as much has gone on as
    /// it can have.
    pub fn forgets(&mut self) {
        self.grows_from = self.went + (1 << MOST);
        self.end = self.came;
        let size = (self.waiting() as usize).next_power_of_two().max(self.own);
        if size < self.bytes.len() {
            let more = self.bytes.len() - size;
            self.bytes = circle::moved(&self.bytes, self.went..self.end, size);
            self.spare.give(more);
        }
    }
}

impl Drop for Inward {
    fn drop(&mut self) {
        self.spare.give(self.bytes.len() - self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    fn stream(from: u64, to: u64) -> Vec<u8> {
        (from..to).map(byte).collect()
    }

    #[test]
    fn a_buffer_grows_for_what_comes_before_its_turn_and_is_as_it_was_once_it_is_empty() {
        let spare = Spare::new(100);
        let mut inward = Inward::new(4, spare.clone());
        assert_eq!(inward.put(0, &stream(0, 10)), 10);
        inward.comes(10);
        assert_eq!(inward.put(20, &stream(30, 40)), 10);
        assert_eq!((inward.bytes.len(), spare.left()), (64, 52));
        // It may not grow so much: what has room stays.
        assert_eq!(inward.put(0, &stream(10, 200)), 54);
        assert_eq!(inward.put(100, &stream(110, 120)), 0);
        assert_eq!(spare.left(), 52);
        inward.comes(54);
        assert_eq!(inward.front(), stream(0, 64));
        inward.goes(60);
        assert_eq!(inward.bytes.len(), 64);
        inward.goes(4);
        assert_eq!((inward.bytes.len(), spare.left()), (16, 100));
        // And where it ends with something in it.
        assert_eq!(inward.put(0, &stream(64, 90)), 26);
        assert_eq!(spare.left(), 84);
        drop(inward);
        assert_eq!(spare.left(), 100);
    }

    #[test]
    fn a_buffer_that_forgets_what_came_before_its_turn_keeps_what_waits() {
        let spare = Spare::new(1000);
        let mut inward = Inward::new(4, spare.clone());
        for (in_order, size) in [(10, 16), (20, 32), (0, 16)] {
            assert!(!inward.has_grown() && inward.waiting() == 0);
            inward.passes(1 << MOST);
            let begins = inward.came;
            assert_eq!(inward.put(0, &stream(begins, begins + in_order)), in_order as u32);
            inward.comes(in_order as u32);
            assert_eq!(inward.put(200, &stream(0, 1)), 1);
            assert_eq!((inward.bytes.len(), spare.left()), (256, 1000 - 240));
            inward.forgets();
            assert_eq!((inward.bytes.len(), spare.left()), (size, 1000 - (size as u64 - 16)));
            let mut went = begins;
            while inward.waiting() > 0 {
                let next = inward.front().to_vec();
                assert_eq!(next, stream(went, went + next.len() as u64));
                went += next.len() as u64;
                inward.goes(next.len());
            }
            assert_eq!((went, inward.bytes.len()), (begins + in_order, 16));
            // It has shown that it holds what others may need.
            assert_eq!(inward.put(200, &stream(0, 1)), 0);
        }
        assert_eq!(spare.left(), 1000);
    }

    #[test]
    fn no_buffer_is_larger_than_a_ring() {
        let spare = Spare::new(u64::MAX / 2);
        let mut inward = Inward::new(4, spare.clone());
        assert_eq!(inward.put(0, &vec![1; 3 << MOST]), 1 << MOST);
        assert_eq!(spare.left(), u64::MAX / 2 - (1 << MOST) + 16);
    }

    #[test]
    fn bytes_that_pass_by_leave_those_that_came_before_their_turn_in_their_place() {
        let spare = Spare::new(0);
        let mut inward = Inward::new(4, spare);
        assert_eq!(inward.put(8, &stream(8, 12)), 4);
        inward.passes(6);
        assert_eq!(inward.waiting(), 0);
        assert_eq!(inward.put(0, &stream(6, 8)), 2);
        inward.comes(6);
        assert_eq!(inward.front(), stream(6, 12));
    }

    /// Beside a stream and a list of which of its bytes are here. A failing seed is printed.
    #[test]
    fn bytes_in_any_order_go_on_once_and_in_order_whatever_there_is_to_spare() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let bits = rng.u8(3..8);
            let all = [0, 100, 1000, 100_000][rng.usize(..4)];
            let spare = Spare::new(all);
            let mut inward = Inward::new(bits, spare.clone());
            let (mut came, mut went) = (0u64, 0u64);
            // Which bytes behind those in order are here.
            let mut here = vec![false; 4000];
            while went < 50_000 {
                let from = came + if rng.bool() { 0 } else { rng.u64(..2000) };
                let to = from + rng.u64(1..500);
                if from == came && inward.waiting() == 0 && rng.u8(..4) == 0 {
                    // (The part of it that is here, too: a segment is sent again as a whole.)
                    inward.passes((to - from) as u32);
                    went = to;
                    came = to;
                    here.drain(..(to - from) as usize);
                    here.resize(4000, false);
                }
                let ahead = from.max(came) - came;
                let from = came + ahead;
                let to = to.max(from);
                let taken = inward.put(ahead as u32, &stream(from, to));
                let least = (went + (1 << bits)).saturating_sub(from).min(to - from);
                assert!(u64::from(taken) >= least && u64::from(taken) <= to - from);
                here[ahead as usize..ahead as usize + taken as usize].fill(true);
                let more = here.iter().take_while(|here| **here).count();
                here.drain(..more);
                here.resize(4000, false);
                came += more as u64;
                inward.comes(more as u32);
                assert_eq!(inward.waiting(), came - went);
                if rng.u8(..20) == 0 {
                    inward.forgets();
                    here.fill(false);
                }
                while inward.waiting() > 0 && rng.u8(..3) > 0 {
                    let next = inward.front();
                    let goes = rng.usize(1..=next.len());
                    assert_eq!(next[..goes], stream(went, went + goes as u64), "at {went}");
                    inward.goes(goes);
                    went += goes as u64;
                }
                assert_eq!(spare.left() + (inward.bytes.len() - (1 << bits)) as u64, all);
            }
            drop(inward);
            assert_eq!(spare.left(), all);
        }
    }
}
