//! Linux' calls, by libc: in a program that has a library preloaded, they are that library's.
//!
//! unsafe: system calls by their C names.

use libc::{c_int, sockaddr, socklen_t};
use rustix::io::Errno;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;
use uncopy_tcp_socket::set::Event;

fn error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn result(of: c_int) -> Result<c_int, Errno> {
    if of < 0 { Err(error()) } else { Ok(of) }
}

fn descriptor(of: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: a new one, which nobody else has.
    result(of).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bytes(of: isize) -> Result<usize, Errno> {
    usize::try_from(of).map_err(|_| error())
}

/// A new set.
pub(crate) fn epoll_create() -> Result<OwnedFd, Errno> {
    // SAFETY: no pointers.
    descriptor(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// EPOLL_CTL_ADD, EPOLL_CTL_MOD.
pub(crate) fn epoll_ctl(
    set: &OwnedFd,
    operation: c_int,
    fd: RawFd,
    event: Event,
) -> Result<(), Errno> {
    let mut event = libc::epoll_event { events: event.events, u64: event.data };
    // SAFETY: reads the event.
    result(unsafe { libc::epoll_ctl(set.as_raw_fd(), operation, fd, &raw mut event) }).map(|_| ())
}

/// Those that have something. None waits without end.
pub(crate) fn epoll_wait(
    set: &OwnedFd,
    events: &mut [Event],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    let mut got = [libc::epoll_event { events: 0, u64: 0 }; 128];
    let room = events.len().min(got.len()) as c_int;
    // (Rather a millisecond too late than a loop until it is time.)
    let timeout = timeout.map_or(-1, |timeout| {
        timeout.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX)
    });
    // SAFETY: fills at most so many.
    let count =
        result(unsafe { libc::epoll_wait(set.as_raw_fd(), got.as_mut_ptr(), room, timeout) })?;
    for (event, got) in events.iter_mut().zip(&got[..count as usize]) {
        *event = Event { events: got.events, data: got.u64 };
    }
    Ok(count as usize)
}

/// Sends what fits.
pub(crate) fn send(fd: RawFd, from: &[u8]) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: reads them.
    bytes(unsafe { libc::send(fd, from.as_ptr().cast(), from.len(), flags) })
}

/// Receives what is there.
pub(crate) fn receive(fd: RawFd, to: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: fills them.
    bytes(unsafe { libc::recv(fd, to.as_mut_ptr().cast(), to.len(), libc::MSG_DONTWAIT) })
}

/// Sends no more.
pub(crate) fn shutdown(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: no pointers.
    result(unsafe { libc::shutdown(fd, libc::SHUT_WR) }).map(|_| ())
}

const KIND: c_int = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

fn socket(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers.
    descriptor(unsafe { libc::socket(family, KIND, 0) })
}

fn switch_on(fd: &OwnedFd, level: c_int, option: c_int) -> Result<(), Errno> {
    let on: c_int = 1;
    let length = size_of::<c_int>() as socklen_t;
    // SAFETY: reads an int.
    result(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const on).cast(), length)
    })
    .map(|_| ())
}

/// Small messages go at once.
pub(crate) fn no_delay(fd: &OwnedFd) -> Result<(), Errno> {
    switch_on(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)
}

/// An address as the kernel wants it.
fn with_address<R>(
    address: &SocketAddr,
    use_it: impl FnOnce(*const sockaddr, socklen_t) -> R,
) -> R {
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            use_it((&raw const raw).cast(), mem::size_of_val(&raw) as socklen_t)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            use_it((&raw const raw).cast(), mem::size_of_val(&raw) as socklen_t)
        }
    }
}

/// A socket that listens. `shared`: others of this user may listen at the same port, and
/// connections are shared out among them.
pub(crate) fn listen(address: &SocketAddr, backlog: i32, shared: bool) -> Result<OwnedFd, Errno> {
    let fd = socket(address)?;
    switch_on(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    if shared {
        switch_on(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT)?;
    }
    let number = fd.as_raw_fd();
    // SAFETY: reads the address.
    with_address(address, |at, length| result(unsafe { libc::bind(number, at, length) }))?;
    // SAFETY: no pointers.
    result(unsafe { libc::listen(number, backlog) })?;
    Ok(fd)
}

/// The next connection.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let (nobody, flags) = (std::ptr::null_mut(), libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    // SAFETY: nothing is to be filled.
    descriptor(unsafe { libc::accept4(listener.as_raw_fd(), nobody, std::ptr::null_mut(), flags) })
}

/// A connection that is begun; true: it is there already.
pub(crate) fn connect(address: &SocketAddr) -> Result<(OwnedFd, bool), Errno> {
    let fd = socket(address)?;
    let number = fd.as_raw_fd();
    // SAFETY: reads the address.
    match with_address(address, |at, length| result(unsafe { libc::connect(number, at, length) })) {
        Ok(_) => Ok((fd, true)),
        Err(Errno::INPROGRESS) => Ok((fd, false)),
        Err(error) => Err(error),
    }
}

/// The result, or why it failed since.
pub(crate) fn pending_error(fd: RawFd) -> Option<Errno> {
    let mut error: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    let to = (&raw mut error).cast();
    // SAFETY: fills an int.
    let got = result(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, to, &raw mut length)
    });
    match got {
        Err(error) => Some(error),
        Ok(_) if error != 0 => Some(Errno::from_raw_os_error(error)),
        Ok(_) => None,
    }
}

/// Where a listener listens.
pub(crate) fn local_address(fd: BorrowedFd) -> Result<SocketAddr, Errno> {
    rustix::net::getsockname(fd)?.try_into()
}
