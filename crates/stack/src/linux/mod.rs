//! Linux's own sockets, pipes and files, as a stack.
//!
//! This module has what is Linux's alone: which descriptors take several pieces as one ([`on`]),
//! what alignment O_DIRECT wants, pages that go by reference through a pipe, files that are kept in
//! memory ([`mod@file`]).
//!
//! unsafe: makes the program's own calls, or the same with other pieces.

pub mod file;
pub mod on;

use self::on::{On, refused_for_pieces};
use crate::buffers::{Pieces, give, take};
use crate::calls::{InputCall, OutputCall};
use crate::stack::{Input, Lending, Lent, Output};
use core::ffi::c_int;
use libc::{MSG_MORE, MSG_NOSIGNAL, iovec, msghdr};
use uncopy_core::regions::RegionId;
use uncopy_lend::kind::{Kind, fits};
use uncopy_lend::send::{Calls, Target};
use uncopy_process::process::Process;
use uncopy_ranges::span::Span;
use uncopy_real as real;

/// Makes an input call as the program did.
///
/// # Safety
/// As the man page of the function says.
pub(crate) unsafe fn receive(fd: c_int, call: &InputCall) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match *call {
            InputCall::Read { buf, n } => real::read(fd, buf, n),
            InputCall::Readv { iov, count } => real::readv(fd, iov, count),
            InputCall::Pread { buf, n, at } => real::pread(fd, buf, n, at),
            InputCall::Preadv { iov, count, at } => real::preadv(fd, iov, count, at),
            InputCall::Preadv2 { iov, count, at, flags } => {
                real::preadv2(fd, iov, count, at, flags)
            }
            InputCall::Recv { buf, n, flags } => real::recv(fd, buf, n, flags),
            InputCall::Recvfrom { buf, n, flags, addr, len } => {
                real::recvfrom(fd, buf, n, flags, addr, len)
            }
            InputCall::Recvmsg { msg, flags, .. } => real::recvmsg(fd, msg, flags),
        }
    }
}

/// Makes it with `pieces` in place of its buffers. `None`: it cannot be made so. `told`: what it
/// tells beside its bytes could be written.
///
/// # Safety
/// As the man page of the function says; the pieces are valid for writing.
pub(crate) unsafe fn scatter(
    fd: c_int,
    call: &InputCall,
    pieces: &mut Pieces,
    told: &mut bool,
) -> Option<isize> {
    let (list, count) = (pieces.as_mut_ptr(), pieces.len());
    let one = if let [one] = pieces.as_slice() { Some(*one) } else { None };
    // SAFETY: the caller's promise; everything of a header but the buffers is the program's, and is
    // given back to it.
    unsafe {
        Some(match (*call, one) {
            (InputCall::Read { .. }, Some(p)) => real::read(fd, p.iov_base, p.iov_len),
            (InputCall::Pread { at, .. }, Some(p)) => real::pread(fd, p.iov_base, p.iov_len, at),
            (InputCall::Recv { flags, .. }, Some(p)) => {
                real::recv(fd, p.iov_base, p.iov_len, flags)
            }
            (InputCall::Recvfrom { flags, addr, len, .. }, Some(p)) => {
                real::recvfrom(fd, p.iov_base, p.iov_len, flags, addr, len)
            }
            (InputCall::Read { .. } | InputCall::Readv { .. }, _) => {
                real::readv(fd, list, count as c_int)
            }
            (InputCall::Pread { at, .. } | InputCall::Preadv { at, .. }, _) => {
                real::preadv(fd, list, count as c_int, at)
            }
            (InputCall::Preadv2 { at, flags, .. }, _) => {
                real::preadv2(fd, list, count as c_int, at, flags)
            }
            (InputCall::Recv { flags, .. }, None) => {
                let mut header: msghdr = core::mem::zeroed();
                header.msg_iov = list;
                header.msg_iovlen = count;
                real::recvmsg(fd, &mut header, flags)
            }
            (InputCall::Recvfrom { flags, addr, len, .. }, None) => {
                let mut header: msghdr = core::mem::zeroed();
                if !addr.is_null() {
                    // (Otherwise the kernel's own EFAULT or EINVAL.)
                    header.msg_namelen = take(len).filter(|n| (*n as c_int) >= 0)?;
                    header.msg_name = addr.cast();
                }
                header.msg_iov = list;
                header.msg_iovlen = count;
                let received = real::recvmsg(fd, &mut header, flags);
                if received >= 0 && !addr.is_null() {
                    *told = give(len, header.msg_namelen);
                }
                received
            }
            (InputCall::Recvmsg { msg, header, flags }, _) => {
                let known = header?;
                let mut other = known;
                other.msg_iov = list;
                other.msg_iovlen = count;
                let received = real::recvmsg(fd, &mut other, flags);
                if received >= 0 {
                    let named = known.msg_name.is_null()
                        || give(&raw mut (*msg).msg_namelen, other.msg_namelen);
                    *told = named
                        && give(&raw mut (*msg).msg_controllen, other.msg_controllen)
                        && give(&raw mut (*msg).msg_flags, other.msg_flags);
                }
                received
            }
        })
    }
}

