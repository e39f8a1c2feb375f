//! Which call sites are left alone, readable without a lock.

use crate::site::{PAUSES, key, slot};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Copies that sites are still to be left alone for, readable without the lock: a copy at a resting
/// site, of memory that is not tracked, must cost next to nothing.
#[repr(C)]
#[derive(Debug)]
pub struct Pauses {
    pub(crate) left: [AtomicU32; PAUSES],
    /// Not 0 while no site elides, whatever its account says.
    pub none_elides: AtomicU32,
}

impl Default for Pauses {
    fn default() -> Self {
        Self::new()
    }
}

impl Pauses {
    /// Nobody rests.
    pub const fn new() -> Self {
        Self { left: [const { AtomicU32::new(0) }; PAUSES], none_elides: AtomicU32::new(0) }
    }

    /// Nobody rests any more.
    pub fn clear(&self) {
        self.left.iter().for_each(|left| left.store(0, Relaxed));
        self.none_elides.store(0, Relaxed);
    }

    /// Whether the transfers of `len` bytes for `caller`, which are no copies, rest; counts this
    /// one.
    #[inline]
    pub fn rests(&self, caller: usize, len: usize) -> bool {
        self.count_down(slot(key(caller, len))) > 0
    }

    /// Whether this copy of `len` bytes for `caller` is still to be left alone; counts it.
    #[inline]
    pub fn rests_copies(&self, caller: usize, len: usize) -> bool {
        self.rests(caller, len) || self.none_elides()
    }

    /// Whether no site elides just now.
    #[inline]
    pub fn none_elides(&self) -> bool {
        self.none_elides.load(Relaxed) != 0
    }

    /// How many copies a site of `slot` is still to be left alone for.
    #[inline]
    pub(crate) fn peek(&self, slot: usize) -> u32 {
        self.left[slot].load(Relaxed)
    }

    /// The same; counts one of them.
    #[inline]
    pub(crate) fn count_down(&self, slot: usize) -> u32 {
        let left = self.peek(slot);
        if left > 0 {
            // Two threads may count one copy: no harm.
            self.left[slot].store(left - 1, Relaxed);
        }
        left
    }
}
