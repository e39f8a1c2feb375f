//! How much the program copies: what its processor time is compared with where sites elide, and
//! where none does.

use crate::space::Space;
use core::sync::atomic::Ordering::Relaxed;
use uncopy_decide::Operation;
use uncopy_kernel::clock;

/// The books are told each time that so many bytes more were copied (a power of two).
pub(crate) const TOLD_EVERY: u64 = 8 << 20;

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
        self.with(|b| {
            b.copied(copied);
            let now = clock::seconds();
            self.looks(now);
            b.drop_idle(now);
        });
    }

    /// A copy of input is made because its site rests.
    #[inline]
    pub fn rests(&'static self, copy: Operation) {
        if self.recording.load(Relaxed) {
            self.with(|b| b.did(copy));
        }
    }
}
