//! Sockets that are added to a set before they connect, as nginx and asio do: a set has to know of
//! a connection what was said of its socket.
//!
//! unsafe: descriptors by their numbers.

use crate::tcp::Tcp;
use core::sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;
use rustix::net::{getpeername, ipproto, sockopt};
use std::os::fd::{BorrowedFd, RawFd};
use uncopy_tcp_socket::StayReason;
use uncopy_tcp_socket::set::Event;

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
            self.early.any.store(true, Relaxed);
            self.early.with(|said| said.insert(fd, set, event));
        } else {
            self.changed_early(set, fd, None);
        }
    }

    /// It was changed there (`None`: removed).
    pub(crate) fn changed_early(&self, set: RawFd, fd: RawFd, event: Option<Event>) {
        if self.early.is_any() {
            self.early.with(|said| match event {
                Some(event) => said.of.get_mut(&(fd, set)).map(|said| *said = event),
                None => said.remove(fd, set).map(drop),
            });
        }
    }

    /// The socket connects: the sets that it is in know of it from now on.
    pub(crate) fn tell_sets_of(&self, fd: RawFd) {
        let of: Vec<(RawFd, Event)> = self.early.with(|said| {
            let all = said.sets_of(fd..=fd).into_iter();
            all.filter_map(|(fd, set)| Some((set, said.remove(fd, set)?))).collect()
        });
        let Some(connection) = self.connection(fd) else { return };
        let unknown = |&(set, event): &(RawFd, Event)| match self.set_with(set) {
            // (It is not there: closed since, or another file's number.)
            Ok(set) => !matches!(
                set.adopt(fd, &connection.flow, event),
                Ok(()) | Err(Errno::NOENT | Errno::BADF)
            ),
            // (Any other: that number is no set.)
            Err(error) => matches!(error, Errno::NOMEM | Errno::NOSPC),
        };
        if of.iter().filter(|of| unknown(of)).count() > 0 {
            // The kernel tells of it there, and nobody would of a ring.
            connection.flow.leave_to_linux(StayReason::Used);
        }
    }
}
