//! A spinlock (TAS, 3.2.4: "a per-connection spinlock"). A flow is held while a segment of it is
//! handled: some ten nanoseconds; and threads of the fast path seldom want the same one: only while
//! flows move from core to core, and when the slow path looks. A lock that sleeps would be for
//! longer.
//!
//! unsafe: what is locked lies in a cell, as in every lock.

use crate::sync::atomic::AtomicBool;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{UnsafeCell, spin_loop, yield_now};
use core::ops::{Deref, DerefMut};

/// Looks before the processor is given away: longer than a flow is held, so that then its holder
/// has none (there may be fewer cores than threads).
const LOOKS: u32 = 200;

/// The lock has a cache line of its own before the value, where the value is aligned to lines: a
/// thread that waits does not take the value's lines away.
#[repr(C)]
#[derive(Debug)]
pub struct Spin<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the one guard there is at a time, on whatever thread that
// is.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    /// Unlocked.
    pub fn new(value: T) -> Spin<T> {
        Spin { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, once nobody else has it. A thread that holds it and asks again waits for
    /// ever.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        nearer(self);
        let mut looks = 0;
        while self.locked.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            while self.locked.load(Relaxed) {
                looks += 1;
                if cfg!(all(loom, test)) || looks % LOOKS == 0 { yield_now() } else { spin_loop() }
            }
        }
        Guard(self)
    }
}

/// Asks for the line where `at` begins, if it is far away. A locked instruction asks only once all
/// before it has been done: the line of a flow that has not been in use lately comes 85 ns sooner
/// this way (`examples/frames.rs`).
#[inline]
fn nearer<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: changes nothing, and faults at no address; this one is of a live value besides.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The value is locked as long as this lives.
#[derive(Debug)]
pub struct Guard<'a, T>(&'a Spin<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, and borrowed.
        self.0.value.with_mut(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and borrowed for as long as the value.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.locked.store(false, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_count_under_the_lock_lose_nothing() {
        let lock = Spin::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 400_000);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn in_every_order_one_has_it_at_a_time_and_sees_what_the_other_did() {
        loom::model(|| {
            let lock = Arc::new(Spin::new([0u32; 2]));
            let add = |lock: &Spin<[u32; 2]>| {
                let mut both = lock.lock();
                assert_eq!(both[0], both[1]);
                both[0] += 1;
                both[1] += 1;
            };
            let other = {
                let lock = lock.clone();
                thread::spawn(move || add(&lock))
            };
            add(&lock);
            other.join().unwrap();
            assert_eq!(*lock.lock(), [2, 2]);
        });
    }
}
