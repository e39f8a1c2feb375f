//! What a descriptor of the program's is: whether it takes pages.
//!
//! unsafe: asks the kernel about a descriptor, into variables of ours.

use super::Pacing;
use super::pipes::status;
use crate::critical::{syscall4, syscall6};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::FileType;

/// What takes pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TCP socket.
    Tcp,
    /// One that paces itself by timers (BBR) though it leaves no host. The faster its sender, the more timers: where copies are
    /// cheap, these cost more than the copies did.
    PacedTcp,
    /// A UNIX stream socket.
    Unix,
    /// A pipe.
    Pipe,
}

/// What `fd` is, if it takes pages: looked up again at every call, because numbers are closed and opened past
/// us; what costs more is remembered with the socket's own number.
pub fn kind(fd: i32) -> Option<Kind> {
    const REMEMBERED: usize = 1024;
    static SOCKETS: [AtomicU64; REMEMBERED] = [const { AtomicU64::new(0) }; REMEMBERED];
    let (file, inode) = status(fd)?;
    match file {
        FileType::Fifo => Some(Kind::Pipe),
        FileType::Socket => {
            let known = &SOCKETS[fd as usize % REMEMBERED];
            let mut value = known.load(Ordering::Relaxed);
            if value >> 2 != inode {
                let what = match takes_pages(fd) {
                    Some(Kind::Tcp) => 1,
                    Some(Kind::Unix) => 2,
                    Some(Kind::PacedTcp) => 3,
                    _ => 0,
                };
                value = inode << 2 | what;
                known.store(value, Ordering::Relaxed);
            }
            [None, Some(Kind::Tcp), Some(Kind::Unix), Some(Kind::PacedTcp)][value as usize & 3]
        }
        _ => None,
    }
}

/// Whether the socket is a stream over TCP (not MPTCP, no TLS in the kernel) or UNIX.
pub(super) fn takes_pages(fd: i32) -> Option<Kind> {
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
            match Pacing::allowed() {
                Pacing::Ignored => Some(Kind::Tcp),
                _ if !paced_within_host(fd) => Some(Kind::Tcp),
                Pacing::Priced => Some(Kind::PacedTcp),
                Pacing::Shunned => None,
            }
        }
        _ => None,
    }
}

/// Whether the connection paces itself by timers (BBR, without a queue that does so) though it leaves no host.
pub(super) fn paced_within_host(fd: i32) -> bool {
    let name = ask(fd, libc::SOL_TCP, libc::TCP_CONGESTION).map(|(v, _)| v.to_le_bytes());
    if name.is_none_or(|n| !n.starts_with(b"bbr")) {
        return false;
    }
    let address = |call: libc::c_long| {
        let (mut name, mut len) = ([0u8; 28], 28u32);
        let (to, length) = (name.as_mut_ptr() as usize, core::ptr::from_mut(&mut len) as usize);
        // SAFETY: the kernel writes at most the 28 bytes of a sockaddr_in6, and how many.
        let r = unsafe { syscall4(call as usize, fd as usize, to, length, 0) };
        // Family, then (behind the port) the address.
        (r == 0).then(|| if len > 16 { name[8..24].to_vec() } else { name[4..8].to_vec() })
    };
    let (ours, theirs) = (address(libc::SYS_getsockname), address(libc::SYS_getpeername));
    let loopback = |a: &Vec<u8>| a.len() == 4 && a[0] == 127;
    ours == theirs || theirs.as_ref().is_some_and(loopback)
}

/// An option of a socket, and its length.
pub(super) fn ask(fd: i32, level: c_int, name: c_int) -> Option<(c_int, u32)> {
    let (mut value, mut len) = (0u32, 4u32);
    let to = core::ptr::from_mut(&mut value) as usize;
    let length = core::ptr::from_mut(&mut len) as usize;
    let call = libc::SYS_getsockopt as usize;
    // SAFETY: the kernel writes at most four bytes, and how many.
    let r = unsafe { syscall6(call, [fd as usize, level as usize, name as usize, to, length, 0]) };
    (r == 0).then_some((value as c_int, len))
}

pub(super) fn status_flags(fd: i32) -> c_int {
    // SAFETY: a question.
    unsafe {
        syscall4(libc::SYS_fcntl as usize, fd as usize, libc::F_GETFL as usize, 0, 0) as c_int
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connection_within_the_host_is_paced_where_bbr_is_its_congestion_control() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        let controlled_by = |name: &str| {
            let (at, len) = (name.as_ptr().cast(), name.len() as u32);
            // SAFETY: the name is as long as is said.
            unsafe { libc::setsockopt(fd, libc::SOL_TCP, libc::TCP_CONGESTION, at, len) == 0 }
        };
        assert!(controlled_by("reno") && !paced_within_host(fd));
        // (A kernel may have no BBR.)
        if controlled_by("bbr") {
            assert!(paced_within_host(fd));
            assert_eq!(takes_pages(fd), None, "unless it is allowed");
        }
    }
}
