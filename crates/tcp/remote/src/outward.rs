//! The bytes that go to the wire and lie in no program's ring: a circular buffer. A program has
//! sent them by Linux: before it had a ring, because its peer has ended its stream, because its
//! ring was full for too long.
//!
//! It has room for a small window by right, which a near peer acknowledges soon. A far one would
//! wait a round trip for it each time. So a buffer that was acknowledged late may have twice as
//! much from then on, up to as much as a ring, as far as all of a service's together have something
//! to spare. Where that is less, it has what there is, and earns no more. It has that while it is
//! in use: an empty one is as it was, and is as large again when it is full.

use crate::circle;
use crate::limit::Lateness;
use crate::spare::Spare;
use std::sync::Arc;
use std::time::Duration;

/// A peer that acknowledges a full buffer so late is far away. (64 KB in each such time are 32 MB a
/// second.)
pub const FAR: Duration = Duration::from_millis(2);

/// See the module. What lies in a program's ring behind it is counted here, too.
#[derive(Debug)]
pub struct Outward {
    bytes: Box<[u8]>,
    /// So many it has by right, as a power of two.
    own: u8,
    /// So many it may have, likewise, where there is something to spare.
    earned: u8,
    /// And so many at most.
    most: u8,
    spare: Arc<Spare>,
    lateness: Lateness,
    /// Bytes that ever came from the program,
    came: u64,
    /// and that were acknowledged.
    went: u64,
}

impl Outward {
    /// With so many bytes by right, and at most, as powers of two.
    pub fn new(bits: u8, most: u8, spare: Arc<Spare>) -> Self {
        let bytes = vec![0; 1 << bits].into();
        let lateness = Lateness::default();
        Self { bytes, own: bits, earned: bits, most, spare, lateness, came: 0, went: 0 }
    }

    /// Bytes that ever came.
    pub fn came(&self) -> u64 {
        self.came
    }

    /// Bytes that were acknowledged.
    pub fn went(&self) -> u64 {
        self.went
    }

    /// Bytes that were not acknowledged.
    pub fn on_the_way(&self) -> u64 {
        self.came - self.went
    }

    /// Nothing is on the way.
    pub fn is_empty(&self) -> bool {
        self.came == self.went
    }

    /// Its bytes, as they lie.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// There is room. A full buffer grows, if it may; for one that stays full it is timed how long
    /// that takes. (Nothing lies in the program's ring.)
    pub fn makes_room(&mut self) -> bool {
        if self.is_full() {
            self.grow();
        }
        let full = self.is_full();
        if full {
            self.lateness.is_full(self.came);
        }
        !full
    }

    /// The next room, up to the buffer's end, and for `most` bytes at most.
    pub fn room(&mut self, most: u32) -> &mut [u8] {
        let left = (self.bytes.len() as u64).saturating_sub(self.on_the_way());
        let room = circle::piece(self.bytes.len(), self.came, left.min(most.into()));
        &mut self.bytes[room]
    }

    /// There is no room. (Nothing lies in the program's ring.)
    pub fn is_full(&self) -> bool {
        self.on_the_way() >= self.bytes.len() as u64
    }

    /// So many more bytes have come, here or in the program's ring.
    pub fn comes(&mut self, bytes: u32) {
        self.came += u64::from(bytes);
    }

