//! Which call sites are left alone, readable without a lock.

use crate::shared::CLASS_BITS;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Copies that sites are still to be left alone for, readable without the lock: a copy at a resting
/// site, of memory that is not tracked, must cost next to nothing.
#[repr(C)]
#[derive(Debug)]
pub struct Pauses {
    pub(super) left: [AtomicU32; PAUSES],
    /// Not 0: all sites elide, and nobody's rest goes on (see [`crate::trial`]).
    pub all_elide: AtomicU32,
}

/// How many there are; sites share them by hash.
pub const PAUSES: usize = 4096;

impl Default for Pauses {
    fn default() -> Self {
        Self::new()
    }
}

impl Pauses {
    /// Nobody rests.
    pub const fn new() -> Self {
        Self { left: [const { AtomicU32::new(0) }; PAUSES], all_elide: AtomicU32::new(0) }
    }

    /// Whether the transfers of `len` bytes for `caller`, which are no copies, rest; counts this one.
    #[inline]
    pub fn rests(&self, caller: usize, len: usize) -> bool {
        self.tick(slot(key(caller, len))) > 0
    }

    /// How many copies of `len` bytes for `caller`, this one among them, are still to be left alone; counts it.
    #[inline]
    pub fn left(&self, caller: usize, len: usize) -> u32 {
        if self.all_elide() { 0 } else { self.tick(slot(key(caller, len))) }
    }

    /// Whether all sites elide.
    #[inline]
    pub fn all_elide(&self) -> bool {
        self.all_elide.load(Relaxed) != 0
    }

    pub(super) fn tick(&self, slot: usize) -> u32 {
        let left = self.left[slot].load(Relaxed);
        if left > 0 {
            // Two threads may count one copy: no harm.
            self.left[slot].store(left - 1, Relaxed);
        }
        left
    }
}

/// Largest size class told apart: copies of 1 MB and more are one.
const CLASS_MAX: u32 = 20;
/// How many there are.
pub(crate) const CLASSES: usize = CLASS_MAX as usize + 1;

/// Call site and size class (powers of two) in one word.
#[inline]
pub(crate) fn key(caller: usize, len: usize) -> usize {
    let class = len.max(1).ilog2().min(CLASS_MAX) as usize;
    caller << CLASS_BITS | class
}

/// The size class in a key.
pub(crate) fn class(key: usize) -> usize {
    (key & ((1 << CLASS_BITS) - 1)).min(CLASSES - 1)
}

/// A hash of a key.
#[inline]
pub(super) fn hash(key: usize) -> usize {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

pub(crate) fn slot(key: usize) -> usize {
    hash(key) % PAUSES
}
