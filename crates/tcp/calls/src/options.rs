//! Options that ask for what rings do not have: the fewest bytes to be woken for, marks beside the
//! data. A connection for which one is set is Linux's from then on; one that inherits it from its
//! listener, or has it before it connects, is so from the beginning. And what the kernel alone
//! heeds: filters, keys. A listener for other hosts that gets one is withdrawn from the service.
//!
//! unsafe: `getsockopt` for options that rustix does not know; descriptors by their numbers.

use crate::tcp::Tcp;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::{BorrowedFd, RawFd};
use uncopy_tcp_socket::StayReason;

/// Level, name, and the value as it comes. (Newer ones by number: linux/asm-generic/socket.h,
/// linux/tcp.h.)
const OPTIONS: [(c_int, c_int, c_int); 9] = [
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF, -1),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP, 0),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0),
    // SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_NEW
    (libc::SOL_SOCKET, 63, 0),
    (libc::SOL_SOCKET, 64, 0),
    (libc::SOL_SOCKET, 65, 0),
    // TCP_INQ
    (libc::IPPROTO_TCP, 36, 0),
];

/// Keys to sign segments with: TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY. Which sockets have some
/// the kernel does not say.
const KEYS: [c_int; 3] = [14, 32, 38];

fn is_key(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_TCP && KEYS.contains(&name)
}

/// It is a filter, of which a socket has one.
fn is_filter(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF].contains(&name)
}

impl Tcp {
    /// The program is about to set an option of a socket's which the kernel alone heeds: a protocol
    /// on top (TLS), a filter, a key. (Before: what has come already is not filtered, and nothing
    /// may be answered unsigned.) False: that cannot be, because what the socket carries cannot be
    /// made Linux's.
    pub fn option_may_be_set(&self, fd: RawFd, level: c_int, name: c_int) -> bool {
        let (key, filter) = (is_key(level, name), is_filter(level, name));
        if (key || filter) && !self.withdraws(fd) {
            return false;
        }
        if key {
            // (The service sends what it does, and signs nothing.)
            // SAFETY: the program's; only asked.
            return !uncopy_tcp_socket::is_stand_in(unsafe { BorrowedFd::borrow_raw(fd) });
        }
        let is_linuxs = filter || (level, name) == (libc::IPPROTO_TCP, libc::TCP_ULP);
        let reason = if filter { StayReason::Filtered } else { StayReason::Used };
        !self.in_use() || !is_linuxs || self.give_to_linux_for(fd, reason)
    }

    /// The program has set an option of a socket's to `value`, whatever it is.
    pub fn option_set(&self, fd: RawFd, level: c_int, name: c_int, value: impl Fn() -> c_int) {
        let known = OPTIONS.iter().find(|(of, option, _)| (*of, *option) == (level, name));
        if let Some((.., usual)) = known
            && value() != *usual
        {
            self.options.store(true, Relaxed);
            self.give_to_linux(fd);
        }
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY)
            && let Some(connection) = self.connection(fd)
        {
            connection.flow.sets_nodelay(value() != 0);
        }
        if is_key(level, name) {
            self.signs.store(true, Relaxed);
        }
        if is_key(level, name) || is_filter(level, name) {
            // (A thread may have registered it again meanwhile.)
            self.withdraws(fd);
        }
    }

    /// It has one of them.
    pub(crate) fn has_options(&self, fd: RawFd) -> bool {
        let is_set = |&(level, name, usual): &(c_int, c_int, c_int)| {
            let (mut value, mut length) = (usual, size_of::<c_int>() as libc::socklen_t);
            // SAFETY: writes at most `length` bytes to `value`.
            let failed = unsafe {
                libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length)
            };
            failed == 0 && value != usual
        };
        self.options.load(Relaxed) && OPTIONS.iter().any(is_set)
    }
}
