//! Connections begin: what was connected or accepted within this host is looked up from then on,
//! and so is what stands in for a connection to another one.
//!
//! unsafe: descriptors by their numbers.

use crate::connection::Connection;
use crate::end::is_standard;
use crate::entry::Entry;
use crate::tcp::Tcp;
use core::sync::atomic::Ordering::Relaxed;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::{getsockname, ipproto, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use uncopy_tcp_socket::{StayReason, is_stand_in};

/// An address of the program's, IPv4 in IPv6 as IPv4.
fn plain(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}

/// Both ends may be on this host.
fn within_host(fd: BorrowedFd, other: IpAddr) -> bool {
    other.is_loopback()
        || getsockname(fd)
            .ok()
            .and_then(|address| SocketAddr::try_from(address).ok())
            .is_some_and(|own| plain(own) == other)
}

/// O_ASYNC.
fn signals(flags: OFlags) -> bool {
    flags.bits() & libc::O_ASYNC as u32 != 0
}

impl Tcp {
    /// `fd` was connected to `other` (`done`), or is about to be. `carried`: by the service's wire
    /// ([`Tcp::connects`]).
    #[cold]
    pub fn connected(&self, fd: RawFd, other: SocketAddr, (done, carried): (bool, bool)) {
        // SAFETY: the program's; only asked.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let is_tcp = || sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP));
        if !self.is_own() {
            return;
        }
        if carried || within_host(socket, plain(other)) && is_tcp() {
            let flags = fcntl_getfl(socket).unwrap_or(OFlags::empty());
            if signals(flags) {
                return self.stays_unseen(fd, StayReason::Used);
            }
            self.begins(fd, flags.contains(OFlags::NONBLOCK));
            self.tell_sets_of(fd);
            if carried && let Some(connection) = self.connection(fd) {
                connection.connects.store(true, Relaxed);
            }
        } else if is_tcp() {
            // (A call that does not wait and says that it is done asks what became of an earlier
            // one.)
            let waits = || fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
            if !done || waits() {
                self.stays(StayReason::Remote);
            }
        }
    }

    /// `fd` was accepted, from `other`.
    #[cold]
    pub fn accepted(&self, fd: RawFd, other: SocketAddr, nonblocking: bool) {
        // SAFETY: as above.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        if !self.is_own() {
            return;
        }
        if within_host(socket, plain(other)) || is_stand_in(socket) {
            self.begins(fd, nonblocking);
        } else {
            self.came_by_linux();
            self.stays(StayReason::Remote);
        }
    }

    /// It is used as rings are not, or other libraries use it past us.
    fn is_used_past_us(&self, fd: RawFd) -> bool {
        is_standard(fd) || self.has_options(fd)
    }

    /// A connection of this number would not be looked up.
    pub(crate) fn is_past_us(&self, fd: RawFd) -> bool {
        // SAFETY: as above.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        self.is_used_past_us(fd) || fcntl_getfl(socket).is_ok_and(signals)
    }

    /// It is Linux's, and nobody looks it up.
    fn stays_unseen(&self, fd: RawFd, reason: StayReason) {
        let older = self.table.remove(fd);
        self.was_closed(older);
        self.stays(reason);
    }

    fn begins(&self, fd: RawFd, nonblocking: bool) {
        if let Some(older) = self.find(fd)
            && let Entry::Connection(older) = &*older
            && older.flow.is_undecided()
        {
            // Connected in several calls.
            older.flow.set_nonblocking(nonblocking);
            return;
        }
        if let Some(reason) = self.why_stopped() {
            return self.stays(reason);
        }
        if self.is_used_past_us(fd) {
            return self.stays_unseen(fd, StayReason::Used);
        }
        let Some(context) = self.context_if_room() else {
            return self.stays_unseen(fd, StayReason::NoMemory);
        };
        let connection = Connection::new(context.flow(fd, nonblocking), 1);
        let older = self.table.put(fd, Entry::Connection(Arc::new(connection)));
        // It was closed past us.
        self.was_closed(older);
    }
}
