//! A value that is made when the process begins, and never given back. Until then it is zeros and
//! costs no memory.
//!
//! unsafe: hands out what its caller's own lock guards.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub struct OnceInit<T> {
    made: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: reached as the callers of `make` and `get` promise.
unsafe impl<T: Send> Sync for OnceInit<T> {}

impl<T> core::fmt::Debug for OnceInit<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OnceInit").field("made", &self.made).finish_non_exhaustive()
    }
}

impl<T> Default for OnceInit<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceInit<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { made: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Makes it.
    ///
    /// # Safety
    /// Once, and nobody else is here: no lock is taken.
    pub unsafe fn make(&self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { (*self.value.get()).write(value) };
        self.made.store(true, Ordering::Release);
    }

    /// It, if it was made.
    ///
    /// # Safety
    /// The lock that guards it is held, and nobody has another reference.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "a lock of the caller's guards it")]
    pub unsafe fn get(&self) -> Option<&mut T> {
        // SAFETY: made; the caller's promise.
        self.made.load(Ordering::Acquire).then(|| unsafe { (*self.value.get()).assume_init_mut() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_nothing_until_it_is_made() {
        let made = OnceInit::new();
        // SAFETY: nobody else is here.
        unsafe {
            assert!(made.get().is_none());
            made.make(String::from("a"));
            made.get().unwrap().push('b');
            assert_eq!(made.get().unwrap(), "ab");
        }
    }
}