    /// So many more were acknowledged.
    pub fn goes(&mut self, bytes: u32) {
        self.went += u64::from(bytes);
        // (A buffer that could not have what it has earned earns no more.)
        if self.lateness.acknowledged(self.went, FAR) && self.bytes.len() >= 1 << self.earned {
            self.earned = (self.earned + 1).min(self.most.max(self.own));
        }
        if self.is_empty() && self.bytes.len() > 1 << self.own {
            self.spare.give(self.bytes.len() - (1 << self.own));
            self.bytes = vec![0; 1 << self.own].into();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let before = self.bytes.len();
        let sizes = (self.own..=self.earned).rev().map(|bits| 1 << bits);
        let mut larger = sizes.take_while(|size| *size > before);
        if let Some(size) = larger.find(|size| self.spare.take(size - before)) {
            self.bytes = circle::moved(&self.bytes, self.went..self.came, size);
        }
    }
}

impl Drop for Outward {
    fn drop(&mut self) {
        self.spare.give(self.bytes.len() - (1 << self.own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Bytes by their positions.
    fn byte(at: u64) -> u8 {
        (at * 7 % 251) as u8
    }

    /// As many come as have room, `most` at most.
    fn comes(outward: &mut Outward, most: u32) -> u32 {
        let mut came = 0;
        while came < most && outward.makes_room() {
            let at = outward.came();
            let room = outward.room(most - came);
            (at..).zip(&mut *room).for_each(|(at, to)| *to = byte(at));
            let bytes = room.len() as u32;
            outward.comes(bytes);
            came += bytes;
        }
        came
    }

    /// All that is on the way is what came.
    fn is_right(outward: &Outward) {
        for at in outward.went()..outward.came() {
            assert_eq!(outward.bytes()[circle::piece(outward.bytes().len(), at, 1)], [byte(at)]);
        }
    }

    /// The peer takes so long, however long the test itself takes.
    fn is_late(outward: &mut Outward, late: bool) {
        let now = Instant::now();
        outward.lateness.began(if late { now - FAR } else { now + 1000 * FAR });
    }

    #[test]
    fn a_buffer_that_is_acknowledged_late_is_twice_as_large_while_it_is_in_use() {
        let spare = Spare::new(1000);
        let mut outward = Outward::new(4, 6, spare.clone());
        assert_eq!(comes(&mut outward, 5), 5);
        outward.goes(5);
        for (late, size) in [(false, 16), (true, 16), (false, 32), (true, 32), (true, 64)] {
            let before = outward.on_the_way() as u32;
            assert_eq!(comes(&mut outward, 1000), size - before);
            assert_eq!(spare.left(), 1000 - u64::from(size) + 16);
            is_right(&outward);
            is_late(&mut outward, late);
            // (What is behind those that were on the way then is not waited for.)
            outward.goes(size - 3);
            assert_eq!(comes(&mut outward, 4), 4);
            is_right(&outward);
            outward.goes(3);
        }
        assert_eq!((outward.earned, outward.on_the_way()), (6, 4));
        outward.goes(4);
        assert_eq!((outward.bytes().len(), spare.left()), (16, 1000));
        // It has earned that.
        assert_eq!(comes(&mut outward, 1000), 64);
        is_right(&outward);
        drop(outward);
        assert_eq!(spare.left(), 1000);
    }

    #[test]
    fn where_nothing_is_spared_a_buffer_has_what_is_its_by_right() {
        let spare = Spare::new(15);
        let mut outward = Outward::new(4, 6, spare.clone());
        for _ in 0..4 {
            assert_eq!(comes(&mut outward, 1000), 16);
            is_late(&mut outward, true);
            outward.goes(16);
        }
        assert_eq!((outward.earned, spare.left()), (5, 15));
        spare.give(1);
        assert_eq!(comes(&mut outward, 1000), 32);
        is_right(&outward);
    }

    #[test]
    fn where_less_is_spared_a_buffer_has_what_there_is() {
        let spare = Spare::new(48);
        let mut outward = Outward::new(4, 7, spare.clone());
        for size in [16, 32, 64] {
            assert_eq!(comes(&mut outward, 1000), size);
            is_late(&mut outward, true);
            outward.goes(size);
        }
        assert_eq!((outward.earned, spare.left()), (7, 48));
        // Of 128 it has 64, then 32 where another one has the rest; and it earns no more.
        for (others, size) in [(0, 64), (17, 32)] {
            assert!(spare.take(others));
            assert_eq!(comes(&mut outward, 1000), size);
            is_right(&outward);
            is_late(&mut outward, true);
            outward.goes(size);
            assert_eq!(outward.earned, 7);
            spare.give(others);
        }
        spare.give(64);
        assert_eq!(comes(&mut outward, 1000), 128);
        is_right(&outward);
    }
}
