//! Atomics and cells. Under `cfg(loom)` this crate's own tests get loom's, which tries every order
//! of every thread's steps.

#[cfg(not(all(loom, test)))]
pub use core::{hint::spin_loop, sync::atomic};
#[cfg(all(loom, test))]
pub use loom::{cell::UnsafeCell, hint::spin_loop, sync::atomic, thread::yield_now};
#[cfg(not(all(loom, test)))]
pub use std::thread::yield_now;

/// As loom's: code that looks into it says so.
#[cfg(not(all(loom, test)))]
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(all(loom, test)))]
impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R {
        look(self.0.get())
    }
}
