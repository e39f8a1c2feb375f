//! A value and its lock.
//!
//! unsafe: the value is used with the lock held.

use core::cell::UnsafeCell;
use uncopy_kernel::critical;
use uncopy_kernel::lock::Lock;

/// Something that one thread at a time uses, while no handler of the program runs on it.
pub(crate) struct Guarded<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

impl<T> core::fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Guarded")
    }
}

// SAFETY: `value` is used with the lock held.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        critical::within(|| {
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = f(unsafe { &mut *self.value.get() });
            self.lock.unlock();
            result
        })
    }
}
