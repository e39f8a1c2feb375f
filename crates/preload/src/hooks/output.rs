//! write, send and their kin.
//!
//! unsafe: see the crate; each shim makes the program's own call, or the same call with pieces in
//! place of its buffers.

use super::copy::host;
pub use super::entries::own::{send, sendmsg, sendto, write, writev};
use super::ours::{concerns_nobody, perhaps_tracked as perhaps_tracked_range};
use super::unwaited::{before_positioned, before_positioned_list};
use crate::process::PROCESS;
use crate::{below, real};
use core::ffi::{c_int, c_uint, c_void};
use libc::{
    MSG_MORE, MSG_NOSIGNAL, MSG_ZEROCOPY, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr,
    socklen_t, ssize_t,
};
use uncopy_core::excluded::Why;
use uncopy_lend::send::{Calls, Target};
use uncopy_ranges::span::Span;
use uncopy_stack::buffers::{
    Buffers, IOV_MAX, Pieces, each, give, header, list, perhaps_tracked, take,
};
use uncopy_stack::linux::on::On;
use uncopy_stack::linux::{Send, Stream};
use uncopy_stack::output::{concerned, output, output_listed};

/// The kernel will read these buffers after the call: their pages must stay where they are, so that it sees what the program
/// writes there until then. (That pages are never filled with anything else, though somebody refers to them of whom we do not
/// know, holds for all: see the tracker's pool.)
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

/// What of a call may go by reference: `plain` where it has no address and no ancillary data.
#[inline]
fn stream(fd: c_int, flags: c_int, plain: bool, caller: usize) -> Option<Stream> {
    const KNOWN: c_int = MSG_MORE | MSG_NOSIGNAL;
    // (A ring takes bytes, not pages.)
    if PROCESS.tcp.in_use() && PROCESS.tcp.is_connection(fd) {
        return None;
    }
    Some(Stream {
        target: Target {
            fd,
            more: flags & MSG_MORE != 0,
            no_signal: flags & MSG_NOSIGNAL != 0,
            calls: Calls { splice: real::splice, vmsplice: real::vmsplice, sendmsg: real::sendmsg },
        },
        plain: plain && flags & !KNOWN == 0,
        caller,
    })
}

/// Whether an output of `n` bytes at `buf` is made as it is: they are too few to go by reference, and concern nobody.
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
    // SAFETY: the program's own arguments, or the same bytes from where they are.
    let call = Send::new(
        &PROCESS,
        On::Descriptor(fd),
        stream(fd, 0, true, caller),
        || unsafe { below::write(fd, buf, n) },
        |p: &Pieces| unsafe {
            match p.as_slice() {
                [one] => below::write(fd, one.iov_base, one.iov_len),
                many => below::writev(fd, many.as_ptr(), many.len() as c_int),
            }
        },
    );
    output(call, &Buffers::one(buf as usize, n), &host())
}

pub(super) unsafe extern "C" fn writev_from(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        if concerned(&PROCESS, (iov, count as usize), PROCESS.lending.from()) {
            writev_ours(fd, iov, count, caller)
        } else {
            below::writev(fd, iov, count)
        }
    }
}

#[inline(never)]
unsafe fn writev_ours(fd: c_int, iov: *const iovec, count: c_int, caller: usize) -> ssize_t {
    // SAFETY: as in `write`.
    unsafe {
        let call = Send::new(
            &PROCESS,
            On::Descriptor(fd),
            stream(fd, 0, true, caller),
            || below::writev(fd, iov, count),
            |p: &Pieces| below::writev(fd, p.as_ptr(), p.len() as c_int),
        );
        output_listed(call, (iov, count as usize), &host())
    }
}

/// `pwrite(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, buf: *const c_void, n: size_t, at: off_t) -> ssize_t {
    before_positioned(at, n);
    // SAFETY: as in `write`.
    let call = Send::new(
        &PROCESS,
        On::Descriptor(fd),
        None,
        || unsafe { real::pwrite(fd, buf, n, at) },
        |p: &Pieces| unsafe {
            match p.as_slice() {
                [one] => real::pwrite(fd, one.iov_base, one.iov_len, at),
                many => real::pwritev(fd, many.as_ptr(), many.len() as c_int, at),
            }
        },
    );
    output(call, &Buffers::one(buf as usize, n), &host())
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
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the list that the program passed.
    unsafe { before_positioned_list(at, iov, count) };
    // SAFETY: as in `write`.
    unsafe {
        if !concerned(&PROCESS, (iov, count as usize), usize::MAX) {
            return real::pwritev(fd, iov, count, at);
        }
        let call = Send::new(
            &PROCESS,
            On::Descriptor(fd),
            None,
            || real::pwritev(fd, iov, count, at),
            |p: &Pieces| real::pwritev(fd, p.as_ptr(), p.len() as c_int, at),
        );
        output_listed(call, (iov, count as usize), &host())
    }
}

/// `pwritev64`: on x86-64 the same.
///
/// # Safety
/// As for [`pwritev`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the same function.
    unsafe { pwritev(fd, iov, count, at) }
}

