//! The numbers of sockets that listen for other hosts.

use crate::seldom::Seldom;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::RawFd;

/// So many of a program are registered again; those beyond once.
const MOST: usize = 32;

/// The sockets of a process. Zeros: none.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Their numbers and one.
    numbers: [AtomicI32; MOST],
    /// Asking for a service that is not there takes some microseconds.
    pub registered: Seldom,
}

impl Listening {
    pub const fn new() -> Self {
        Self { numbers: [const { AtomicI32::new(0) }; MOST], registered: Seldom::new() }
    }

    /// This one listens. (The same number may be there twice. Numbers that are closed stay: what
    /// they are is asked each time.)
    pub fn add(&self, fd: RawFd) {
        for number in &self.numbers {
            let known = number.compare_exchange(0, fd + 1, Relaxed, Relaxed);
            if known.is_ok() || known == Err(fd + 1) {
                return;
            }
        }
    }

    /// Those that are known.
    pub fn all(&self) -> impl Iterator<Item = RawFd> {
        let numbers = self.numbers.iter().map(|number| number.load(Relaxed));
        numbers.take_while(|number| *number != 0).map(|number| number - 1)
    }
}
