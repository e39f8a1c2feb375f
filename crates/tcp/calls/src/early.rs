//! Sockets that are added to a set before they connect, as nginx and asio do: a set has to know of a connection what was said of its socket.
//!
//! unsafe: descriptors by their numbers; the list is behind its lock.

use crate::tcp::Tcp;
use core::cell::UnsafeCell;
use rustix::io::Errno;
use rustix::net::{getpeername, ipproto, sockopt};
use std::os::fd::{BorrowedFd, RawFd};
use uncopy_kernel::critical;
use uncopy_kernel::lock::Lock;
use uncopy_tcp_socket::set::Event;

/// What was said of a socket: its number, the set's, and what is asked.
#[derive(Clone, Copy, Debug)]
struct Said {
    fd: RawFd,
    set: RawFd,
    event: Event,
}

/// See the module. Zeros: nothing was said.
#[derive(Debug)]
pub(crate) struct Early {
    lock: Lock,
    said: UnsafeCell<Vec<Said>>,
}

// SAFETY: the list is used with the lock.
unsafe impl Sync for Early {}

impl Early {
    pub const fn new() -> Self {
        Self { lock: Lock::new(), said: UnsafeCell::new(Vec::new()) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Vec<Said>) -> R) -> R {
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
    /// Something that is no connection was added to a set, or changed there (`None`: removed).
    #[cold]
    pub(crate) fn said_early(&self, set: RawFd, fd: RawFd, event: Option<Event>) {
        let event = event.filter(|_| is_unconnected(fd));
        self.early.with(|said| {
            said.retain(|other| (other.fd, other.set) != (fd, set));
            said.extend(event.map(|event| Said { fd, set, event }));
        });
    }

    /// The socket connects: the sets that it is in know of it from now on.
    pub(crate) fn tell_sets_of(&self, fd: RawFd) {
        let of: Vec<Said> = self.early.with(|said| {
            let of = said.iter().filter(|said| said.fd == fd).copied().collect();
            said.retain(|said| said.fd != fd);
            of
        });
        let Some(connection) = self.connection(fd) else { return };
        for Said { set, event, .. } in of {
            // (Closed since, or another file's number: the kernel knows.)
            let _ = self.set_with(set).map(|set| set.adopt(fd, &connection.flow, event));
        }
    }
}
