//! Which call sites are left alone, readable without a lock.

use crate::regime::Regime;
use crate::site::{PAUSES, key, slot};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Copies that sites are still to be left alone for, readable without the lock: a copy at a resting
/// site, of memory that is not tracked, must cost next to nothing.
#[repr(C)]
#[derive(Debug)]
pub struct Pauses {
    pub(crate) left: [AtomicU32; PAUSES],
    /// Who decides, a [`Regime`]: while it is not the sites' accounts, nobody's rest goes on.
    pub regime: AtomicU32,
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
            regime: AtomicU32::new(Regime::Accounts as u32),
        }
    }

    /// Nobody rests any more.
    pub fn clear(&self) {
        self.left.iter().for_each(|left| left.store(0, Relaxed));
        self.regime.store(Regime::Accounts as u32, Relaxed);
    }

    /// Whether the transfers of `len` bytes for `caller`, which are no copies, rest; counts this one.
    #[inline]
    pub fn rests(&self, caller: usize, len: usize) -> bool {
        self.count_down(Regime::Accounts, slot(key(caller, len))) > 0
    }

    /// How many copies of `len` bytes for `caller`, this one among them, are still to be left alone; counts it.
    #[inline]
    pub fn left(&self, caller: usize, len: usize) -> u32 {
        self.count_down(self.regime(), slot(key(caller, len)))
    }

    /// Who decides which sites elide.
    #[inline]
    pub fn regime(&self) -> Regime {
        Regime::from_word(self.regime.load(Relaxed))
    }

    /// How many copies a site of `slot` is still to be left alone for, if `regime` decides about it.
    #[inline]
    pub(crate) fn peek(&self, regime: Regime, slot: usize) -> u32 {
        match regime {
            Regime::Accounts => self.left[slot].load(Relaxed),
            Regime::All => 0,
            Regime::None => UNTIL_THEN,
        }
    }

    /// The same; counts one of them.
    #[inline]
    pub(crate) fn count_down(&self, regime: Regime, slot: usize) -> u32 {
        let left = self.peek(regime, slot);
        if left > 0 && regime == Regime::Accounts {
            // Two threads may count one copy: no harm.
            self.left[slot].store(left - 1, Relaxed);
        }
        left
    }
}
