//! Sockets that listen for other hosts. A service that has a wire takes connections for them: it is
//! shown each when it begins to listen, and again when one has come by Linux, which it would have
//! taken: it was not there, or was started anew.
//!
//! unsafe: descriptors by their numbers.

use crate::tcp::Tcp;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU64};
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{SystemTime, UNIX_EPOCH};

/// So many of a program are shown again; those beyond once.
const MOST: usize = 32;
/// Not more often than this: asking for a service that is not there takes some microseconds.
const AGAIN: u64 = 1000;

/// The sockets of a process. Zeros: none.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Their numbers and one.
    numbers: [AtomicI32; MOST],
    /// When they were shown last, in milliseconds.
    shown: AtomicU64,
}

impl Listening {
    pub const fn new() -> Self {
        Self { numbers: [const { AtomicI32::new(0) }; MOST], shown: AtomicU64::new(0) }
    }

    /// (The same number may be there twice. Numbers that are closed stay: what they are is asked
    /// each time.)
    fn add(&self, fd: RawFd) {
        for number in &self.numbers {
            let known = number.compare_exchange(0, fd + 1, Relaxed, Relaxed);
            if known.is_ok() || known == Err(fd + 1) {
                return;
            }
        }
    }
}

impl Tcp {
    /// `fd` listens.
    #[cold]
    pub fn listens(&self, fd: RawFd) {
        if self.is_own() && !self.is_stopped() && self.show_listener(fd) {
            self.listening.add(fd);
        }
    }

    /// False: it does not listen for other hosts; or may sign what it sends, which a service does
    /// not.
    fn show_listener(&self, fd: RawFd) -> bool {
        if self.signs.load(Relaxed) {
            return false;
        }
        // SAFETY: the program's, or a number for the kernel, which checks it; only asked.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let Some(at) = uncopy_tcp_socket::listens(socket) else { return false };
        if let Some(context) = self.context_if_room() {
            context.show_listener(socket, at);
        }
        true
    }

    /// `fd` is about to get, or has got, what a service does not heed: a filter, a key. Where it
    /// listens it is Linux's from now on. False: it may not be yet.
    #[cold]
    pub fn withdraws(&self, fd: RawFd) -> bool {
        // SAFETY: as above.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        // (Whoever has shown it: it may have been inherited.)
        if fd < 0 || !self.is_own() {
            return true;
        }
        let Some(at) = uncopy_tcp_socket::listens_at(socket) else { return true };
        self.context().is_none_or(|context| context.withdraw_listener(socket, at))
    }

    /// Linux has brought a connection of another host.
    pub(crate) fn came_by_linux(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_millis() as u64);
        let before = self.listening.shown.load(Relaxed);
        if now.abs_diff(before) < AGAIN || self.is_stopped() {
            return;
        }
        if self.listening.shown.compare_exchange(before, now, Relaxed, Relaxed).is_ok() {
            let numbers = self.listening.numbers.iter().map(|number| number.load(Relaxed));
            numbers.take_while(|number| *number != 0).for_each(|number| {
                self.show_listener(number - 1);
            });
        }
    }
}
