//! The atomics that programs and service share. Under `cfg(loom)` this crate's own tests get
//! loom's, which tries every order of every thread's steps.

#[cfg(not(loom))]
pub use core::sync::atomic;
#[cfg(loom)]
pub use loom::sync::atomic;
