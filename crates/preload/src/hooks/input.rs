//! read, recv and their kin.
//!
//! unsafe: see the crate; each shim makes the program's own call, or the same call with pieces in
//! place of its buffer.

use super::copy::{host, on_own_stack};
pub use super::entries::own::{pread, pread64, read, readv, recv, recvfrom, recvmsg};
use super::ours::concerns_nobody;
use super::unwaited::{before_positioned, before_positioned_list};
use crate::process::PROCESS;
use crate::{below, real};
use core::ffi::{c_int, c_uint, c_void};
use core::time::Duration;
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use uncopy_space::space::ORIGIN_MIN;
use uncopy_stack::buffers::{Buffers, Pieces, each, give, header, take};
use uncopy_stack::input::{input, input_listed, remember};
use uncopy_stack::linux::on::On;
use uncopy_stack::linux::{Read, Receive, file};

/// Flags that change what is written to the buffer, or where the data comes from: made as it is.
pub(super) const UNUSUAL: c_int = libc::MSG_TRUNC | libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// A large read of a regular file may be answered from memory; see [`uncopy_stack::linux::file`].
#[inline]
fn from_kept_file(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    at: Option<off_t>,
    caller: usize,
) -> Option<file::Read> {
    let perhaps = file::perhaps(&PROCESS, n) && !on_own_stack(buf as usize);
    perhaps.then_some(file::Read { fd, dst: buf as usize, at, caller, host: host() })
}

/// Makes an input into `n` bytes at `buf`: by `ours` where it is `special` or concerns somebody; else by `jump`, or by `framed` where it matters what comes. (The
/// closures own what they name, or there would be a frame for that in all cases: docs/inside/shims.md.)
#[inline(always)]
fn handed_on(
    (buf, n): (*mut c_void, size_t),
    special: bool,
    jump: impl FnOnce() -> ssize_t,
    framed: impl FnOnce() -> ssize_t,
    ours: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if special || !concerns_nobody(buf as usize, n) {
        ours()
    } else if PROCESS.space.heeds_input(n) {
        framed()
    } else {
        jump()
    }
}

/// What a call answers that has received `received` bytes into `n` at `buf`, made as it is.
#[inline(always)]
fn remembered(received: ssize_t, buf: *mut c_void, n: size_t) -> ssize_t {
    if received < ORIGIN_MIN as isize { received } else { remembered_large(received, buf, n) }
}

/// The same of one that is large enough to be remembered.
pub(super) extern "C" fn remembered_large(
    received: ssize_t,
    buf: *mut c_void,
    n: size_t,
) -> ssize_t {
    remember(&PROCESS, core::iter::once((buf as usize, n)), received);
    received
}

pub(super) unsafe extern "C" fn read_for(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        handed_on(
            (buf, n),
            file::perhaps(&PROCESS, n),
            move || real::read(fd, buf, n),
            move || read_framed(fd, buf, n),
            move || read_ours(fd, buf, n, caller),
        )
    }
}

#[inline(never)]
unsafe fn read_framed(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    remembered(unsafe { real::read(fd, buf, n) }, buf, n)
}

#[inline(never)]
unsafe fn read_ours(fd: c_int, buf: *mut c_void, n: size_t, caller: usize) -> ssize_t {
    let kept = from_kept_file(fd, buf, n, None, caller);
    // SAFETY: the program's own arguments, or pieces of extents (or of memory of ours) in place of its buffer.
    let call = Receive::new(
        &PROCESS,
        On::Descriptor(fd),
        || unsafe { below::read(fd, buf, n) },
        |p: &mut Pieces| unsafe {
            Some(match p.as_slice() {
                [one] => below::read(fd, one.iov_base, one.iov_len),
                many => below::readv(fd, many.as_ptr(), many.len() as c_int),
            })
        },
    );
    // SAFETY: as above.
    let positioned =
        |p: &[iovec], at| unsafe { real::preadv(fd, p.as_ptr(), p.len() as c_int, at) };
    input(Read { call, kept, positioned }, &Buffers::one(buf as usize, n), &host())
}

pub(super) unsafe extern "C" fn pread_for(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    at: off_t,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        handed_on(
            (buf, n),
            file::perhaps(&PROCESS, n) || PROCESS.space.serving(),
            move || real::pread(fd, buf, n, at),
            move || pread_framed(fd, buf, n, at),
            move || pread_ours(fd, buf, n, at, caller),
        )
    }
}

#[inline(never)]
unsafe fn pread_framed(fd: c_int, buf: *mut c_void, n: size_t, at: off_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    remembered(unsafe { real::pread(fd, buf, n, at) }, buf, n)
}

