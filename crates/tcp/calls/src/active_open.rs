//! Sockets that connect to other hosts: whether the service carries them is asked before Linux
//! connects them.
//!
//! unsafe: descriptors by their numbers.

use crate::entry::Entry;
use crate::tcp::Tcp;
use core::sync::atomic::Ordering::Relaxed;
use rustix::net::{SocketType, ipproto, sockopt};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::{BorrowedFd, RawFd};
use uncopy_tcp_socket::Carrier;

impl Tcp {
    /// `fd` is about to connect to `other`. True: the service carries that, if Linux begins to
    /// connect it.
    #[cold]
    pub fn connects(&self, fd: RawFd, other: SocketAddr) -> bool {
        let IpAddr::V4(ip) = other.ip().to_canonical() else { return false };
        let nobody =
            ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast();
        if nobody || other.port() == 0 || self.is_stopped() || !self.is_own() {
            return false;
        }
        // (Its segments may have to be signed.)
        if self.signs.load(Relaxed) {
            return false;
        }
        if self.is_nobody_there() {
            return false;
        }
        // (A program asks by a second call what became of the first.)
        if self.find(fd).is_some_and(|what| is_undecided(&what)) {
            return false;
        }
        // SAFETY: the program's, or a number for the kernel, which checks it; only asked.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let is_tcp = sockopt::socket_type(socket) == Ok(SocketType::STREAM)
            && sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP));
        // (The service could not be told when it is closed.)
        if fd < 0 || !is_tcp || self.is_past_us(fd) {
            return false;
        }
        // (Where nobody is there, nothing is made for it.)
        let somebody = self.known_context().is_some()
            || self.settings().is_some_and(|settings| settings.service.is_running());
        if !somebody {
            self.nobody_is_there();
            return false;
        }
        let Some(context) = self.context_if_room() else { return false };
        match context.connects(socket, SocketAddrV4::new(ip, other.port())) {
            Carrier::Service => true,
            Carrier::Linux => false,
            Carrier::Nobody => {
                self.nobody_is_there();
                false
            }
        }
    }

    /// There was no service with a wire a moment ago, or none that answers.
    pub(crate) fn is_nobody_there(&self) -> bool {
        self.no_wire.is_recent()
    }

    /// There is none. (Since now: it may have been waited for.)
    pub(crate) fn nobody_is_there(&self) {
        self.no_wire.is_done();
    }

    /// Linux has not connected `fd`, which the service would have carried.
    #[cold]
    pub fn does_not_connect(&self, fd: RawFd) {
        // SAFETY: the program's; only asked.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Some(context) = self.known_context() {
            context.closes(socket);
        }
    }

    /// `fd` is about to be connected to nobody.
    #[cold]
    pub fn dissolves(&self, fd: RawFd) {
        if let Some(connection) = self.connection(fd) {
            connection.says_that_it_closes();
        }
        self.give_to_linux(fd);
    }
}

fn is_undecided(what: &Entry) -> bool {
    matches!(what, Entry::Connection(connection) if connection.flow.is_undecided())
}
