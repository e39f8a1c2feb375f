//! A futex lock (Drepper, "Futexes are tricky", mutex 2) that a forked child can reset: the
//! thread that held it does not exist there. std's cannot be.

use crate::sync::{Futex, atomic::Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// A holder is done within a microsecond or so, unless it is in a page-table call.
const SPINS: usize = if cfg!(all(loom, test)) { 0 } else { 100 };

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
    #[cfg(not(all(loom, test)))]
    pub const fn new() -> Self {
        Self(Futex::new(FREE))
    }

    /// Free. (loom's atomics are made at run time.)
    #[cfg(all(loom, test))]
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

    /// Frees the lock whoever held it. Only where no other thread exists (a forked child).
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }
}

/// Every order of the threads' steps (`make loom`). What each test was seen to catch stands with it.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;
    use uncopy_core::extents::{ExtentId, Extents};

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

    /// Caught: either acquiring made relaxed; the release made relaxed; the lock taken as `HELD` after a sleep, or given up
    /// without waking (both: a deadlock); the sleep on `HELD` in place of `CONTENDED`.
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

    /// An output call reads an extent's page without the lock, but pinned; meanwhile the last view of it ends. The page is
    /// recycled (written) by whoever lets go last, and only then.
    ///
    /// Caught: `pin` without `hold`.
    #[test]
    fn a_pinned_extent_is_not_recycled() {
        loom::model(|| {
            let mut extents = Extents::new();
            let id = extents.create(0, 1, 4096, 0);
            let books = Arc::new(Guarded::new(extents));
            let page = Arc::new(UnsafeCell::new(1));
            let let_go = |books: &Guarded<Extents>, page: &UnsafeCell<i32>, id: ExtentId| {
                if books.with(|e| e.drop_ref(id)).is_some() {
                    // SAFETY: loom reports a reader.
                    page.with_mut(|p| unsafe { *p = 2 });
                }
            };
            let (b, p) = (books.clone(), page.clone());
            let output = thread::spawn(move || {
                let pinned = b.with(|e| {
                    e.alive(id) && {
                        e.hold(id);
                        true
                    }
                });
                if pinned {
                    // SAFETY: loom reports a writer.
                    assert_eq!(p.with(|p| unsafe { *p }), 1);
                    let_go(&b, &p, id);
                }
            });
            let_go(&books, &page, id);
            output.join().unwrap();
            // SAFETY: nobody else is left.
            assert_eq!(page.with(|p| unsafe { *p }), 2);
        });
    }
}
