//! write, send and their kin.
//!
//! unsafe: see the crate; each shim makes the program's own call.

use super::copy::host;
use super::memory_common::{concerns_nobody, perhaps_tracked as perhaps_tracked_range};
pub use super::own::{send, sendmsg, sendto, write, writev};
use super::sockets::before_control;
use super::unwaited::{before_positioned, before_positioned_list};
use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_uint, c_void};
use libc::{MSG_ZEROCOPY, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use uncopy_core::excluded::Why;
use uncopy_ranges::span::Span;
use uncopy_stack::buffers::{
    Buffers, IOV_MAX, IovList, each, give, header, list, perhaps_tracked, take,
};
use uncopy_stack::calls::{Named, OutputCall};
use uncopy_stack::endpoint;
use uncopy_stack::output::concerned;

/// The kernel will read these buffers after the call: their pages must stay where they are, so that
/// it sees what the program writes there until then. (That pages are never filled with anything
/// else, though somebody refers to them of whom we do not know, holds for all: see the tracker's
/// pool.)
fn held_by_kernel(buffers: impl Iterator<Item = (usize, usize)>) {
    if !PROCESS.space.wanted() {
        return;
    }
    for (addr, len) in buffers.filter(|(_, len)| *len > 0) {
        let span = Span::sized(addr, len);
        // First this: nothing of it is unmapped from now on.
        PROCESS.space.exclude(span, Why::Given);
        if perhaps_tracked_range(addr, len) {
            PROCESS.space.materialize_if_possible(span);
        }
    }
}

/// Whether an output of `n` bytes at `buf` is made as it is: they are too few to go by reference,
/// and concern nobody.
#[inline(always)]
fn is_plain(buf: *const c_void, n: size_t) -> bool {
    n < PROCESS.lending.from() && concerns_nobody(buf as usize, n)
}

pub(super) unsafe extern "C" fn write_from(
    fd: c_int,
    buf: *const c_void,
    n: size_t,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        if is_plain(buf, n) { real::write(fd, buf, n) } else { write_ours(fd, buf, n, caller) }
    }
}

#[inline(never)]
unsafe fn write_ours(fd: c_int, buf: *const c_void, n: size_t, caller: usize) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { endpoint::send(fd, &OutputCall::Write { buf, n }, caller, &host()) }
}

pub(super) unsafe extern "C" fn writev_from(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        if PROCESS.tcp.in_use()
            || concerned(&PROCESS, IovList::new(iov, count), PROCESS.lending.from())
        {
            writev_ours(fd, iov, count, caller)
        } else {
            real::writev(fd, iov, count)
        }
    }
}

#[inline(never)]
unsafe fn writev_ours(fd: c_int, iov: *const iovec, count: c_int, caller: usize) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { endpoint::send(fd, &OutputCall::Writev { iov, count }, caller, &host()) }
}

/// `pwrite(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, buf: *const c_void, n: size_t, at: off_t) -> ssize_t {
    before_positioned(at, n);
    // SAFETY: the program's own arguments. (Nothing is lent at a position: no account is asked.)
    unsafe { endpoint::send(fd, &OutputCall::Pwrite { buf, n, at }, 0, &host()) }
}

/// `pwrite64`: on x86-64 the same.
///
/// # Safety
/// As for [`pwrite`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, buf: *const c_void, n: size_t, at: off_t) -> ssize_t {
    // SAFETY: the same function.
    unsafe { pwrite(fd, buf, n, at) }
}

/// `pwritev(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the list that the program passed.
    unsafe { before_positioned_list(at, iov, count) };
    // SAFETY: the program's own arguments.
    unsafe { endpoint::send(fd, &OutputCall::Pwritev { iov, count, at }, 0, &host()) }
}

/// `pwritev2(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the list that the program passed.
    unsafe { before_positioned_list(at, iov, count) };
    // SAFETY: the program's own arguments.
    unsafe { endpoint::send(fd, &OutputCall::Pwritev2 { iov, count, at, flags }, 0, &host()) }
}

pub(super) unsafe extern "C" fn send_from(
    fd: c_int,
    buf: *const c_void,
    n: size_t,
    flags: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: as in `write`.
    unsafe {
        if flags & MSG_ZEROCOPY == 0 && is_plain(buf, n) {
            real::send(fd, buf, n, flags)
        } else {
            send_ours(fd, buf, n, flags, caller)
        }
    }
}

#[inline(never)]
unsafe fn send_ours(
    fd: c_int,
    buf: *const c_void,
    n: size_t,
    flags: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { transmit(fd, &OutputCall::Send { buf, n, flags }, caller) }
}

pub(super) unsafe extern "C" fn sendto_from(
    fd: c_int,
    buf: *const c_void,
    n: size_t,
    flags: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        if flags & MSG_ZEROCOPY == 0 && is_plain(buf, n) {
            real::sendto(fd, buf, n, flags, addr, len)
        } else {
            sendto_ours(fd, buf, n, flags, addr, len)
        }
    }
}

#[inline(never)]
unsafe fn sendto_ours(
    fd: c_int,
    buf: *const c_void,
    n: size_t,
    flags: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> ssize_t {
    // (All registers are taken: its call sites share an account, which bears its name.)
    let caller = sendto as *const () as usize + 1;
    // SAFETY: the program's own arguments.
    unsafe { transmit(fd, &OutputCall::Sendto { buf, n, flags, addr, len }, caller) }
}

#[inline]
unsafe fn transmit(fd: c_int, call: &OutputCall, caller: usize) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe {
        if call.flags() & MSG_ZEROCOPY != 0 {
            if let Named::One(addr, len) = call.named() {
                held_by_kernel(core::iter::once((addr, len)));
            }
            return endpoint::send_as_it_is(&PROCESS, fd, call);
        }
        endpoint::send(fd, call, caller, &host())
    }
}

