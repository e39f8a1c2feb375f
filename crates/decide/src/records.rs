//! Decisions and work for each call site, written down for readers in other processes.
//!
//! Everything is plain words, written with relaxed stores, and under the tracker's lock only: so
//! adding to them is a load and a store.

use crate::reasons::{REASONS, Reason};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Call sites (with size class) that have a record of their own; number 0 is all others together.
pub const RECORDS: usize = 256;

/// The record of a call site and size class.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Record {
    /// Return address of the call, shifted left by [`CLASS_BITS`](crate::site::CLASS_BITS), and the
    /// size class (a power of two). 0: nobody's yet (or, in the first record, everybody else's).
    pub key: AtomicU64,
    /// Copies elided, wholly or in part.
    pub elided: AtomicU64,
    /// Bytes that those did not move.
    pub elided_bytes: AtomicU64,
    /// Faults charged to it.
    pub faults: AtomicU64,
    /// Pages that those filled.
    pub touched_pages: AtomicU64,
    /// Credit with the policy, in ns.
    pub credit: AtomicI64,
    /// Copies that it was to be left alone for, all pauses together; what of the last one is left
    /// stands in [`Pauses`](crate::pauses::Pauses).
    pub paused: AtomicU64,
    /// Its place in [`Pauses`](crate::pauses::Pauses), and [`UNTRIED`].
    pub pause: AtomicU32,
    /// The [`Reason`] of the last copy that was not elided.
    pub last: AtomicU32,
    /// Copies not elided, by [`Reason`].
    pub reasons: [AtomicU32; REASONS.len()],
}

/// Set in [`Record::pause`] where the site goes by its own account while all others elide, or none
/// does: it sends by reference, or reads kept files.
pub const UNTRIED: u32 = 1 << 31;

/// The records of all call sites.
#[repr(C)]
#[derive(Debug)]
pub struct Records(pub [Record; RECORDS]);

impl Default for Records {
    fn default() -> Self {
        Self::new()
    }
}

impl Records {
    /// Nothing done.
    pub const fn new() -> Self {
        Self([const { Record::new() }; RECORDS])
    }

    /// Nothing done, by nobody.
    pub fn clear(&self) {
        self.restart();
        self.0.iter().for_each(|r| r.key.store(0, Relaxed));
    }

    /// Counts from zero again (a forked child).
    pub fn restart(&self) {
        for r in &self.0 {
            let words = [&r.elided, &r.elided_bytes, &r.faults, &r.touched_pages, &r.paused];
            words.into_iter().for_each(|w| w.store(0, Relaxed));
            r.reasons.iter().for_each(|n| n.store(0, Relaxed));
        }
    }
}

impl Record {
    const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            elided: AtomicU64::new(0),
            elided_bytes: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            touched_pages: AtomicU64::new(0),
            credit: AtomicI64::new(0),
            paused: AtomicU64::new(0),
            pause: AtomicU32::new(0),
            last: AtomicU32::new(0),
            reasons: [const { AtomicU32::new(0) }; REASONS.len()],
        }
    }

    /// A copy was not elided.
    pub fn missed(&self, why: Reason) {
        let n = &self.reasons[why as usize];
        n.store(n.load(Relaxed).wrapping_add(1), Relaxed);
        self.last.store(why as u32, Relaxed);
    }
}

/// Adds to a word that only the holder of the lock writes.
#[inline]
pub fn bump(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_fills_a_cache_line_or_two() {
        assert_eq!(size_of::<Record>(), 128);
    }

    #[test]
    fn a_restart_keeps_who_it_is_and_drops_what_was_done() {
        let records = Box::new(Records::new());
        let r = &records.0[1];
        r.key.store(7, Relaxed);
        bump(&r.elided, 3);
        r.missed(Reason::Freed);
        assert_eq!(r.reasons[Reason::Freed as usize].load(Relaxed), 1);
        records.restart();
        assert_eq!((r.key.load(Relaxed), r.elided.load(Relaxed)), (7, 0));
        assert_eq!(r.reasons[Reason::Freed as usize].load(Relaxed), 0);
    }
}
