//! Requests to sets about sockets that have not connected yet.
//!
//! unsafe: the list is behind its lock.

use core::cell::UnsafeCell;
use core::ops::RangeInclusive;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use uncopy_kernel::critical;
use uncopy_kernel::lock::Lock;
use uncopy_tcp_socket::set::Event;

/// The events that were said. (Zeros where nothing was, which a `Vec` has not.)
#[derive(Debug)]
pub(crate) struct Said {
    /// By the socket's number and the set's.
    pub of: BTreeMap<(RawFd, RawFd), Event>,
    /// The same the other way round.
    by_set: BTreeSet<(RawFd, RawFd)>,
}

impl Said {
    pub fn insert(&mut self, fd: RawFd, set: RawFd, event: Event) {
        self.of.insert((fd, set), event);
        self.by_set.insert((set, fd));
    }

    pub fn remove(&mut self, fd: RawFd, set: RawFd) -> Option<Event> {
        self.by_set.remove(&(set, fd));
        self.of.remove(&(fd, set))
    }

    pub fn sets_of(&self, fds: RangeInclusive<RawFd>) -> Vec<(RawFd, RawFd)> {
        let range = (*fds.start(), 0)..=(*fds.end(), RawFd::MAX);
        self.of.range(range).map(|(&both, _)| both).collect()
    }

    /// The events that were said of these numbers, as sockets or as sets, are over.
    fn forget(&mut self, numbers: RangeInclusive<RawFd>) {
        let range = (*numbers.start(), 0)..=(*numbers.end(), RawFd::MAX);
        let mut all: Vec<_> = self.by_set.range(range).map(|&(set, fd)| (fd, set)).collect();
        all.extend(self.sets_of(numbers));
        all.into_iter().for_each(|(fd, set)| _ = self.remove(fd, set));
    }
}

/// See the module. Zeros at first.
#[derive(Debug)]
pub(crate) struct Early {
    /// There was something: closes look.
    pub any: AtomicBool,
    lock: Lock,
    said: UnsafeCell<Said>,
}

// SAFETY: the list is used with the lock.
unsafe impl Sync for Early {}

impl Early {
    pub const fn new() -> Self {
        let said = Said { of: BTreeMap::new(), by_set: BTreeSet::new() };
        Self { any: AtomicBool::new(false), lock: Lock::new(), said: UnsafeCell::new(said) }
    }

    /// Runs `f` with the lock.
    pub fn with<R>(&self, f: impl FnOnce(&mut Said) -> R) -> R {
        critical::within(|| {
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = f(unsafe { &mut *self.said.get() });
            self.lock.unlock();
            result
        })
    }

    /// Something was said of these numbers, perhaps.
    pub fn is_any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// They are about to be closed: what was said of them is not true of whatever has these numbers
    /// next.
    pub fn closes(&self, numbers: RangeInclusive<RawFd>) {
        if self.is_any() {
            self.with(|said| said.forget(numbers));
        }
    }

    pub fn hold(&self) {
        self.lock.lock();
    }

    pub fn let_go(&self) {
        self.lock.unlock();
    }
}
