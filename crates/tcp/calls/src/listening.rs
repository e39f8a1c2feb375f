//! Sockets that listen for other hosts. A service that has a wire takes connections for them: it is
//! registered each when it begins to listen, and again when one has come by Linux, which it would
//! have taken: it was not there, or was started anew.
//!
//! unsafe: descriptors by their numbers.

use crate::tcp::Tcp;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::{BorrowedFd, RawFd};

impl Tcp {
    /// `fd` listens.
    #[cold]
    pub fn listens(&self, fd: RawFd) {
        if self.is_own() && !self.is_stopped() && self.register_listener(fd) {
            self.listening.add(fd);
        }
    }

    /// False: it does not listen for other hosts; or may sign what it sends, which a service does
    /// not.
    fn register_listener(&self, fd: RawFd) -> bool {
        if self.signs.load(Relaxed) {
            return false;
        }
        // SAFETY: the program's, or a number for the kernel, which checks it; only asked.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let Some(at) = uncopy_tcp_socket::listens(socket) else { return false };
        if let Some(context) = self.context_if_room() {
            context.register_listener(socket, at);
        }
        true
    }

    /// `fd` is about to get, or has got, what a service does not heed: a filter, a key. Where it
    /// listens it is Linux's from now on. False: it may not be yet.
    #[cold]
    pub fn withdraws(&self, fd: RawFd) -> bool {
        // SAFETY: as above.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        // (It does not matter which process has registered it: it may have been inherited.)
        if fd < 0 || !self.is_own() {
            return true;
        }
        let Some(at) = uncopy_tcp_socket::listens_at(socket) else { return true };
        self.context().is_none_or(|context| context.withdraw_listener(socket, at))
    }

    /// Linux has brought a connection of another host.
    pub(crate) fn came_by_linux(&self) {
        if !self.is_stopped() && self.listening.registered.takes_turn() {
            self.listening.all().for_each(|fd| _ = self.register_listener(fd));
        }
    }
}