/// Makes an output call as the program did.
///
/// # Safety
/// As the man page of the function says.
pub(crate) unsafe fn send(fd: c_int, call: &OutputCall) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match *call {
            OutputCall::Write { buf, n } => real::write(fd, buf, n),
            OutputCall::Writev { iov, count } => real::writev(fd, iov, count),
            OutputCall::Pwrite { buf, n, at } => real::pwrite(fd, buf, n, at),
            OutputCall::Pwritev { iov, count, at } => real::pwritev(fd, iov, count, at),
            OutputCall::Pwritev2 { iov, count, at, flags } => {
                real::pwritev2(fd, iov, count, at, flags)
            }
            OutputCall::Send { buf, n, flags } => real::send(fd, buf, n, flags),
            OutputCall::Sendto { buf, n, flags, addr, len } => {
                real::sendto(fd, buf, n, flags, addr, len)
            }
            OutputCall::Sendmsg { msg, flags, .. } => real::sendmsg(fd, msg, flags),
        }
    }
}

/// Makes it from `pieces`, which hold the same bytes as its buffers.
///
/// # Safety
/// As the man page of the function says; the pieces are valid for reading.
pub(crate) unsafe fn gather(fd: c_int, call: &OutputCall, pieces: &Pieces) -> isize {
    let (list, count) = (pieces.as_ptr(), pieces.len());
    let one = if let [one] = pieces.as_slice() { Some(*one) } else { None };
    // SAFETY: the caller's promise; everything of a header but the buffers is the program's.
    unsafe {
        let message = |like: msghdr, flags| {
            let mut header = like;
            header.msg_iov = list.cast_mut();
            header.msg_iovlen = count;
            real::sendmsg(fd, &header, flags)
        };
        match (*call, one) {
            (OutputCall::Write { .. }, Some(p)) => real::write(fd, p.iov_base, p.iov_len),
            (OutputCall::Pwrite { at, .. }, Some(p)) => real::pwrite(fd, p.iov_base, p.iov_len, at),
            (OutputCall::Send { flags, .. }, Some(p)) => {
                real::send(fd, p.iov_base, p.iov_len, flags)
            }
            (OutputCall::Sendto { flags, addr, len, .. }, Some(p)) => {
                real::sendto(fd, p.iov_base, p.iov_len, flags, addr, len)
            }
            (OutputCall::Write { .. } | OutputCall::Writev { .. }, _) => {
                real::writev(fd, list, count as c_int)
            }
            (OutputCall::Pwrite { at, .. } | OutputCall::Pwritev { at, .. }, _) => {
                real::pwritev(fd, list, count as c_int, at)
            }
            (OutputCall::Pwritev2 { at, flags, .. }, _) => {
                real::pwritev2(fd, list, count as c_int, at, flags)
            }
            (OutputCall::Send { flags, .. }, None) => message(core::mem::zeroed(), flags),
            (OutputCall::Sendto { flags, addr, len, .. }, None) => {
                let mut like: msghdr = core::mem::zeroed();
                like.msg_name = addr.cast_mut().cast();
                like.msg_namelen = len;
                message(like, flags)
            }
            (OutputCall::Sendmsg { header: Some(header), flags, .. }, _) => message(header, flags),
            // (Its buffers were not looked at, so nothing stands for them.)
            (OutputCall::Sendmsg { msg, header: None, flags }, _) => real::sendmsg(fd, msg, flags),
        }
    }
}

/// [`refused_for_pieces`] of an input. From a socket the message is gone where an address was
/// wrong: the plain call would take the next.
pub(crate) fn refused_input(call: &InputCall) -> bool {
    let errno = std::io::Error::last_os_error().raw_os_error();
    refused_for_pieces() && !(is_message(call) && errno == Some(libc::EFAULT))
}

/// Whether only sockets answer it, which take several pieces as one.
fn is_message(call: &InputCall) -> bool {
    matches!(call, InputCall::Recv { .. } | InputCall::Recvfrom { .. } | InputCall::Recvmsg { .. })
}

/// An input call on a descriptor of Linux'.
#[derive(Debug)]
pub struct Receive<'a> {
    process: &'static Process,
    fd: c_int,
    call: &'a InputCall,
    /// It may be answered from a kept file.
    kept: Option<file::Read>,
    told: bool,
}

impl<'a> Receive<'a> {
    /// `call`, on `fd`; `kept` tells more of it, where it may be answered from a kept file.
    #[inline]
    pub fn new(
        process: &'static Process,
        fd: c_int,
        call: &'a InputCall,
        kept: Option<file::Read>,
    ) -> Self {
        Self { process, fd, call, kept, told: true }
    }
}