#[inline(never)]
unsafe fn pread_ours(fd: c_int, buf: *mut c_void, n: size_t, at: off_t, caller: usize) -> ssize_t {
    before_positioned(at, n);
    let kept = from_kept_file(fd, buf, n, Some(at), caller);
    // SAFETY: as in `read`.
    let call = Receive::new(
        &PROCESS,
        On::Descriptor(fd),
        || unsafe { real::pread(fd, buf, n, at) },
        |p: &mut Pieces| unsafe {
            Some(match p.as_slice() {
                [one] => real::pread(fd, one.iov_base, one.iov_len, at),
                many => real::preadv(fd, many.as_ptr(), many.len() as c_int, at),
            })
        },
    );
    // SAFETY: as in `read`.
    let positioned =
        |p: &[iovec], at| unsafe { real::preadv(fd, p.as_ptr(), p.len() as c_int, at) };
    input(Read { call, kept, positioned }, &Buffers::one(buf as usize, n), &host())
}

/// `read(2)` with a known buffer size.
///
/// # Safety
/// As for [`read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: libc's check reports the overflow; otherwise as `read`.
    unsafe { if n > room { real::__read_chk(fd, buf, n, room) } else { read(fd, buf, n) } }
}

pub(super) unsafe extern "C" fn readv_for(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as in `read`; a negative count becomes one that is refused.
    unsafe {
        let call = Receive::new(
            &PROCESS,
            On::Descriptor(fd),
            || below::readv(fd, iov, count),
            |p: &mut Pieces| Some(below::readv(fd, p.as_ptr(), p.len() as c_int)),
        );
        input_listed(call, (iov, count as usize), &host())
    }
}

/// `pread(2)` with a known buffer size.
///
/// # Safety
/// As for [`pread`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pread_chk(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: as in `__read_chk`.
    unsafe {
        if n > room { real::__pread_chk(fd, buf, n, at, room) } else { pread(fd, buf, n, at) }
    }
}

/// `__pread64_chk`: on x86-64 the same as [`__pread_chk`].
///
/// # Safety
/// As for [`pread`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pread64_chk(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the same function.
    unsafe { __pread_chk(fd, buf, n, at, room) }
}

/// `preadv(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv(fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the list that the program passed.
    unsafe { before_positioned_list(at, iov, count) };
    // SAFETY: as in `readv`.
    unsafe {
        let call = Receive::new(
            &PROCESS,
            On::Descriptor(fd),
            || real::preadv(fd, iov, count, at),
            |p: &mut Pieces| Some(real::preadv(fd, p.as_ptr(), p.len() as c_int, at)),
        );
        input_listed(call, (iov, count as usize), &host())
    }
}

/// `preadv64`: on x86-64 the same.
///
/// # Safety
/// As for [`preadv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the same function.
    unsafe { preadv(fd, iov, count, at) }
}

/// `preadv2(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the list that the program passed.
    unsafe { before_positioned_list(at, iov, count) };
    // SAFETY: as in `readv`.
    unsafe {
        let call = Receive::new(
            &PROCESS,
            On::Descriptor(fd),
            || below::preadv2(fd, iov, count, at, flags),
            |p: &mut Pieces| Some(below::preadv2(fd, p.as_ptr(), p.len() as c_int, at, flags)),
        );
        input_listed(call, (iov, count as usize), &host())
    }
}

/// `preadv64v2`: on x86-64 the same.
///
/// # Safety
/// As for [`preadv2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64v2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the same function.
    unsafe { preadv2(fd, iov, count, at, flags) }
}

pub(super) unsafe extern "C" fn recv_for(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        handed_on(
            (buf, n),
            flags & UNUSUAL != 0,
            move || real::recv(fd, buf, n, flags),
            move || recv_framed(fd, buf, n, flags),
            // (Without an address it is recvfrom.)
            move || receive(fd, buf, n, flags, core::ptr::null_mut(), core::ptr::null_mut()),
        )
    }
}

#[inline(never)]
unsafe fn recv_framed(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own arguments.
    remembered(unsafe { real::recv(fd, buf, n, flags) }, buf, n)
}

/// `recv(2)` with a known buffer size.
///
/// # Safety
/// As for [`recv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as in `__read_chk`.
    unsafe {
        if n > room { real::__recv_chk(fd, buf, n, room, flags) } else { recv(fd, buf, n, flags) }
    }
}

pub(super) unsafe extern "C" fn recvfrom_for(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        handed_on(
            (buf, n),
            flags & UNUSUAL != 0,
            move || real::recvfrom(fd, buf, n, flags, addr, len),
            move || recvfrom_framed(fd, buf, n, flags, addr, len),
            move || receive(fd, buf, n, flags, addr, len),
        )
    }
}

#[inline(never)]
unsafe fn recvfrom_framed(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    remembered(unsafe { real::recvfrom(fd, buf, n, flags, addr, len) }, buf, n)
}

/// `recvfrom(2)` with a known buffer size.
///
/// # Safety
/// As for [`recvfrom`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as in `__read_chk`.
    unsafe {
        if n > room {
            real::__recvfrom_chk(fd, buf, n, room, flags, addr, len)
        } else {
            recvfrom(fd, buf, n, flags, addr, len)
        }
    }
}

