//! How much the program copies: what its processor time is compared with ([`uncopy_core::trial`]).

use crate::space;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The books are told once for so many copies (a power of two).
const TOLD_EVERY: u32 = 64;

static COPIED: AtomicU64 = AtomicU64::new(0);
static COPIES: AtomicU32 = AtomicU32::new(0);

/// The program copies `bytes` more, whatever will come of it. (Threads may lose a count: no harm.)
#[inline(always)]
pub fn copies(bytes: usize) {
    let copied = COPIED.load(Relaxed).wrapping_add(bytes as u64);
    COPIED.store(copied, Relaxed);
    let n = COPIES.load(Relaxed).wrapping_add(1);
    COPIES.store(n, Relaxed);
    if n.is_multiple_of(TOLD_EVERY) {
        tell(copied);
    }
}

#[cold]
fn tell(copied: u64) {
    space::with(|b| b.try_together(copied));
}
