//! How much the program copies, and how long some of that takes: what elision is compared with ([`uncopy_decide::Regime`],
//! [`uncopy_decide::CopyPrices`]).

use crate::space::Space;
use core::sync::atomic::Ordering::Relaxed;
use uncopy_decide::{AUDIT, Deed, UNTIL_THEN};
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

    /// Such a copy of `len` bytes took `ns`.
    pub fn timed(&'static self, caller: usize, len: usize, ns: u64) {
        self.statistics.shared.copies.took(caller, len, ns);
        if self.recording.load(Relaxed) {
            self.with(|b| b.did(Deed::Timed { caller, len, ns: ns as usize }));
        }
    }

    /// A copy of input is made because its site rests for `left` copies more (or until sites elide again). Returns the time, if it is to be
    /// timed.
    #[inline]
    pub fn rests(&'static self, left: u32, copy: Deed) -> Option<Lap> {
        if self.recording.load(Relaxed) {
            self.with(|b| b.did(copy));
        }
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