#[inline(never)]
unsafe fn receive(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's own arguments; a null address is what recv passes.
    let as_it_is = || unsafe {
        if addr.is_null() && len.is_null() {
            below::recv(fd, buf, n, flags)
        } else {
            below::recvfrom(fd, buf, n, flags, addr, len)
        }
    };
    // SAFETY: as in `recvfrom`'s contract.
    if flags & UNUSUAL != 0 || !addr.is_null() && unsafe { take(len) }.is_none() {
        return as_it_is();
    }
    let buffers = Buffers::one(buf as usize, n);
    // What the plain call would have been refused for after it had received.
    let mut unwritten = false;
    // SAFETY: pieces of extents in place of the buffer; the address goes through a message header.
    let scattered = |p: &mut Pieces| unsafe {
        if let [one] = p.as_slice() {
            return Some(if addr.is_null() {
                below::recv(fd, one.iov_base, one.iov_len, flags)
            } else {
                below::recvfrom(fd, one.iov_base, one.iov_len, flags, addr, len)
            });
        }
        let mut msg: msghdr = core::mem::zeroed();
        if !addr.is_null() {
            // (Otherwise the kernel's own EFAULT or EINVAL.)
            let room = take(len).filter(|n| (*n as c_int) >= 0)?;
            msg.msg_name = addr.cast();
            msg.msg_namelen = room;
        }
        msg.msg_iov = p.as_mut_ptr();
        msg.msg_iovlen = p.len();
        let received = below::recvmsg(fd, &mut msg, flags);
        if received >= 0 && !addr.is_null() {
            unwritten = !give(len, msg.msg_namelen);
        }
        Some(received)
    };
    let received =
        input(Receive::new(&PROCESS, On::Vectored, as_it_is, scattered), &buffers, &host());
    if unwritten { not_given() } else { received }
}

/// The answer where the program's structure could not be written to.
#[cold]
fn not_given() -> ssize_t {
    // SAFETY: errno's address is always valid.
    unsafe { *libc::__errno_location() = libc::EFAULT };
    -1
}

pub(super) unsafe extern "C" fn recvmsg_for(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as in `readv`; everything of the header but the buffers is the program's, and is
    // given back to it.
    unsafe {
        let known = if flags & UNUSUAL == 0 { header(&PROCESS, msg) } else { None };
        let Some(known) = known else { return below::recvmsg(fd, msg, flags) };
        let mut unwritten = false;
        let call = Receive::new(
            &PROCESS,
            On::Vectored,
            || below::recvmsg(fd, msg, flags),
            |p: &mut Pieces| {
                let mut other = known;
                other.msg_iov = p.as_mut_ptr();
                other.msg_iovlen = p.len();
                let received = below::recvmsg(fd, &mut other, flags);
                if received >= 0 {
                    let named = known.msg_name.is_null()
                        || give(&raw mut (*msg).msg_namelen, other.msg_namelen);
                    unwritten = !(named
                        && give(&raw mut (*msg).msg_controllen, other.msg_controllen)
                        && give(&raw mut (*msg).msg_flags, other.msg_flags));
                }
                Some(received)
            },
        );
        let received = input_listed(call, (known.msg_iov, known.msg_iovlen), &host());
        if unwritten { not_given() } else { received }
    }
}

/// `recvmmsg(2)`: made as it is (faults serve what is unmapped); what arrived is remembered.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the kernel has filled the first `received` headers.
    unsafe {
        if PROCESS.tcp.begun() && PROCESS.tcp.is_connection(fd) {
            return recvmmsg_one_by_one(fd, msgs, count, flags, timeout);
        }
        let received = real::recvmmsg(fd, msgs, count, flags, timeout);
        let arrived = if PROCESS.space.wanted() { received.max(0) } else { 0 };
        for m in (0..arrived as usize).map_while(|i| take(msgs.add(i))) {
            remember(&PROCESS, each(m.msg_hdr.msg_iov, m.msg_hdr.msg_iovlen), m.msg_len as ssize_t);
        }
        received
    }
}

/// Of a connection that may be at rings.
unsafe fn recvmmsg_one_by_one(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the program passes `count` headers.
    unsafe {
        let begun = std::time::Instant::now();
        let patience = take(timeout.cast::<[i64; 2]>()).map(|[seconds, more]| {
            let more = Duration::from_nanos(more.max(0) as u64);
            Duration::from_secs(seconds.max(0) as u64).saturating_add(more)
        });
        let once = flags & libc::MSG_WAITFORONE != 0;
        let mut flags = flags & !libc::MSG_WAITFORONE;
        let mut received = 0;
        for i in 0..count as usize {
            let n = recvmsg(fd, &raw mut (*msgs.add(i)).msg_hdr, flags);
            if n < 0 || !give(&raw mut (*msgs.add(i)).msg_len, n as c_uint) {
                break;
            }
            received += 1;
            if once {
                flags |= libc::MSG_DONTWAIT;
            }
            if patience.is_some_and(|patience| begun.elapsed() >= patience) {
                break;
            }
        }
        if received > 0 { received } else { -1 }
    }
}
