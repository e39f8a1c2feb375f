//! The atomics that threads share without a lock. Under `cfg(loom)` this crate's own tests get
//! loom's, which tries every order of every thread's steps; nothing else ever does.

#[cfg(not(all(loom, test)))]
pub use core::sync::atomic;
#[cfg(all(loom, test))]
pub use loom::sync::atomic;
