//! Facts that the constructor has found out, for the shims: about libc, and the option that they
//! ask for with each large copy.
//!
//! Statics: entry points that the dynamic linker binds have nothing in hand.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether `free` is glibc's own.
pub static GLIBC_MALLOC: AtomicBool = AtomicBool::new(false);
/// Whether sizes of blocks can be asked for: [`crate::real::usable_size_fits`].
pub static USABLE_SIZE: AtomicBool = AtomicBool::new(false);
/// Where the first thread's stack begins (its highest address, nearly).
pub static GLIBC_STACK_END: AtomicUsize = AtomicUsize::new(0);
static THRESHOLD: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Smallest copy that is elided, in bytes. Before the constructor has run: none is.
#[inline]
pub fn threshold() -> usize {
    THRESHOLD.load(Ordering::Relaxed)
}

/// Sets the threshold, for the constructor.
pub fn set_threshold(bytes: usize) {
    THRESHOLD.store(bytes, Ordering::Relaxed);
}
