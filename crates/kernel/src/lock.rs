//! A futex lock (Drepper, "Futexes are tricky", mutex 2) that a forked child can reset: the
//! thread that held it does not exist there. std's cannot be.

use crate::sync::{Futex, atomic::Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// A holder is done within a microsecond or so, unless it is in a page-table call.
const SPINS: usize = if cfg!(loom) { 0 } else { 100 };

/// The lock. Not re-entrant.
#[derive(Debug)]
pub struct Lock(Futex);

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Lock {
    /// Free.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(Futex::new(FREE))
    }

    /// Free. (loom's atomics are made at run time.)
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(Futex::new(FREE))
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) {
        if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended();
        }
    }

    /// Takes the lock if nobody has it; returns whether that was so.
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        for _ in 0..SPINS {
            if self.0.load(Ordering::Relaxed) == FREE
                && self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            self.0.wait(CONTENDED);
        }
    }

    /// Gives the lock up. Only the holder may.
    #[inline]
    pub fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            self.0.wake_one();
        }
    }

    /// As [`Lock::lock`]; with `alone`, no other thread knows the lock until it is given up: then
    /// no locked instruction is needed, and two of these are half of what a short section takes.
    #[inline(always)]
    pub fn lock_unless(&self, alone: bool) {
        if alone {
            self.0.store(HELD, Ordering::Relaxed);
        } else {
            self.lock();
        }
    }

    /// As [`Lock::unlock`], with what [`Lock::lock_unless`] was given.
    #[inline(always)]
    pub fn unlock_unless(&self, alone: bool) {
        if alone {
            self.0.store(FREE, Ordering::Release);
        } else {
            self.unlock();
        }
    }

    /// Frees the lock whoever held it. Only where no other thread exists (a forked child).
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }
}

/// Every order of the threads' steps (`make loom`). Each test's comment says which change it was
/// seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Guarded<T> {
        lock: Lock,
        data: UnsafeCell<T>,
    }

    // SAFETY: `data` is used with the lock held; loom reports where it is not.
    unsafe impl<T> Sync for Guarded<T> {}
    // SAFETY: as above.
    unsafe impl<T> Send for Guarded<T> {}

    impl<T> Guarded<T> {
        fn new(data: T) -> Self {
            Self { lock: Lock::new(), data: UnsafeCell::new(data) }
        }

        fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = self.data.with_mut(|data| f(unsafe { &mut *data }));
            self.lock.unlock();
            result
        }
    }

    /// Caught: either acquiring made relaxed; the release made relaxed; the lock taken as `HELD`
    /// after a sleep, or given up without waking (both: a deadlock); the sleep on `HELD` in place
    /// of `CONTENDED`.
    #[test]
    fn one_thread_at_a_time_and_nobody_sleeps_for_ever() {
        let mut model = loom::model::Builder::new();
        // Three threads: one that holds, one that sleeps, one that comes in between.
        model.preemption_bound = Some(3);
        model.check(|| {
            let guarded = Arc::new(Guarded::new(0));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let guarded = guarded.clone();
                    thread::spawn(move || guarded.with(|n| *n += 1))
                })
                .collect();
            guarded.with(|n| *n += 1);
            others.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(guarded.with(|n| *n), 3);
        });
    }
}