impl Input for Receive<'_> {
    #[inline]
    fn as_it_is(&mut self) -> isize {
        // SAFETY: the program's own call.
        unsafe { receive(self.fd, self.call) }
    }

    #[inline]
    fn takes(&self, pieces: usize, buffers: usize) -> bool {
        let on = if is_message(self.call) { On::Vectored } else { On::Descriptor(self.fd) };
        on.takes(&self.process.calls, pieces, buffers)
    }

    #[inline]
    fn scatter(&mut self, pieces: &mut Pieces) -> Option<isize> {
        // SAFETY: the program's own call, with pieces of extents in place of its buffers.
        let received = unsafe { scatter(self.fd, self.call, pieces, &mut self.told) };
        received.filter(|n| *n != -1 || !refused_input(self.call))
    }

    /// (A kept file lies in memory of ours that consists of views: there is nothing to hand over.)
    #[inline]
    fn by_reference(
        &mut self,
        room: usize,
        _: impl FnMut(usize) -> bool,
        _: impl FnMut(&[(RegionId, Span)], usize) -> bool,
    ) -> Option<isize> {
        // SAFETY: the caller vouches for its buffer.
        unsafe { file::read(self.kept.as_ref()?, room) }
    }

    #[inline]
    fn is_told(&self) -> bool {
        self.told
    }
}

/// An output call on a descriptor of Linux'.
#[derive(Debug)]
pub struct Send<'a> {
    process: &'static Process,
    fd: c_int,
    call: &'a OutputCall,
    caller: usize,
    kind: Option<Kind>,
}

impl<'a> Send<'a> {
    /// `call`, on `fd`, which returns to `caller`.
    #[inline]
    pub fn new(process: &'static Process, fd: c_int, call: &'a OutputCall, caller: usize) -> Self {
        Self { process, fd, call, caller, kind: None }
    }

    /// Whether it asks for nothing that a call by reference could not do: it has no address, no
    /// data beside it, and flags that are known. `None`: it is at a position, where nothing goes by
    /// reference.
    #[inline]
    fn is_plain(&self) -> Option<bool> {
        const KNOWN: c_int = MSG_MORE | MSG_NOSIGNAL;
        let plain = match self.call {
            OutputCall::Write { .. } | OutputCall::Writev { .. } | OutputCall::Send { .. } => true,
            OutputCall::Sendto { addr, len, .. } => addr.is_null() && *len == 0,
            OutputCall::Sendmsg { header, .. } => {
                header.is_some_and(|h| h.msg_name.is_null() && h.msg_controllen == 0)
            }
            OutputCall::Pwrite { .. }
            | OutputCall::Pwritev { .. }
            | OutputCall::Pwritev2 { .. } => {
                return None;
            }
        };
        Some(plain && self.call.flags() & !KNOWN == 0)
    }

    fn target(&self) -> Target {
        let flags = self.call.flags();
        Target {
            fd: self.fd,
            more: flags & MSG_MORE != 0,
            no_signal: flags & MSG_NOSIGNAL != 0,
            calls: Calls { splice: real::splice, vmsplice: real::vmsplice, sendmsg: real::sendmsg },
        }
    }
}

impl Output for Send<'_> {
    #[inline]
    fn as_it_is(&mut self) -> isize {
        // SAFETY: the program's own call.
        unsafe { send(self.fd, self.call) }
    }

    #[inline]
    fn takes(&self, pieces: usize, buffers: usize) -> bool {
        let on = match self.call {
            OutputCall::Send { .. } | OutputCall::Sendto { .. } | OutputCall::Sendmsg { .. } => {
                On::Vectored
            }
            _ => On::Descriptor(self.fd),
        };
        on.takes(&self.process.calls, pieces, buffers)
    }

    #[inline]
    fn gather(&mut self, pieces: &Pieces) -> Option<isize> {
        // SAFETY: the same bytes as the program's buffers hold.
        let sent = unsafe { gather(self.fd, self.call, pieces) };
        (sent != -1 || !refused_for_pieces()).then_some(sent)
    }

    #[inline]
    fn lending(&self) -> Option<Lending> {
        let plain = self.is_plain()?;
        let (from, caller) = (self.process.lending.from(), self.caller);
        Some(Lending { from, plain, caller, to_kernel: true })
    }

    fn can_lend(&mut self, pieces: &[iovec]) -> bool {
        self.kind = self.process.lending.kind(self.fd).filter(|k| fits(*k, pieces));
        self.kind.is_some()
    }

    fn lend(&mut self, pieces: &Pieces, lent: u64) -> Lent {
        match self.kind {
            Some(kind) => self.process.lending.send(kind, &self.target(), pieces, lent),
            None => Lent::No,
        }
    }
}
