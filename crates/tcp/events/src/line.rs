//! A connection's bytes, over either stack.
//!
//! unsafe: buffers that are handed to the library as C's.

use crate::calls;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use uncopy_tcp_socket::lent::Lent;
use uncopy_tcp_socket::{Context as Library, Flow, InRing, iovec};

/// See above. Its end is the connection's.
#[derive(Debug)]
pub struct Line {
    socket: Option<OwnedFd>,
    number: RawFd,
    flow: Option<Arc<Flow>>,
}

impl Line {
    /// Of a socket that was just connected or accepted.
    pub fn new(socket: OwnedFd, library: Option<&Arc<Library>>) -> Self {
        let number = socket.as_raw_fd();
        let flow = library.map(|library| library.flow(number, true));
        Self { socket: Some(socket), number, flow }
    }

    /// The library's connection, where it is one of the library's.
    pub fn flow(&self) -> Option<&Arc<Flow>> {
        self.flow.as_ref()
    }

    /// Its descriptor's number.
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is open until it is dropped").as_fd()
    }

    /// Receives what is there. 0: the other end sends no more.
    ///
    /// # Errors
    /// Those of recv(2). EAGAIN: nothing is there.
    pub fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let Some(flow) = &self.flow else { return calls::receive(self.number, to) };
        // A connection that is used a few times is registered.
        let _way = flow.way(false);
        let part = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        // SAFETY: it is as long as that.
        unsafe { flow.receive(&[part], libc::MSG_DONTWAIT) }
    }

    /// Up to so many further bytes of the ring are lent. None: nothing is the ring's.
    pub fn lend(&self, most: u32) -> Lent {
        let Some(flow) = &self.flow else { return Lent::Elsewhere };
        flow.lend(most)
    }

    /// Where bytes of what is lent lie, `skip` of them left out.
    pub fn lent(&self, skip: u32, bytes: u32) -> Option<[(*const u8, usize); 2]> {
        self.flow.as_ref()?.lent(skip, bytes)
    }

    /// Copies bytes of what is lent, `skip` of them left out. False: there are not so many.
    pub fn copy_lent(&self, skip: u32, to: &mut [u8]) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.copy_lent(skip, to))
    }

    /// The first so many bytes of what is lent are received.
    pub fn receives_lent(&self, bytes: u32) {
        if let Some(flow) = &self.flow {
            flow.receives_lent(bytes);
        }
    }

    /// Sends what fits.
    ///
    /// # Errors
    /// Those of send(2). EAGAIN: nothing fits.
    pub fn send(&self, from: &[u8]) -> Result<usize, Errno> {
        let Some(flow) = &self.flow else { return calls::send(self.number, from) };
        let _way = flow.way(true);
        let part = iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        // SAFETY: it is only read.
        unsafe { flow.send(&[part], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
    }

    /// Sends no more.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub fn finish(&self) -> Result<(), Errno> {
        match &self.flow {
            Some(flow) => flow.shutdown(Shutdown::Write),
            None => calls::shutdown(self.number),
        }
    }

    /// Whether the next bytes go into the program's ring.
    pub fn sends_by_ring(&self) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.sends_by_ring())
    }

    /// The bytes that lie in the program's ring and were not received. None: what is sent next goes
    /// by Linux.
    ///
    /// # Errors
    /// ECONNRESET: the program has written nonsense.
    pub fn in_ring(&self) -> Result<Option<InRing>, Errno> {
        self.flow.as_ref().map_or(Ok(None), |flow| flow.in_ring())
    }

    /// Its bytes go through shared memory.
    pub fn is_by_ring(&self) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.is_shared())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(flow) = &self.flow {
            flow.closes(self.number);
        }
        drop(self.socket.take());
        if let Some(flow) = &self.flow {
            flow.closed();
        }
    }
}
