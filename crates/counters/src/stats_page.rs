//! The statistics as other processes see them: one run of pages that a reader finds as a file.
//!
//! Everything is plain words, written with relaxed stores. Counters that belong to the tracker are
//! written under its lock only, so that adding to them is a load and a store.

use crate::counters::{Counters, NAMES};
use core::sync::atomic::AtomicU64;
use uncopy_decide::{Pauses, REASONS, Records};

/// The first word of the file: "uncopy" and two zeros.
pub const MAGIC: u64 = u64::from_le_bytes(*b"uncopy\0\0");
/// Bytes of the command's name.
pub const COMMAND: usize = 16;

/// The process that publishes it.
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
pub struct StatsPage {
    /// The process that publishes it.
    pub header: Header,
    /// The counters of the process.
    pub counters: Counters,
    /// Call sites that are left alone.
    pub pauses: Pauses,
    /// The records of its call sites.
    pub records: Records,
}

/// Counted up where the meaning of a word changes, but not its name.
const REVISION: u64 = 1;

/// A number that differs wherever the layout or the meaning of a word does.
pub const LAYOUT: u64 = {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ size_of::<StatsPage>() as u64 ^ REVISION << 32;
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

impl Default for StatsPage {
    fn default() -> Self {
        Self::new()
    }
}

impl StatsPage {
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
            records: Records::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_whole_pages() {
        assert_eq!(size_of::<StatsPage>() % 4096, 0);
        // tests/soak/soak.py looks there.
        assert_eq!(core::mem::offset_of!(StatsPage, counters), 56);
    }
}
