//! Facts about libc that the constructor has found out, for the shims.
//!
//! Statics: entry points that the dynamic linker binds have nothing in hand.

use core::sync::atomic::{AtomicBool, AtomicUsize};

/// Whether `free` is glibc's own.
pub static GLIBC_MALLOC: AtomicBool = AtomicBool::new(false);
/// Whether sizes of blocks can be asked for: [`crate::real::usable_size_fits`].
pub static USABLE_SIZE: AtomicBool = AtomicBool::new(false);
/// Where the first thread's stack begins (its highest address, nearly).
pub static GLIBC_STACK_END: AtomicUsize = AtomicUsize::new(0);
