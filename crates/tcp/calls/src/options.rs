//! Options that ask for what rings do not have: the fewest bytes to be woken for, marks beside the data. A connection for which one is set is Linux's from then on; one that
//! inherits it from its listener, or has it before it connects, is so from the beginning.
//!
//! unsafe: `getsockopt` for options that rustix does not know.

use crate::tcp::Tcp;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::RawFd;

/// Level, name, and the value as it comes. (Newer ones by number: linux/asm-generic/socket.h, linux/tcp.h.)
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

/// Keys to sign segments with: TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY. Which sockets have some the kernel does not say.
const KEYS: [c_int; 3] = [14, 32, 38];

impl Tcp {
    /// The program has set an option of a socket's to `value`, whatever it is.
    pub fn option_set(&self, fd: RawFd, level: c_int, name: c_int, value: impl FnOnce() -> c_int) {
        let known = OPTIONS.iter().find(|(of, option, _)| (*of, *option) == (level, name));
        if let Some((.., usual)) = known
            && value() != *usual
        {
            self.options.store(true, Relaxed);
            self.give_to_linux(fd);
        }
        if level == libc::IPPROTO_TCP && KEYS.contains(&name) {
            self.signs.store(true, Relaxed);
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
