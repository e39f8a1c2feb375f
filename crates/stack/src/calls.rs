//! The program's own calls as values: which of libc's functions it called, and with what beside the
//! descriptor. An endpoint is handed one, and makes it as it is or with other pieces.
//!
//! unsafe: reads the program's structures.

use crate::buffers::{IovList, header, take};
use core::ffi::{c_int, c_void};
use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t};
use uncopy_process::process::Process;

/// A call that brings bytes.
#[expect(missing_docs, reason = "fields have the names of the man pages' arguments")]
#[derive(Clone, Copy, Debug)]
pub enum InputCall {
    /// `read(2)`.
    Read { buf: *mut c_void, n: size_t },
    /// `readv(2)`. (A negative count is a huge one.)
    Readv { iov: *const iovec, count: c_int },
    /// `pread(2)`.
    Pread { buf: *mut c_void, n: size_t, at: off_t },
    /// `preadv(2)`.
    Preadv { iov: *const iovec, count: c_int, at: off_t },
    /// `preadv2(2)`.
    Preadv2 { iov: *const iovec, count: c_int, at: off_t, flags: c_int },
    /// `recv(2)`.
    Recv { buf: *mut c_void, n: size_t, flags: c_int },
    /// `recvfrom(2)`.
    Recvfrom { buf: *mut c_void, n: size_t, flags: c_int, addr: *mut sockaddr, len: *mut socklen_t },
    /// `recvmsg(2)`, with the header as it was read; `None`: it was not.
    Recvmsg { msg: *mut msghdr, header: Option<msghdr>, flags: c_int },
}

/// A call that takes bytes.
#[expect(missing_docs, reason = "fields have the names of the man pages' arguments")]
#[derive(Clone, Copy, Debug)]
pub enum OutputCall {
    /// `write(2)`.
    Write { buf: *const c_void, n: size_t },
    /// `writev(2)`.
    Writev { iov: *const iovec, count: c_int },
    /// `pwrite(2)`.
    Pwrite { buf: *const c_void, n: size_t, at: off_t },
    /// `pwritev(2)`.
    Pwritev { iov: *const iovec, count: c_int, at: off_t },
    /// `pwritev2(2)`.
    Pwritev2 { iov: *const iovec, count: c_int, at: off_t, flags: c_int },
    /// `send(2)`.
    Send { buf: *const c_void, n: size_t, flags: c_int },
    /// `sendto(2)`.
    Sendto { buf: *const c_void, n: size_t, flags: c_int, addr: *const sockaddr, len: socklen_t },
    /// `sendmsg(2)`, with the header as it was read; `None`: it was not.
    Sendmsg { msg: *const msghdr, header: Option<msghdr>, flags: c_int },
}

/// The buffers of a call, as it names them.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// One buffer: its address and length.
    One(usize, usize),
    /// A list.
    List(IovList),
    /// None that are looked at: the call is made as it is.
    Unseen,
}

/// Flags that change what is written to the buffer, or where the data comes from.
pub const UNUSUAL: c_int = libc::MSG_TRUNC | libc::MSG_ERRQUEUE | libc::MSG_OOB;

impl InputCall {
    /// `recvmsg(2)`. The header is read where anything can be tracked, and the flags are usual.
    ///
    /// # Safety
    /// It is the program's, of a call that it makes.
    #[inline]
    pub unsafe fn recvmsg(process: &'static Process, msg: *mut msghdr, flags: c_int) -> Self {
        // SAFETY: the caller's promise.
        let header = if flags & UNUSUAL == 0 { unsafe { header(process, msg) } } else { None };
        Self::Recvmsg { msg, header, flags }
    }

    /// Its buffers.
    #[inline]
    pub fn named(&self) -> Named {
        match *self {
            Self::Read { buf, n } | Self::Pread { buf, n, .. } => Named::One(buf as usize, n),
            Self::Readv { iov, count }
            | Self::Preadv { iov, count, .. }
            | Self::Preadv2 { iov, count, .. } => Named::List(IovList::new(iov, count)),
            Self::Recv { flags, .. } | Self::Recvfrom { flags, .. } if flags & UNUSUAL != 0 => {
                Named::Unseen
            }
            Self::Recv { buf, n, .. } => Named::One(buf as usize, n),
            Self::Recvfrom { addr, buf, n, .. } if addr.is_null() => Named::One(buf as usize, n),
            // SAFETY: the program's own argument.
            Self::Recvfrom { buf, n, len, .. } => match unsafe { take(len) } {
                Some(_) => Named::One(buf as usize, n),
                None => Named::Unseen,
            },
            Self::Recvmsg { header, .. } => {
                header.map_or(Named::Unseen, |h| Named::List(IovList::of(&h)))
            }
        }
    }
}

impl OutputCall {
    /// `sendmsg(2)`. The header is read where anything can be tracked.
    ///
    /// # Safety
    /// It is the program's, of a call that it makes.
    #[inline]
    pub unsafe fn sendmsg(process: &'static Process, msg: *const msghdr, flags: c_int) -> Self {
        // SAFETY: the caller's promise.
        Self::Sendmsg { msg, header: unsafe { header(process, msg) }, flags }
    }

    /// Its buffers.
    #[inline]
    pub fn named(&self) -> Named {
        match *self {
            Self::Write { buf, n }
            | Self::Pwrite { buf, n, .. }
            | Self::Send { buf, n, .. }
            | Self::Sendto { buf, n, .. } => Named::One(buf as usize, n),
            Self::Writev { iov, count }
            | Self::Pwritev { iov, count, .. }
            | Self::Pwritev2 { iov, count, .. } => Named::List(IovList::new(iov, count)),
            Self::Sendmsg { header, .. } => {
                header.map_or(Named::Unseen, |h| Named::List(IovList::of(&h)))
            }
        }
    }

    /// Its flags, where they are those of `send(2)`.
    #[inline]
    pub fn flags(&self) -> c_int {
        match *self {
            Self::Send { flags, .. } | Self::Sendto { flags, .. } | Self::Sendmsg { flags, .. } => {
                flags
            }
            _ => 0,
        }
    }
}
