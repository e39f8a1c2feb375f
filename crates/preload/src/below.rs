//! What the shims of input and output make in place of libc's functions: the same, or for a connection within this host the ring's. With `--tcp` off that
//! is one comparison more.
//!
//! unsafe: see the crate.

use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_void};
use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use uncopy_stack::buffers::{IOV_MAX, each, give, piece, take};
use uncopy_tcp_calls::data::Parts;

/// So many bytes a call moves at most (MAX_RW_COUNT).
const MOST: usize = 0x7fff_f000;
/// Addresses of programs end here.
const END: usize = 1 << 47;

/// Whether the kernel takes a buffer of this length.
fn is_taken(at: usize, n: usize) -> bool {
    at.checked_add(n).is_some_and(|end| end <= END)
}

/// The buffer of a call that looks at as much of it as it moves. `None`: one that the kernel
/// refuses.
fn moved(buf: *const c_void, n: size_t) -> Option<Parts<1>> {
    let n = n.min(MOST);
    if is_taken(buf as usize, n) { Parts::one(buf, n) } else { None }
}

/// As above, of a call that looks at all of it first.
fn whole(buf: *const c_void, n: size_t) -> Option<Parts<1>> {
    if is_taken(buf as usize, n) { moved(buf, n) } else { None }
}

/// The buffers that a list names, as far as a call moves them. `None`: a list that the kernel
/// refuses.
unsafe fn listed(iov: *const iovec, count: size_t) -> Option<Parts<1>> {
    if count > IOV_MAX {
        return None;
    }
    // SAFETY: the program's list.
    let mut parts: Vec<iovec> = unsafe { each(iov, count) }.map(|(at, n)| piece(at, n)).collect();
    let taken = |part: &iovec| is_taken(part.iov_base as usize, part.iov_len);
    if parts.len() != count || !parts.iter().all(taken) {
        return None;
    }
    let mut left = MOST;
    for part in &mut parts {
        part.iov_len = part.iov_len.min(left);
        left -= part.iov_len;
    }
    Some(Parts::Many(parts))
}

/// `read(2)`.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn read(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t {
    // SAFETY: the program's own arguments. (Without room read returns, where recv waits.)
    unsafe {
        let parts = || if n > 0 { whole(buf, n) } else { None };
        PROCESS.tcp.receive(fd, 0, parts, || real::read(fd, buf, n))
    }
}

/// `readv(2)`.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's own arguments. (A negative count is a huge one.)
    unsafe {
        PROCESS.tcp.receive(
            fd,
            0,
            || with_bytes(iov, count as usize),
            || real::readv(fd, iov, count),
        )
    }
}

/// As above. `None` too where there are no bytes: then readv returns, where recvmsg waits, and so
/// does writev, where sendmsg finds the stream ended.
unsafe fn with_bytes(iov: *const iovec, count: size_t) -> Option<Parts<1>> {
    // SAFETY: the program's list.
    let parts = unsafe { listed(iov, count) }?;
    let Parts::Many(list) = &parts else { return Some(parts) };
    list.iter().any(|part| part.iov_len > 0).then_some(parts)
}

/// What positioned calls on a stream mean by their flags: at position -1 they are none. `None`: the kernel answers.
fn unpositioned(at: off_t, flags: c_int) -> Option<c_int> {
    let known = flags & !(libc::RWF_NOWAIT | libc::RWF_HIPRI) == 0;
    let nowait = flags & libc::RWF_NOWAIT != 0;
    (at == -1 && known).then_some(if nowait { libc::MSG_DONTWAIT } else { 0 })
}

/// `preadv2(2)`.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn preadv2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        let plain = || real::preadv2(fd, iov, count, at, flags);
        match unpositioned(at, flags) {
            Some(flags) => {
                PROCESS.tcp.receive(fd, flags, || with_bytes(iov, count as usize), plain)
            }
            None => plain(),
        }
    }
}

/// `pwritev2(2)`.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn pwritev2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        let plain = || real::pwritev2(fd, iov, count, at, flags);
        match unpositioned(at, flags) {
            Some(flags) => PROCESS.tcp.send(fd, flags, || with_bytes(iov, count as usize), plain),
            None => plain(),
        }
    }
}

/// `recv(2)`.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn recv(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { PROCESS.tcp.receive(fd, flags, || moved(buf, n), || real::recv(fd, buf, n, flags)) }
}

/// `recvfrom(2)`. Of a connection no address is told.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    let mut plainly = false;
    // SAFETY: the program's own arguments.
    unsafe {
        let received = PROCESS.tcp.receive(
            fd,
            flags,
            || moved(buf, n),
            || {
                plainly = true;
                real::recvfrom(fd, buf, n, flags, addr, len)
            },
        );
        if !plainly && received >= 0 && !addr.is_null() && !give(len, 0) {
            *libc::__errno_location() = libc::EFAULT;
            return -1;
        }
        received
    }
}

/// `recvmsg(2)`. Of a connection neither address nor anything beside the data is told.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    let mut plainly = false;
    // SAFETY: the program's own arguments.
    unsafe {
        let parts = || {
            let header = take(msg)?;
            listed(header.msg_iov, header.msg_iovlen)
        };
        let received = PROCESS.tcp.receive(fd, flags, parts, || {
            plainly = true;
            real::recvmsg(fd, msg, flags)
        });
        if !plainly && received >= 0 {
            // (Without room for a name the kernel leaves its length alone.)
            let named =
                take((&raw const (*msg).msg_name).cast::<usize>()).is_some_and(|at| at != 0);
            let told = (!named || give(&raw mut (*msg).msg_namelen, 0))
                && give(&raw mut (*msg).msg_controllen, 0)
                && give(&raw mut (*msg).msg_flags, 0);
            if !told {
                *libc::__errno_location() = libc::EFAULT;
                return -1;
            }
        }
        received
    }
}

/// `write(2)`.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn write(fd: c_int, buf: *const c_void, n: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { PROCESS.tcp.send(fd, 0, || whole(buf, n), || real::write(fd, buf, n)) }
}

/// `writev(2)`.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        PROCESS.tcp.send(fd, 0, || with_bytes(iov, count as usize), || real::writev(fd, iov, count))
    }
}

/// `send(2)`.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { PROCESS.tcp.send(fd, flags, || moved(buf, n), || real::send(fd, buf, n, flags)) }
}

/// `sendto(2)`. (TCP heeds no address.)
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn sendto(
    fd: c_int,
    buf: *const c_void,
    n: size_t,
    flags: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        let plain = || real::sendto(fd, buf, n, flags, addr, len);
        PROCESS.tcp.send(fd, flags, || moved(buf, n), plain)
    }
}

/// `sendmsg(2)`. What is sent with data beside it goes by Linux.
///
/// # Safety
/// As its man page says.
#[inline]
pub unsafe fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        if !PROCESS.tcp.in_use() {
            return real::sendmsg(fd, msg, flags);
        }
        let plain = || real::sendmsg(fd, msg, flags);
        let Some(header) = take(msg) else { return plain() };
        if header.msg_controllen != 0 {
            if !super::hooks::sockets::before_control(&header) {
                *libc::__errno_location() = libc::EBUSY;
                return -1;
            }
            return PROCESS.tcp.sending_past(fd, flags, plain);
        }
        PROCESS.tcp.send(fd, flags, || listed(header.msg_iov, header.msg_iovlen), plain)
    }
}
