//! Connections over the loopback device are not paced where that stands in the way: where BBR would
//! be their congestion control, Reno is.
//!
//! BBR arms a timer for each segment that comes before its time. Within a host the sender is as
//! fast as memory, so nearly every segment does; sending by reference makes it faster still, and
//! the timers cost more than the copies did (1 MB values of memcached, redis, varnish gain 1.6 to
//! 2.8 with Reno and nothing with BBR). There is no network between the two ends whose congestion
//! could be controlled. It is done before the connection begins: what BBR has begun the kernel
//! paces for good
//! (`sk_pacing_status` never goes back). A listener hands its own to what it accepts; so only one
//! that is bound to the loopback device's addresses is looked at, which no other host can reach.
//!
//! Only in programs that would send by reference, which their first such send over a paced
//! connection shows: while it waits BBR makes one segment of several sends, so small ones are
//! cheaper with it (PostgreSQL sends 1 MB in pieces of 8 KB, and takes a tenth less processor time
//! than with Reno).
//!
//! unsafe: asks the kernel about a descriptor of the program's, and sets it.

use crate::ask::ask;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::fd::BorrowedFd;
use rustix::net::{SocketAddrAny, getsockname};
use uncopy_kernel::call::syscall6;

/// Listeners have descriptors below this: servers make them first.
const LISTENERS: i32 = 1024;

/// Whether pacing stands in the way of this program.
#[derive(Debug)]
pub(crate) struct Pacing {
    met: AtomicBool,
}

impl Pacing {
    /// Not so far.
    pub(crate) const fn new() -> Self {
        Self { met: AtomicBool::new(false) }
    }

    /// A send that was to go by reference met it: what is accepted and connected from now on is not
    /// paced.
    #[cold]
    pub(crate) fn meet(&self) {
        if !self.met.swap(true, Relaxed) {
            (0..LISTENERS).filter(|fd| listens(*fd)).for_each(|fd| self.before_listen(fd));
        }
    }

    /// Before the program listens with `fd`, or goes on doing so.
    pub(crate) fn before_listen(&self, fd: i32) {
        if !self.met.load(Relaxed) || fd < 0 {
            return;
        }
        // SAFETY: borrowed for one call, which answers EBADF where nothing is open.
        let own = getsockname(unsafe { BorrowedFd::borrow_raw(fd) });
        if let Some(own) = address(own.ok()) {
            self.before_connect(fd, own);
        }
    }

    /// Before the program connects `fd` to `address`.
    pub(crate) fn before_connect(&self, fd: i32, address: IpAddr) {
        if self.met.load(Relaxed) && is_loopback(address) && is_bbrs(fd) {
            let name = b"reno";
            let at = name.as_ptr() as usize;
            let (call, level, option) = (libc::SYS_setsockopt, libc::SOL_TCP, libc::TCP_CONGESTION);
            // SAFETY: the kernel reads the name. Where it refuses, all is as it was.
            unsafe {
                syscall6(
                    call as usize,
                    [fd as usize, level as usize, option as usize, at, name.len(), 0],
                )
            };
        }
    }
}

fn listens(fd: i32) -> bool {
    ask(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN).is_some_and(|(yes, _)| yes == 1)
}

/// The Internet address in what the kernel says.
pub(crate) fn address(socket: Option<SocketAddrAny>) -> Option<IpAddr> {
    SocketAddr::try_from(socket?).ok().map(|socket| socket.ip())
}

/// Whether it is of 127.0.0.0/8, ::1, or the first written as IPv6.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether BBR controls its congestion, of any version.
pub(crate) fn is_bbrs(fd: i32) -> bool {
    ask(fd, libc::SOL_TCP, libc::TCP_CONGESTION)
        .is_some_and(|(name, _)| name.to_le_bytes().starts_with(b"bbr"))
}
