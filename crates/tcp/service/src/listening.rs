//! The work of a service that has a wire to other hosts for programs.

use crate::diag::DiagSocket;
use crate::linger::Lent;
use crate::owner::Owner;
#[cfg(doc)]
use crate::wired::Wired;
use crate::wired::Wires;
use rustix::io::Errno;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// Carries connections between this host's programs and other hosts. Asked by several threads.
pub trait Listening: Send + Sync {
    /// A program of this owner has registered that it listens here, and Linux finds this.
    fn listens(&self, program: (u64, Owner), at: SocketAddrV4, found: &DiagSocket);
    /// A program's listener at this address is Linux's from now on. A byte is to come by `answer`
    /// once that is so.
    fn withdraws(&self, at: SocketAddrV4, answer: Lent);
    /// This program has gone: it may have been the last that listens somewhere.
    fn gone(&self, program: u64);
    /// Frames of connections with this end, as far as it matters, are written to this file, for the
    /// program of this number.
    ///
    /// # Errors
    /// EBUSY: somebody else's are already. Those of the file.
    fn trace(
        &self,
        program: u64,
        end: (Option<Ipv4Addr>, Option<u16>),
        file: OwnedFd,
    ) -> Result<(), Errno>;
    /// No more, if it was this one who asked. How many were.
    ///
    /// # Errors
    /// The error that kept a frame from being written.
    fn end_trace(&self, program: u64) -> Result<u64, Errno>;
    /// The connections that it carries, and what there is to tell of each.
    fn wired(&self) -> Wires;
    /// The connection between these ends, this host's first, is to be told of by `answer`, as
    /// [`Wired::bytes`]; nothing comes, where it carries none.
    fn info(&self, ends: [SocketAddrV4; 2], answer: Lent);
    /// It carries connections that programs open.
    fn carries_connects(&self) -> bool;
    /// A program of this owner is about to connect this socket. A byte is to come by `answer` if
    /// this one carries the connection.
    fn connects(&self, program: (u64, Owner), to: SocketAddrV4, socket: Lent, answer: OwnedFd);
    /// The program has closed such a socket, of this cookie, before it was connected.
    fn closes(&self, program: u64, cookie: u64);
}
