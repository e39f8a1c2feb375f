//! How much the program copies, and how long some of that takes: what elision is compared with ([`uncopy_decide::Regime`],
//! [`uncopy_decide::CopyPrices`]).

use crate::space::Space;
use core::sync::atomic::Ordering::Relaxed;
use uncopy_decide::{AUDIT, UNTIL_THEN};
use uncopy_kernel::clock::{Lap, chosen};

/// The books are told each time that so many bytes more were copied (a power of two).
const TOLD_EVERY: u64 = 8 << 20;

impl Space {
    /// The program copies `bytes` more, whatever will come of it.
    #[inline(always)]
    pub fn copies(&'static self, bytes: usize) {
        let before = self.copied.fetch_add(bytes as u64, Relaxed);
        let now = before.wrapping_add(bytes as u64);
        if before / TOLD_EVERY != now / TOLD_EVERY {
            self.tell(now);
        }
    }

    #[cold]
    fn tell(&'static self, copied: u64) {
        self.with(|b| b.copied(copied));
    }

    /// The time, if the copy of a site that rests for `left` copies more (or until sites elide again) is to be timed.
    #[inline]
    pub fn time_resting(&'static self, left: u32) -> Option<Lap> {
        if left == UNTIL_THEN {
            return self.resting.begin(|| self.clock());
        }
        if chosen(left) || left <= AUDIT && left.is_multiple_of(2) {
            self.clock()?.begin()
        } else {
            None
        }
    }
}
