//! The means by which threads wait for one another: atomics, and a futex. Under `cfg(loom)` (`make
//! loom`) they are loom's, which tries every order of every thread's steps; what needs more than
//! them is left out there.

#[cfg(not(loom))]
pub use core::sync::atomic;
#[cfg(loom)]
pub use loom::sync::atomic;

use atomic::AtomicU32;
#[cfg(loom)]
use atomic::Ordering;

/// A word that threads sleep on. It is reached as the atomic that it is.
#[derive(Debug)]
pub struct Futex {
    word: AtomicU32,
    #[cfg(loom)]
    sleepers: (loom::sync::Mutex<()>, loom::sync::Condvar),
}

impl core::ops::Deref for Futex {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(not(loom))]
impl Futex {
    /// Holds `value`.
    pub const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value) }
    }

    /// Sleeps until woken, if it still holds `value`; wakes for no reason now and then.
    pub fn wait(&self, value: u32) {
        use rustix::thread::futex;
        if crate::inject::check(uncopy_inject::Call::Futex).is_ok() {
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, value, None);
        }
    }

    /// Wakes one sleeper.
    pub fn wake_one(&self) {
        use rustix::thread::futex;
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }

    /// Wakes all.
    pub fn wake_all(&self) {
        use rustix::thread::futex;
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, u32::MAX >> 1);
    }
}

/// Stands in for the kernel: the comparison and the falling asleep are one step, as under the
/// kernel's bucket lock. The comparison is relaxed, so that nobody gets an ordering from it that
/// the kernel does not promise.
#[cfg(loom)]
impl Futex {
    /// Holds `value`.
    pub fn new(value: u32) -> Self {
        Self {
            word: AtomicU32::new(value),
            sleepers: (loom::sync::Mutex::new(()), loom::sync::Condvar::new()),
        }
    }

    /// See above.
    pub fn wait(&self, value: u32) {
        let asleep = self.sleepers.0.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == value {
            drop(self.sleepers.1.wait(asleep).unwrap());
        }
    }

    /// See above.
    pub fn wake_one(&self) {
        let _bucket = self.sleepers.0.lock().unwrap();
        self.sleepers.1.notify_one();
    }

    /// See above.
    pub fn wake_all(&self) {
        let _bucket = self.sleepers.0.lock().unwrap();
        self.sleepers.1.notify_all();
    }
}