pub(super) unsafe extern "C" fn sendmsg_from(
    fd: c_int,
    msg: *const msghdr,
    flags: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        if PROCESS.tcp.in_use() || flags & MSG_ZEROCOPY != 0 || message_concerned(msg) {
            sendmsg_ours(fd, msg, flags, caller)
        } else {
            real::sendmsg(fd, msg, flags)
        }
    }
}

/// Whether what `msg` tells of may be sent otherwise than as it is: see [`concerned`].
#[inline(never)]
unsafe fn message_concerned(msg: *const msghdr) -> bool {
    // SAFETY: the program's own header.
    unsafe {
        header(&PROCESS, msg)
            .is_some_and(|known| concerned(&PROCESS, IovList::of(&known), PROCESS.lending.from()))
    }
}

#[inline(never)]
unsafe fn sendmsg_ours(fd: c_int, msg: *const msghdr, flags: c_int, caller: usize) -> ssize_t {
    // SAFETY: the program's own arguments; everything of a header but the buffers is the program's.
    unsafe {
        if PROCESS.tcp.in_use()
            && let Some(header) = take(msg)
            && header.msg_controllen != 0
            && !before_control(&header)
        {
            *libc::__errno_location() = libc::EBUSY;
            return -1;
        }
        let call = OutputCall::sendmsg(&PROCESS, msg, flags);
        if flags & MSG_ZEROCOPY == 0 {
            return endpoint::send(fd, &call, caller, &host());
        }
        let OutputCall::Sendmsg { header: Some(known), .. } = call else {
            return endpoint::send_as_it_is(&PROCESS, fd, &call);
        };
        let mut buffers = Buffers::default();
        if !list(&PROCESS, known.msg_iov, known.msg_iovlen, &mut buffers) {
            held_by_kernel(each(known.msg_iov, known.msg_iovlen));
            return endpoint::send_as_it_is(&PROCESS, fd, &call);
        }
        // (In a list that changes meanwhile the kernel would find other pages.)
        held_by_kernel(buffers.iter().copied());
        let mut pieces = buffers.pieces();
        let other = msghdr { msg_iov: pieces.as_mut_ptr(), msg_iovlen: pieces.len(), ..known };
        let call = OutputCall::Sendmsg { msg: &other, header: None, flags };
        endpoint::send_as_it_is(&PROCESS, fd, &call)
    }
}

/// `sendmmsg(2)`. Where a message holds tracked bytes, the messages are sent one by one, which is
/// what the kernel does.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // The kernel takes no more at once (UIO_MAXIOV).
    let count_taken = (count as usize).min(IOV_MAX);
    // SAFETY: the program passes `count` headers.
    unsafe {
        let message = |i: usize| take(&raw const (*msgs.add(i)).msg_hdr);
        // (A ring may hold what was sent before.)
        let ring = PROCESS.tcp.begun() && PROCESS.tcp.is_connection(fd);
        if flags & MSG_ZEROCOPY != 0 && !ring {
            for h in (0..count_taken).map_while(message) {
                held_by_kernel(each(h.msg_iov, h.msg_iovlen));
            }
            return real::sendmmsg(fd, msgs, count, flags);
        }
        let tracked = PROCESS.space.running()
            && (0..count_taken).map_while(message).any(|h| {
                let mut buffers = Buffers::default();
                list(&PROCESS, h.msg_iov, h.msg_iovlen, &mut buffers)
                    && perhaps_tracked(&PROCESS, &buffers)
            });
        if !tracked && !ring {
            return real::sendmmsg(fd, msgs, count, flags);
        }
        let mut sent = 0;
        for i in 0..count_taken {
            let Some(h) = message(i) else { break };
            let whole = each(h.msg_iov, h.msg_iovlen).fold(0, |n: usize, b| n.saturating_add(b.1));
            // (The kernel heeds a record's end in the header here, but not in `sendmsg`.)
            let flags = flags | h.msg_flags & libc::MSG_EOR;
            let n = sendmsg(fd, &raw const (*msgs.add(i)).msg_hdr, flags);
            if n < 0 {
                break;
            }
            if !give(&raw mut (*msgs.add(i)).msg_len, n as c_uint) {
                *libc::__errno_location() = libc::EFAULT;
                break;
            }
            sent += 1;
            // A message that was sent in part is the last, or a stream would have a hole
            // (net/socket.c, `__sys_sendmmsg`).
            if (n as usize) < whole {
                break;
            }
        }
        // (Where the first fails, errno says why.)
        if sent > 0 { sent } else { -1 }
    }
}

/// `vmsplice(2)`: the pipe refers to the program's pages, so they stay where they are.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmsplice(
    fd: c_int,
    iov: *const iovec,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        let mut buffers = Buffers::default();
        if list(&PROCESS, iov, count, &mut buffers) {
            held_by_kernel(buffers.iter().copied());
            let pieces = buffers.pieces();
            return real::vmsplice(fd, pieces.as_ptr(), pieces.len(), flags);
        }
        held_by_kernel(each(iov, count));
        real::vmsplice(fd, iov, count, flags)
    }
}
