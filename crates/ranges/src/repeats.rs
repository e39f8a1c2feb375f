//! Which large ranges the program sends again and again: a small lossy table in front of the
//! tracker, as lock-free as the filter. A range that it forgets, or takes for another one, costs a
//! copy or a move, never a byte.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Ranges begin in granules of 16 KB.
const SHIFT: u32 = 14;
const SLOTS: usize = if cfg!(all(loom, test)) { 4 } else { 1 << 13 };
/// Lengths and counts share a word.
const COUNT_BITS: u32 = 8;
/// Counts go no further;
const OFTEN: usize = LEFT_ALONE_LAST / 2;
/// those behind it, up to this one, are of ranges that are left alone for so many sends.
const LEFT_ALONE_LAST: usize = (1 << COUNT_BITS) - 1;
/// Longer inputs are not walked granule by granule.
const WALK_MAX: usize = 1024;

/// The table.
#[derive(Debug)]
#[repr(C)]
pub struct Repeats {
    /// Whether there was ever any: most programs send nothing so large. (Apart from what sends
    /// write.)
    any: AtomicBool,
    ranges: [Range; SLOTS],
}

/// A range that was sent: where it begins; its length, and how often. (In one line of the cache.)
#[derive(Debug)]
#[repr(align(16))]
struct Range {
    start: AtomicUsize,
    sends: AtomicUsize,
}

#[cfg(not(all(loom, test)))]
impl Default for Repeats {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn slot(granule: usize) -> usize {
    (granule ^ (granule >> 13)) % SLOTS
}

impl Repeats {
    /// Nothing sent.
    #[cfg(not(all(loom, test)))]
    pub const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            ranges: [const { Range { start: AtomicUsize::new(0), sends: AtomicUsize::new(0) } };
                SLOTS],
        }
    }

    #[inline]
    fn range(&self, addr: usize) -> &Range {
        &self.ranges[slot(addr >> SHIFT)]
    }

    /// `len` bytes at `addr` are sent. Returns how often just these were before, as far as is
    /// known; 0 while the range is left alone.
    pub fn sent(&self, addr: usize, len: usize) -> usize {
        let range = self.range(addr);
        let sends = range.sends.load(Relaxed);
        if range.start.load(Relaxed) != addr || sends >> COUNT_BITS != len {
            range.start.store(addr, Relaxed);
            if !self.any.load(Relaxed) {
                self.any.store(true, Relaxed);
            }
            range.sends.store(len << COUNT_BITS | 1, Relaxed);
            return 0;
        }
        let count = sends & LEFT_ALONE_LAST;
        let next = match count {
            OFTEN | LEFT_ALONE_LAST => OFTEN,
            _ => count + 1,
        };
        range.sends.store(len << COUNT_BITS | next, Relaxed);
        if count > OFTEN { 0 } else { count }
    }

    /// The range that begins at `addr` was adopted: should its bytes become the program's own
    /// again, its sends are counted anew.
    pub fn adopted(&self, addr: usize) {
        let range = self.range(addr);
        if range.start.load(Relaxed) == addr {
            range.sends.fetch_and(!LEFT_ALONE_LAST, Relaxed);
        }
    }

    /// The attempt with the range that begins at `addr`, which was made because it was sent so
    /// often, did not come about: it is left alone for its next 128 sends.
    pub fn unfit(&self, addr: usize) {
        let range = self.range(addr);
        if range.start.load(Relaxed) == addr {
            range.sends.fetch_and(!LEFT_ALONE_LAST, Relaxed);
            range.sends.fetch_or(OFTEN + 1, Relaxed);
        }
    }

    /// These bytes were overwritten by an input call: what begins there is something else.
    #[inline]
    pub fn changed(&self, addr: usize, len: usize) {
        if len == 0 || !self.any.load(Relaxed) {
            return;
        }
        let (first, last) = (addr >> SHIFT, addr.wrapping_add(len - 1) >> SHIFT);
        for g in first..=last.min(first + WALK_MAX) {
            let start = &self.ranges[slot(g)].start;
            if start.load(Relaxed) >> SHIFT == g {
                start.store(0, Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_range_counts_as_sent_again() {
        let r = Box::leak(Box::new(Repeats::new()));
        assert_eq!([0, 1, 2].map(|_| r.sent(0x7f00_0000_0040, 1 << 20)), [0, 1, 2]);
        assert_eq!(r.sent(0x7f00_0000_0040, 1 << 19), 0);
        assert_eq!(r.sent(0x7f00_0000_0040, 1 << 20), 0);
    }

    #[test]
    fn an_unfit_range_is_left_alone_for_its_next_128_sends() {
        let r = Box::leak(Box::new(Repeats::new()));
        let send = || r.sent(0x7f00_0010_0000, 65_536);
        assert_eq!((0..1000).map(|_| send()).max(), Some(OFTEN));
        r.unfit(0x7f00_0010_0000);
        assert_eq!((0..128).map(|_| send()).max(), Some(0));
        assert_eq!(send(), OFTEN);
        // Another range in its place is not concerned.
        r.sent(0x7f00_0010_0000, 1 << 20);
        assert_eq!(r.sent(0x7f00_0010_0000, 1 << 20), 1);
    }

    #[test]
    fn a_range_that_was_adopted_is_counted_anew() {
        let r = Box::leak(Box::new(Repeats::new()));
        let send = || r.sent(0x7f00_0010_0000, 1 << 20);
        assert_eq!([0, 1, 2].map(|_| send()), [0, 1, 2]);
        r.adopted(0x7f00_0010_0000);
        assert_eq!([0, 1, 2].map(|_| send()), [0, 1, 2]);
        r.adopted(0x7f00_0010_0040);
        assert_eq!(send(), 3, "another range was");
    }

    #[test]
    fn a_range_that_an_input_overwrites_begins_anew() {
        let r = Box::leak(Box::new(Repeats::new()));
        r.sent(0x7f00_0000_0040, 1 << 20);
        r.changed(0x7f00_0000_0000, 100);
        assert_eq!(r.sent(0x7f00_0000_0040, 1 << 20), 0);
        r.changed(0x7f00_0000_4000, 1 << 20);
        assert_eq!(r.sent(0x7f00_0000_0040, 1 << 20), 1);
    }
}
