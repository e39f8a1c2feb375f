//! read, recv and their kin.
//!
//! unsafe: see the crate; each shim makes the program's own call.

use super::copy::{host, on_own_stack};
use super::memory_common::concerns_nobody;
pub use super::own::{pread, pread64, read, readv, recv, recvfrom, recvmsg};
use super::unwaited::{before_positioned, before_positioned_list};
use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_uint, c_void};
use core::time::Duration;
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use uncopy_space::space::ORIGIN_MIN;
use uncopy_stack::buffers::{each, give, take};
use uncopy_stack::calls::{InputCall, UNUSUAL};
use uncopy_stack::endpoint;
use uncopy_stack::input::remember;
use uncopy_stack::linux::file;

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

/// How an input is made.
enum Route {
    /// By a jump to libc's function.
    Jump,
    /// By libc's function, and it matters what comes.
    Framed,
    /// It is special, or concerns somebody.
    Ours,
}

/// How an input into `n` bytes at `buf` is made.
#[inline(always)]
fn route(buf: *mut c_void, n: size_t, special: bool) -> Route {
    if special || !concerns_nobody(buf as usize, n) {
        Route::Ours
    } else if PROCESS.space.tracks_input(n) {
        Route::Framed
    } else {
        Route::Jump
    }
}

/// The answer of a call that was made as it is and has received `received` bytes into `n` at `buf`.
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
        match route(buf, n, file::perhaps(&PROCESS, n)) {
            Route::Jump => real::read(fd, buf, n),
            Route::Framed => read_framed(fd, buf, n),
            Route::Ours => read_ours(fd, buf, n, caller),
        }
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
    // SAFETY: the program's own arguments.
    unsafe { endpoint::receive(fd, &InputCall::Read { buf, n }, kept, caller, &host()) }
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
        match route(buf, n, file::perhaps(&PROCESS, n) || PROCESS.space.serving()) {
            Route::Jump => real::pread(fd, buf, n, at),
            Route::Framed => pread_framed(fd, buf, n, at),
            Route::Ours => pread_ours(fd, buf, n, at, caller),
        }
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
    // SAFETY: the program's own arguments.
    unsafe { endpoint::receive(fd, &InputCall::Pread { buf, n, at }, kept, caller, &host()) }
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

pub(super) unsafe extern "C" fn readv_for(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { endpoint::receive(fd, &InputCall::Readv { iov, count }, None, caller, &host()) }
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
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv(fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the list that the program passed.
    unsafe { before_positioned_list(at, iov, count) };
    // SAFETY: the program's own arguments.
    unsafe { endpoint::receive(fd, &InputCall::Preadv { iov, count, at }, None, 0, &host()) }
}

/// `preadv2(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
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
    // SAFETY: the program's own arguments.
    unsafe {
        endpoint::receive(fd, &InputCall::Preadv2 { iov, count, at, flags }, None, 0, &host())
    }
}

pub(super) unsafe extern "C" fn recv_for(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        match route(buf, n, flags & UNUSUAL != 0) {
            Route::Jump => real::recv(fd, buf, n, flags),
            Route::Framed => recv_framed(fd, buf, n, flags),
            Route::Ours => recv_ours(fd, buf, n, flags, caller),
        }
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
        match route(buf, n, flags & UNUSUAL != 0) {
            Route::Jump => real::recvfrom(fd, buf, n, flags, addr, len),
            Route::Framed => recvfrom_framed(fd, buf, n, flags, addr, len),
            Route::Ours => recvfrom_ours(fd, buf, n, flags, addr, len),
        }
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
unsafe fn recv_ours(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { endpoint::receive(fd, &InputCall::Recv { buf, n, flags }, None, caller, &host()) }
}

#[inline(never)]
unsafe fn recvfrom_ours(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        let call = InputCall::Recvfrom { buf, n, flags, addr, len };
        // (All registers are taken: its call sites share an account, which bears its name.)
        let caller = recvfrom as *const () as usize + 1;
        endpoint::receive(fd, &call, None, caller, &host())
    }
}

pub(super) unsafe extern "C" fn recvmsg_for(
    fd: c_int,
    msg: *mut msghdr,
    flags: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        let call = InputCall::recvmsg(&PROCESS, msg, flags);
        endpoint::receive(fd, &call, None, caller, &host())
    }
}

/// `recvmmsg(2)`: made as it is (faults serve what is unmapped); what arrived is remembered.
///
/// # Safety
/// The caller keeps the contract of the man page.
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
        let most = take(timeout.cast::<[i64; 2]>()).map(|[seconds, more]| {
            let more = Duration::from_nanos(more.max(0) as u64);
            Duration::from_secs(seconds.max(0) as u64).saturating_add(more)
        });
        let once = flags & libc::MSG_WAITFORONE != 0;
        let mut flags = flags & !libc::MSG_WAITFORONE;
        let mut received = 0;
        // (It looks for an error before it looks for bytes.)
        let mut error: c_int = 0;
        let mut len = size_of::<c_int>() as libc::socklen_t;
        let to = (&raw mut error).cast();
        super::sockets::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, to, &raw mut len);
        if error != 0 {
            *libc::__errno_location() = error;
            return -1;
        }
        for i in 0..count as usize {
            let waits = flags & libc::MSG_DONTWAIT == 0;
            if received > 0 && PROCESS.tcp.would_lose_error(fd, waits) {
                break;
            }
            let n = recvmsg(fd, &raw mut (*msgs.add(i)).msg_hdr, flags);
            if n < 0 && received > 0 {
                PROCESS.tcp.keeps_error(fd);
            }
            if n < 0 || !give(&raw mut (*msgs.add(i)).msg_len, n as c_uint) {
                break;
            }
            received += 1;
            if once {
                flags |= libc::MSG_DONTWAIT;
            }
            if most.is_some_and(|most| begun.elapsed() >= most) {
                break;
            }
        }
        if received > 0 { received } else { -1 }
    }
}
