//! Locks. While one is held no signal handler of the program runs on its thread: it might make a
//! call that wants the same lock.
//!
//! [`Lock`] lies in memory that a process shares with its children; the next one takes it over,
//! whatever became of its holder. A process that is killed while it holds the lock leaves nothing
//! half done: a ring's position is published by one store, last.
//!
//! `Guarded` is a process' own. It is held over a fork, so that the child finds nothing half done.
//!
//! unsafe: what is guarded, by whoever holds the lock.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::futex;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uncopy_kernel::critical;
use uncopy_kernel::lock::Lock as OwnLock;

const WAITERS: u32 = 1 << 31;
/// A holder copies a ring at most: 1 MB, some 100 us.
const SPINS: usize = 100;
/// How often a waiter asks whether the holder still lives.
const DOUBT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Zero, or the holder's process.
#[repr(transparent)]
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Takes it for `process`.
    #[inline]
    pub fn lock(&self, process: u32) {
        if self.0.compare_exchange(0, process, Acquire, Relaxed).is_err() {
            self.contended(process);
        }
    }

    #[cold]
    fn contended(&self, process: u32) {
        for _ in 0..SPINS {
            if self.0.load(Relaxed) == 0
                && self.0.compare_exchange(0, process, Acquire, Relaxed).is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            let held = self.0.load(Relaxed);
            if held == 0 {
                // Others may sleep: one that has slept wakes them in turn.
                if self.0.compare_exchange(0, process | WAITERS, Acquire, Relaxed).is_ok() {
                    return;
                }
                continue;
            }
            if held & WAITERS == 0
                && self.0.compare_exchange(held, held | WAITERS, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            let slept = futex::wait(&self.0, futex::Flags::empty(), held | WAITERS, Some(&DOUBT));
            if slept == Err(Errno::TIMEDOUT)
                && has_ended(held & !WAITERS)
                && self
                    .0
                    .compare_exchange(held | WAITERS, process | WAITERS, Acquire, Relaxed)
                    .is_ok()
            {
                return;
            }
        }
    }

    /// Gives it up.
    #[inline]
    pub fn unlock(&self) {
        if self.0.swap(0, Release) & WAITERS != 0 {
            let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
        }
    }
}

/// No handler of the program runs on this thread as long as it lives.
#[derive(Debug)]
pub(crate) struct Section(bool);

impl Section {
    #[inline]
    pub fn begin() -> Self {
        let begins = !critical::inside();
        if begins {
            critical::enter();
        }
        Self(begins)
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            critical::leave();
        }
    }
}

/// A value of this process behind a lock.
pub(crate) struct Guarded<T> {
    lock: OwnLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by whoever holds the lock.
unsafe impl<T: Send> Sync for Guarded<T> {}
// SAFETY: it goes with its value.
unsafe impl<T: Send> Send for Guarded<T> {}

impl<T> Guarded<T> {
    pub const fn new(value: T) -> Self {
        Self { lock: OwnLock::new(), value: UnsafeCell::new(value) }
    }

    /// Before fork: nobody changes it until [`Guarded::let_go`].
    pub fn hold(&self) {
        self.lock.lock();
    }

    /// After fork, in the parent and in the child, whose only thread held it.
    pub fn let_go(&self) {
        self.lock.unlock();
    }

    /// For whoever holds it over a fork.
    pub fn value(&self) -> *mut T {
        self.value.get()
    }
}

impl<T: Default> Default for Guarded<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Guarded")
    }
}

/// Access to the value, with the lock.
pub(crate) struct Guard<'a, T>(&'a Guarded<T>, #[expect(dead_code, reason = "ends last")] Section);

/// Takes the lock of a value.
#[inline]
pub(crate) fn lock<T>(guarded: &Guarded<T>) -> Guard<'_, T> {
    let section = Section::begin();
    guarded.lock.lock();
    Guard(guarded, section)
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

/// Also if nobody has waited for it yet.
pub(crate) fn has_ended(process: u32) -> bool {
    let Some(pid) = Pid::from_raw(process as i32) else { return true };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(error) => error == Errno::SRCH,
        Ok(fd) => {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)) == Ok(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn one_at_a_time() {
        let shared = Arc::new((Lock(AtomicU32::new(0)), AtomicU32::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        shared.0.lock(std::process::id());
                        let n = shared.1.load(Relaxed);
                        std::hint::spin_loop();
                        shared.1.store(n + 1, Relaxed);
                        shared.0.unlock();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(shared.1.load(Relaxed), 80_000);
    }

    #[test]
    fn a_lock_of_a_killed_process_is_taken_over_even_before_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let lock = Lock(AtomicU32::new(child.id()));
        child.kill().unwrap();
        lock.lock(std::process::id());
        assert_eq!(lock.0.load(Relaxed) & !WAITERS, std::process::id());
        child.wait().unwrap();
    }
}
