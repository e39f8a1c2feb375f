//! How much the program copies: what its processor time is compared with ([`uncopy_decide::Regime`]).

use crate::space;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The books are told each time that so many bytes more were copied (a power of two).
const TOLD_EVERY: u64 = 8 << 20;

static COPIED: AtomicU64 = AtomicU64::new(0);

/// The program copies `bytes` more, whatever will come of it.
#[inline(always)]
pub fn copies(bytes: usize) {
    let before = COPIED.fetch_add(bytes as u64, Relaxed);
    let now = before.wrapping_add(bytes as u64);
    if before / TOLD_EVERY != now / TOLD_EVERY {
        tell(now);
    }
}

#[cold]
fn tell(copied: u64) {
    space::with(|b| b.try_ways(copied));
}