/// `pwritev2(2)`.
///
/// # Safety
/// As its man page says.
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
    // SAFETY: as in `write`.
    unsafe {
        if !concerned(&PROCESS, (iov, count as usize), usize::MAX) {
            return below::pwritev2(fd, iov, count, at, flags);
        }
        let call = Send::new(
            &PROCESS,
            On::Descriptor(fd),
            None,
            || below::pwritev2(fd, iov, count, at, flags),
            |p: &Pieces| below::pwritev2(fd, p.as_ptr(), p.len() as c_int, at, flags),
        );
        output_listed(call, (iov, count as usize), &host())
    }
}

/// `pwritev64v2`: on x86-64 the same.
///
/// # Safety
/// As for [`pwritev2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the same function.
    unsafe { pwritev2(fd, iov, count, at, flags) }
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
    // SAFETY: as in `write`; send is sendto without an address.
    unsafe {
        let to = (core::ptr::null(), 0);
        transmit(fd, buf, n, flags, to, caller, || below::send(fd, buf, n, flags))
    }
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
    let caller = sendto as *const () as usize;
    // SAFETY: as in `write`.
    unsafe {
        transmit(fd, buf, n, flags, (addr, len), caller, || {
            below::sendto(fd, buf, n, flags, addr, len)
        })
    }
}

#[inline]
unsafe fn transmit(
    fd: c_int,
    buf: *const c_void,
    n: size_t,
    flags: c_int,
    (addr, len): (*const sockaddr, socklen_t),
    caller: usize,
    mut as_it_is: impl FnMut() -> ssize_t,
) -> ssize_t {
    let buffers = Buffers::one(buf as usize, n);
    if flags & MSG_ZEROCOPY != 0 {
        held_by_kernel(buffers.iter().copied());
        return as_it_is();
    }
    let stream = stream(fd, flags, addr.is_null() && len == 0, caller);
    // SAFETY: as in `write`.
    let gathered = |p: &Pieces| unsafe {
        match p.as_slice() {
            [one] if addr.is_null() && len == 0 => {
                below::send(fd, one.iov_base, one.iov_len, flags)
            }
            [one] => below::sendto(fd, one.iov_base, one.iov_len, flags, addr, len),
            many => {
                let mut msg: msghdr = core::mem::zeroed();
                msg.msg_name = addr.cast_mut().cast();
                msg.msg_namelen = len;
                send_pieces(fd, &msg, many, flags)
            }
        }
    };
    output(Send::new(&PROCESS, On::Vectored, stream, as_it_is, gathered), &buffers, &host())
}

unsafe fn send_pieces(fd: c_int, like: &msghdr, pieces: &[iovec], flags: c_int) -> ssize_t {
    let mut msg = *like;
    msg.msg_iov = pieces.as_ptr().cast_mut();
    msg.msg_iovlen = pieces.len();
    // SAFETY: the pieces live through the call, which does not write to them.
    unsafe { below::sendmsg(fd, &msg, flags) }
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
        header(&PROCESS, msg).is_some_and(|known| {
            concerned(&PROCESS, (known.msg_iov, known.msg_iovlen), PROCESS.lending.from())
        })
    }
}

#[inline(never)]
unsafe fn sendmsg_ours(fd: c_int, msg: *const msghdr, flags: c_int, caller: usize) -> ssize_t {
    // SAFETY: as in `write`; everything of the header but the buffers is the program's.
    unsafe {
        let Some(known) = header(&PROCESS, msg) else { return below::sendmsg(fd, msg, flags) };
        if flags & MSG_ZEROCOPY != 0 {
            let mut buffers = Buffers::default();
            if list(&PROCESS, known.msg_iov, known.msg_iovlen, &mut buffers) {
                // (In a list that changes meanwhile the kernel would find other pages.)
                held_by_kernel(buffers.iter().copied());
                return send_pieces(fd, &known, &buffers.pieces(), flags);
            }
            held_by_kernel(each(known.msg_iov, known.msg_iovlen));
            return below::sendmsg(fd, msg, flags);
        }
        let parts = (known.msg_iov.cast_const(), known.msg_iovlen);
        if !concerned(&PROCESS, parts, PROCESS.lending.from()) {
            return below::sendmsg(fd, msg, flags);
        }
        let plain = known.msg_name.is_null() && known.msg_controllen == 0;
        let call = Send::new(
            &PROCESS,
            On::Vectored,
            stream(fd, flags, plain, caller),
            || below::sendmsg(fd, msg, flags),
            |p: &Pieces| send_pieces(fd, &known, p, flags),
        );
        output_listed(call, parts, &host())
    }
}

/// `sendmmsg(2)`. Where a message holds tracked bytes, the messages are sent one by one, which is
/// what the kernel does.
///
/// # Safety
/// As its man page says.
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
            // What was sent in part is the last, or a stream would have a hole (net/socket.c, `__sys_sendmmsg`).
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
/// As its man page says.
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
