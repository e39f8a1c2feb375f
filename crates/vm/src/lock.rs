//! A futex lock (Drepper, "Futexes are tricky", mutex 2) that a forked child can reset: the
//! thread that held it does not exist there. std's cannot be.

use crate::inject;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::thread::futex;
use uncopy_core::inject::Call;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// A holder is done within a microsecond or so, unless it is in a page-table call.
const SPINS: usize = 100;

/// Waits until `word` is woken, unless it is not `value`; may come back early.
pub fn wait(word: &AtomicU32, value: u32) {
    if inject::check(Call::Futex).is_ok() {
        let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
    }
}

/// The lock. Not re-entrant.
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Lock {
    /// Free.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
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
            wait(&self.0, CONTENDED);
        }
    }

    /// Gives the lock up. Only the holder may.
    #[inline]
    pub fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
    }

    /// Frees the lock whoever held it. Only where no other thread exists (a forked child).
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }
}
