//! A set of epoll's, by however many numbers the program knows it.
//!
//! unsafe: a descriptor by its number.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};
use uncopy_kernel::descriptors::Kept;
use uncopy_tcp_socket::{Context, Set};

/// A set, by however many numbers the program knows it.
#[derive(Debug)]
pub struct Epoll {
    number: AtomicI32,
    /// A number of our own, if it ever had several.
    own: AtomicI32,
    set: OnceLock<Arc<Set>>,
    waited_for: AtomicBool,
}

impl Epoll {
    pub(crate) fn new(number: RawFd) -> Self {
        Self {
            number: AtomicI32::new(number),
            own: AtomicI32::new(-1),
            set: OnceLock::new(),
            waited_for: AtomicBool::new(false),
        }
    }

    /// The set, if it has a connection.
    pub fn set(&self) -> Option<Arc<Set>> {
        self.set.get().cloned()
    }

    /// The set, made with this context if it had no connection yet.
    pub(crate) fn made(&self, context: Arc<Context>) -> Result<Arc<Set>, Errno> {
        let made = Set::around(context, self.number.load(Relaxed))?;
        // The door wakes a thread that sleeps in the kernel's set, and it comes here.
        made.wake();
        let set = self.set.get_or_init(|| Arc::new(made)).clone();
        if self.waited_for.load(Relaxed) {
            set.nest();
        }
        Ok(set)
    }

    /// It gets a second number, or more. (Before the program knows it.)
    pub(crate) fn one_more(&self) -> Result<(), Errno> {
        if self.own.load(Relaxed) >= 0 {
            return Ok(());
        }
        // SAFETY: the program's, open.
        let number = unsafe { BorrowedFd::borrow_raw(self.number.load(Relaxed)) };
        let own = Kept::duplicate_of(number)?;
        self.number.store(own.as_raw_fd(), Relaxed);
        if let Some(set) = self.set.get() {
            set.set_number(own.as_raw_fd());
        }
        self.own.store(own.into_raw(), Relaxed);
        Ok(())
    }

    pub(crate) fn close_own(&self) {
        let own = self.own.swap(-1, Relaxed);
        if own >= 0 {
            // SAFETY: ours, and nobody uses it any more.
            drop(unsafe { Kept::from_raw(own) });
        }
    }

    /// By another set, or by poll.
    pub(crate) fn is_waited_for(&self) {
        self.waited_for.store(true, Relaxed);
        if let Some(set) = self.set.get() {
            set.nest();
        }
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        self.close_own();
    }
}
