//! The kind of a descriptor of the program's: whether it takes pages.
//!
//! unsafe: names the program's descriptors to the kernel.

use crate::ask::{ask, status};
use crate::pacing::{Pacing, address, is_bbrs, is_loopback};
use core::sync::atomic::{AtomicU64, Ordering};
use libc::iovec;
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use rustix::net::{getpeername, getsockname};
use uncopy_ranges::span::PAGE;

/// The kinds of descriptor that take pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TCP socket.
    Tcp,
    /// A UNIX stream socket.
    Unix,
    /// A pipe.
    Pipe,
}

/// Whether these pieces may go by reference to what is of this kind. Of a pipe, its reader, and how
/// much fits, can tell how many pages a write took: so only whole ones go there.
pub fn fits(kind: Kind, pieces: &[iovec]) -> bool {
    let whole = |p: &iovec| (p.iov_base as usize | p.iov_len).is_multiple_of(PAGE);
    kind != Kind::Pipe || pieces.iter().all(whole)
}

const REMEMBERED: usize = 1024;

/// The sockets that were looked at, by their descriptors: what a socket is is remembered with its
/// own number.
#[derive(Debug)]
pub(crate) struct Sockets {
    known: [AtomicU64; REMEMBERED],
    pub(crate) pacing: Pacing,
}

impl Sockets {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { known: [const { AtomicU64::new(0) }; REMEMBERED], pacing: Pacing::new() }
    }

    /// The kind of `fd`, if it takes pages: looked up again at every call, because numbers are
    /// closed and opened past us; what costs more is remembered.
    pub(crate) fn kind(&self, fd: i32) -> Option<Kind> {
        let (file, inode) = status(fd)?;
        match file {
            FileType::Fifo => Some(Kind::Pipe),
            FileType::Socket => {
                let known = &self.known[fd as usize % REMEMBERED];
                let mut value = known.load(Ordering::Relaxed);
                if value >> 2 != inode {
                    let what = match self.takes_pages(fd) {
                        Some(Kind::Tcp) => 1,
                        Some(Kind::Unix) => 2,
                        _ => 0,
                    };
                    value = inode << 2 | what;
                    known.store(value, Ordering::Relaxed);
                }
                [None, Some(Kind::Tcp), Some(Kind::Unix), None][value as usize & 3]
            }
            _ => None,
        }
    }

    /// Whether the socket is a stream over TCP (not MPTCP, no TLS in the kernel) or UNIX.
    fn takes_pages(&self, fd: i32) -> Option<Kind> {
        let is = |name, what| ask(fd, libc::SOL_SOCKET, name).is_some_and(|(v, _)| v == what);
        if !is(libc::SO_TYPE, libc::SOCK_STREAM) {
            return None;
        }
        match ask(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
            Some((libc::AF_UNIX, _)) => Some(Kind::Unix),
            Some((libc::AF_INET | libc::AF_INET6, _)) => {
                let free = ask(fd, libc::SOL_TCP, libc::TCP_ULP).is_some_and(|(_, len)| len == 0);
                if !is(libc::SO_PROTOCOL, libc::IPPROTO_TCP) || !free {
                    return None;
                }
                if paced_within_host(fd) {
                    self.pacing.meet();
                    return None;
                }
                Some(Kind::Tcp)
            }
            _ => None,
        }
    }
}

/// Whether the connection paces itself by timers (BBR, without a queue that does so) though it
/// leaves no host. The faster its sender is, the more timers it meets; these cost more than the
/// copies did. (Another congestion control does not help: what BBR began is paced for good.)
fn paced_within_host(fd: i32) -> bool {
    if !is_bbrs(fd) {
        return false;
    }
    // SAFETY: borrowed for two calls, which answer EBADF where nothing is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let ours = address(getsockname(socket).ok());
    let theirs = address(getpeername(socket).ok().flatten());
    ours == theirs || theirs.is_some_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connection_within_the_host_that_bbr_paces_takes_no_pages() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        let controlled_by = |name: &str| {
            let (at, len) = (name.as_ptr().cast(), name.len() as u32);
            // SAFETY: the name is as long as is said.
            unsafe { libc::setsockopt(fd, libc::SOL_TCP, libc::TCP_CONGESTION, at, len) == 0 }
        };
        assert!(controlled_by("reno"));
        assert_eq!(Sockets::new().takes_pages(fd), Some(Kind::Tcp));
        // (A kernel may have no BBR.)
        if controlled_by("bbr") {
            assert_eq!(Sockets::new().takes_pages(fd), None);
        }
    }
}
