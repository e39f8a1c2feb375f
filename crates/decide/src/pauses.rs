//! Which call sites are left alone, readable without a lock.

use crate::site::{PAUSES, key, slot};
use crate::way::Way;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Copies that sites are still to be left alone for, readable without the lock: a copy at a resting
/// site, of memory that is not tracked, must cost next to nothing.
#[repr(C)]
#[derive(Debug)]
pub struct Pauses {
    pub(crate) left: [AtomicU32; PAUSES],
    /// Who decides, a [`Way`]: while it is not the sites' accounts, nobody's rest goes on.
    pub way: AtomicU32,
}

/// What is left of a rest while no site elides: until that ends.
pub const UNTIL_THEN: u32 = u32::MAX;

impl Default for Pauses {
    fn default() -> Self {
        Self::new()
    }
}

impl Pauses {
    /// Nobody rests.
    pub const fn new() -> Self {
        Self {
            left: [const { AtomicU32::new(0) }; PAUSES],
            way: AtomicU32::new(Way::Accounts as u32),
        }
    }

    /// Whether the transfers of `len` bytes for `caller`, which are no copies, rest; counts this one.
    #[inline]
    pub fn rests(&self, caller: usize, len: usize) -> bool {
        self.count_down(Way::Accounts, slot(key(caller, len))) > 0
    }

    /// How many copies of `len` bytes for `caller`, this one among them, are still to be left alone; counts it.
    #[inline]
    pub fn left(&self, caller: usize, len: usize) -> u32 {
        self.count_down(self.way(), slot(key(caller, len)))
    }

    /// Who decides which sites elide.
    #[inline]
    pub fn way(&self) -> Way {
        Way::from_word(self.way.load(Relaxed))
    }

    /// How many copies a site of `slot` is still to be left alone for, if `way` decides about it.
    #[inline]
    pub(crate) fn peek(&self, way: Way, slot: usize) -> u32 {
        match way {
            Way::Accounts => self.left[slot].load(Relaxed),
            Way::All => 0,
            Way::None => UNTIL_THEN,
        }
    }

    /// The same; counts one of them.
    #[inline]
    pub(crate) fn count_down(&self, way: Way, slot: usize) -> u32 {
        let left = self.peek(way, slot);
        if left > 0 && way == Way::Accounts {
            // Two threads may count one copy: no harm.
            self.left[slot].store(left - 1, Relaxed);
        }
        left
    }
}
