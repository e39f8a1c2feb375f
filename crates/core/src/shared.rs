//! The statistics as other processes see them: one run of pages that a reader finds as a file.
//!
//! Everything is plain words, written with relaxed stores. Counters that belong to the tracker are
//! written under its lock only, so that adding to them is a load and a store.

use crate::counters::{Counters, NAMES};
use crate::policy::Pauses;
use crate::prices::CopyPrices;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What the file begins with: "uncopy" and two zeros.
pub const MAGIC: u64 = u64::from_le_bytes(*b"uncopy\0\0");
/// Call sites (with size class) that have a record of their own; number 0 is all others together.
pub const RECORDS: usize = 256;
/// Bytes of the command's name.
pub const COMMAND: usize = 16;

/// Who it is.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`LAYOUT`]: a reader of another version leaves the rest alone.
    pub layout: AtomicU64,
    /// The process.
    pub pid: AtomicU64,
    /// When it started, in clock ticks since boot: numbers of processes come round again.
    pub start_time: AtomicU64,
    /// The inode number of the PID namespace that `pid` is a number in.
    pub namespace: AtomicU64,
    /// Its name, ended by zeros.
    pub command: [AtomicU64; COMMAND / 8],
}

/// All of it.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Shared {
    /// Who it is.
    pub header: Header,
    /// What was done.
    pub counters: Counters,
    /// Call sites that are left alone.
    pub pauses: Pauses,
    /// What copies cost here.
    pub copies: CopyPrices,
    /// What was done for each call site.
    pub records: Records,
}

/// Counted up where the meaning of a word changes, but not its name.
const REVISION: u64 = 1;

/// A number that differs wherever the layout or the meaning of a word does.
pub const LAYOUT: u64 = {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ size_of::<Shared>() as u64 ^ REVISION << 32;
    let mut i = 0;
    while i < NAMES.len() {
        hash = hashed(hash, NAMES[i].0);
        i += 1;
    }
    let mut i = 0;
    while i < REASONS.len() {
        hash = hashed(hash, REASONS[i].1);
        i += 1;
    }
    hash
};

const fn hashed(mut hash: u64, text: &str) -> u64 {
    let mut i = 0;
    while i < text.len() {
        hash = (hash ^ text.as_bytes()[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    (hash ^ 0xff).wrapping_mul(0x0100_0000_01b3)
}

macro_rules! reasons {
    ($( $(#[doc = $doc:literal])* $name:ident $text:literal )*) => {
        /// Why a copy was not elided.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason { $( $(#[doc = $doc])* $name, )* }

        /// All of them, their names, and what they mean.
        pub const REASONS: &[(Reason, &str, &str)] =
            &[ $( (Reason::$name, $text, concat!($($doc),*)), )* ];
    };
}

reasons! {
    /// The policy leaves the call site alone for a while.
    Resting "resting"
    /// Shorter than the threshold.
    TooSmall "too_small"
    /// Neither input nor a copy of it.
    NotInput "not_input"
    /// Too many pieces for one plan; its halves are tried, and counted, by themselves.
    Fragmented "fragmented"
    /// Source and destination overlap.
    Overlap "overlap"
    /// One side stays in memory: resident in pieces too short to move, or its mapping is changing.
    Resident "resident"
    /// The source is freed memory.
    Freed "freed"
    /// No room for an extent.
    ExhaustedExtents "exhausted_extents"
    /// The cap on registered ranges.
    ExhaustedMappings "exhausted_mappings"
    /// The cap on views.
    ExhaustedViews "exhausted_views"
    /// No memory for the books.
    ExhaustedBooks "exhausted_books"
    /// The kernel refused: pinned, shared after fork, or of another userfaultfd.
    RefusedBusy "refused_busy"
    /// The kernel refused: contended.
    RefusedAgain "refused_again"
    /// The kernel refused: no memory, or too many mappings.
    RefusedNoMemory "refused_no_memory"
    /// The kernel refused: not private anonymous memory, or locked.
    RefusedUnsuitable "refused_unsuitable"
    /// The kernel refused otherwise.
    RefusedOther "refused_other"
}

/// What was done for a call site and size class.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Record {
    /// Return address of the call, shifted left by [`CLASS_BITS`], and the size class (a power of
    /// two). 0: nobody's yet (or, in the first record, everybody else's).
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
    /// stands in [`Shared::pauses`].
    pub paused: AtomicU64,
    /// Its place in [`Shared::pauses`], and [`UNTRIED`].
    pub pause: AtomicU32,
    /// The [`Reason`] of the last copy that was not elided.
    pub last: AtomicU32,
    /// Copies not elided, by [`Reason`].
    pub reasons: [AtomicU32; REASONS.len()],
}

/// Set in [`Record::pause`] where the site goes by its own account while all others elide, or none does: it sends by reference, or reads kept files.
pub const UNTRIED: u32 = 1 << 31;

/// Low bits of [`Record::key`] that hold the size class.
pub const CLASS_BITS: u32 = 5;

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

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    /// Nothing done, by nobody.
    pub const fn new() -> Self {
        Self {
            header: Header {
                magic: AtomicU64::new(0),
                layout: AtomicU64::new(0),
                pid: AtomicU64::new(0),
                start_time: AtomicU64::new(0),
                namespace: AtomicU64::new(0),
                command: [const { AtomicU64::new(0) }; COMMAND / 8],
            },
            counters: Counters::new(),
            pauses: Pauses::new(),
            copies: CopyPrices::new(),
            records: Records::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_at_their_own_numbers_and_fill_a_cache_line() {
        assert!(REASONS.iter().enumerate().all(|(i, (r, ..))| *r as usize == i));
        assert_eq!(size_of::<Record>(), 128);
    }

    #[test]
    fn all_of_it_is_whole_pages() {
        assert_eq!(size_of::<Shared>() % 4096, 0);
        // tests/soak/soak.py looks there.
        assert_eq!(core::mem::offset_of!(Shared, counters), 56);
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
