//! Sockets that are added to a set before they connect, as nginx and asio do: a set has to know of a connection what was said of its socket.
//!
//! unsafe: descriptors by their numbers; the list is behind its lock.

use crate::tcp::Tcp;
use core::cell::UnsafeCell;
use rustix::io::Errno;
use rustix::net::{getpeername, ipproto, sockopt};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, RawFd};
use uncopy_kernel::critical;
use uncopy_kernel::lock::Lock;
use uncopy_tcp_socket::set::Event;

/// What was said, by the socket's number and the set's. (Zeros where nothing was, which a `Vec` has not.)
type Said = BTreeMap<(RawFd, RawFd), Event>;

/// See the module. Zeros at first.
#[derive(Debug)]
pub(crate) struct Early {
    lock: Lock,
    said: UnsafeCell<Said>,
}

// SAFETY: the list is used with the lock.
unsafe impl Sync for Early {}

impl Early {
    pub const fn new() -> Self {
        Self { lock: Lock::new(), said: UnsafeCell::new(Said::new()) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Said) -> R) -> R {
        critical::within(|| {
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = f(unsafe { &mut *self.said.get() });
            self.lock.unlock();
            result
        })
    }

    pub fn hold(&self) {
        self.lock.lock();
    }

    pub fn let_go(&self) {
        self.lock.unlock();
    }
}

/// It may connect yet.
fn is_unconnected(fd: RawFd) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: the program's, or a number for the kernel, which checks it; only asked.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP))
        && getpeername(socket) == Err(Errno::NOTCONN)
        && sockopt::socket_acceptconn(socket) == Ok(false)
}

impl Tcp {
    /// Something that is no connection was added to a set.
    #[cold]
    pub(crate) fn added_early(&self, set: RawFd, fd: RawFd, event: Event) {
        if is_unconnected(fd) {
            self.early.with(|said| said.insert((fd, set), event));
        } else {
            self.changed_early(set, fd, None);
        }
    }

    /// It was changed there (`None`: removed).
    pub(crate) fn changed_early(&self, set: RawFd, fd: RawFd, event: Option<Event>) {
        self.early.with(|said| match event {
            Some(event) => said.get_mut(&(fd, set)).map(|said| *said = event),
            None => said.remove(&(fd, set)).map(drop),
        });
    }

    /// The socket connects: the sets that it is in know of it from now on.
    pub(crate) fn tell_sets_of(&self, fd: RawFd) {
        let of: Vec<(RawFd, Event)> = self.early.with(|said| {
            let sets: Vec<RawFd> =
                said.range((fd, 0)..=(fd, RawFd::MAX)).map(|(&(_, set), _)| set).collect();
            sets.into_iter().filter_map(|set| Some((set, said.remove(&(fd, set))?))).collect()
        });
        let Some(connection) = self.connection(fd) else { return };
        for (set, event) in of {
            // (Closed since, or another file's number: the kernel knows.)
            let _ = self.set_with(set).map(|set| set.adopt(fd, &connection.flow, event));
        }
    }
}
