//! Connections begin and end, and are used as rings are not used.
//!
//! unsafe: see the crate.

use super::copy::host;
use super::files::used_past;
use super::signals;
use crate::process::PROCESS;
use crate::real;
use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use libc::{msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use uncopy_kernel::user_access;
use uncopy_log_service::PlainReason;
use uncopy_stack::buffers::{piece, take};
use uncopy_stack::calls::OutputCall;
use uncopy_stack::endpoint;
use uncopy_stack::linux::file;
use uncopy_stack::sendfile::KeptFile;
use uncopy_tcp_calls::data::answer;
use uncopy_tcp_socket::kernel::AT_MARK;

/// `struct sockaddr_in`, `struct sockaddr_in6`: so many words hold either.
type Address = [u32; 7];

/// The address, if it is one of TCP's. `None` too where it cannot be read.
fn address(at: *const sockaddr, bytes: usize) -> Option<SocketAddr> {
    let family: u16 = user_access::read(at.cast())?;
    match c_int::from(family) {
        libc::AF_INET if bytes >= 16 => {
            let [first, ip, ..] = user_access::read(at.cast::<[u32; 4]>())?;
            let port = ((first >> 16) as u16).to_be();
            Some((Ipv4Addr::from(u32::from_be(ip)), port).into())
        }
        libc::AF_INET6 if bytes >= 28 => {
            let words: Address = user_access::read(at.cast())?;
            let port = ((words[0] >> 16) as u16).to_be();
            let ip = [words[2], words[3], words[4], words[5]].map(u32::from_be);
            let ip = ip.iter().fold(0u128, |all, word| all << 32 | u128::from(*word));
            Some((Ipv6Addr::from_bits(ip), port).into())
        }
        _ => None,
    }
}

/// Faults while bytes are copied to and from rings are ours.
fn prepare() {
    if !PROCESS.tcp.in_use() {
        signals::catch_faults();
    }
}

/// `listen(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    PROCESS.lending.before_listen(fd);
    // SAFETY: the program's own arguments.
    unsafe {
        let result = real::listen(fd, backlog);
        if result == 0 && PROCESS.tcp.begun() {
            let errno = *libc::__errno_location();
            PROCESS.tcp.listens(fd);
            *libc::__errno_location() = errno;
        }
        result
    }
}

/// `connect(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if let Some(other) = address(addr, len as usize) {
            PROCESS.lending.before_connect(fd, other.ip());
        }
        if !PROCESS.tcp.begun() {
            return real::connect(fd, addr, len);
        }
        let family: Option<u16> = user_access::read(addr.cast());
        if family == Some(libc::AF_UNSPEC as u16) {
            // The connection is dissolved.
            PROCESS.tcp.dissolves(fd);
        }
        let other = address(addr, len as usize);
        let carried = other.is_some_and(|other| PROCESS.tcp.connects(fd, other));
        let result = real::connect(fd, addr, len);
        let errno = *libc::__errno_location();
        let begins = result == 0 || errno == libc::EINPROGRESS || errno == libc::EINTR;
        if begins && let Some(other) = other {
            prepare();
            PROCESS.tcp.connected(fd, other, (result == 0, carried));
            *libc::__errno_location() = errno;
        } else if carried {
            PROCESS.tcp.does_not_connect(fd);
            *libc::__errno_location() = errno;
        }
        result
    }
}

unsafe fn accepted(
    addr: *mut sockaddr,
    len: *mut socklen_t,
    nonblocking: bool,
    call: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int,
) -> c_int {
    if !PROCESS.tcp.begun() {
        return call(addr, len);
    }
    // SAFETY: the program's own arguments, or ours where it does not want to know the address.
    unsafe {
        let mut own: Address = [0; 7];
        let mut room = size_of::<Address>() as socklen_t;
        let (fd, from) = if addr.is_null() {
            let fd = call((&raw mut own).cast(), &raw mut room);
            (fd, address((&raw const own).cast(), size_of::<Address>()))
        } else {
            let room = take(len).unwrap_or(0) as usize;
            let fd = call(addr, len);
            let from = if fd < 0 {
                None
            } else if room < size_of::<Address>() {
                let name = rustix::net::getpeername(BorrowedFd::borrow_raw(fd)).ok().flatten();
                name.and_then(|name| SocketAddr::try_from(name).ok())
            } else {
                address(addr, room)
            };
            (fd, from)
        };
        if fd >= 0
            && let Some(from) = from
        {
            let errno = *libc::__errno_location();
            prepare();
            PROCESS.tcp.accepted(fd, from, nonblocking);
            *libc::__errno_location() = errno;
        }
        fd
    }
}

/// `accept(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { accepted(addr, len, false, |addr, len| real::accept(fd, addr, len)) }
}

/// `accept4(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    // SAFETY: the program's own arguments.
    unsafe { accepted(addr, len, nonblocking, |addr, len| real::accept4(fd, addr, len, flags)) }
}

/// `shutdown(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    match PROCESS.tcp.shutdown(fd, how) {
        Some(result) => result as c_int,
        // SAFETY: the program's own arguments.
        None => unsafe { real::shutdown(fd, how) },
    }
}

/// `getpeername(2)`: Linux does not know that the peer was killed with bytes unread in its ring.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    PROCESS.tcp.looks_for_death(fd);
    // SAFETY: the program's own arguments.
    unsafe { real::getpeername(fd, addr, len) }
}

/// `setsockopt(2)`: how long calls wait; and what the kernel alone heeds takes the connection, or
/// the listener.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // The second ones have 64-bit times everywhere (asm-generic/socket.h).
    const TIMEOUTS: [c_int; 4] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, 66, 67];
    // SAFETY: the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if PROCESS.tcp.begun() && !PROCESS.tcp.option_may_be_set(fd, level, name) {
        return answer(Err(Errno::BUSY)) as c_int;
    }
    // SAFETY: the program's own arguments.
    let result = unsafe { real::setsockopt(fd, level, name, value, len) };
    if result == 0 && PROCESS.tcp.in_use() && level == libc::SOL_SOCKET && TIMEOUTS.contains(&name)
    {
        PROCESS.tcp.timeouts_changed(fd);
    }
    if result == 0 && PROCESS.tcp.begun() {
        let value = || user_access::read(value.cast::<c_int>()).unwrap_or(0);
        PROCESS.tcp.option_set(fd, level, name, value);
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    result
}

/// `getsockopt(2)`: what Linux tells of a connection is its stand-in's, where the service carries
/// it to another host; and an error may be kept here.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if !PROCESS.tcp.tells(level, name) {
        // SAFETY: the program's own arguments.
        return unsafe { real::getsockopt(fd, level, name, value, len) };
    }
    // SAFETY: the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let room = user_access::read(len.cast_const());
    // SAFETY: the program's own arguments.
    let result = unsafe { real::getsockopt(fd, level, name, value, len) };
    if let (0, Some(room), Some(length)) = (result, room, user_access::read(len.cast_const())) {
        // (It may lie in what was written, or be another thread's too.)
        let length = room.min(length) as usize;
        if !value.is_null() {
            // SAFETY: Linux has just written so many bytes there.
            let told = unsafe { core::slice::from_raw_parts_mut(value.cast(), length) };
            PROCESS.tcp.option_told(fd, name, told);
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    result
}

/// A message is sent with data beside it. Descriptors that go to another process (SCM_RIGHTS) go as
/// Linux's. False: one of them cannot.
///
/// # Safety
/// `header` is the program's.
pub unsafe fn before_control(header: &msghdr) -> bool {
    let mut at = header.msg_control as usize;
    let end = at.saturating_add(header.msg_controllen);
    // `struct cmsghdr`: length (with itself), level, type; then the data, and the next at a
    // multiple of eight.
    while at + 16 <= end {
        let Some([bytes, kind]) = user_access::read(at as *const [u64; 2]) else { return true };
        let bytes = bytes as usize;
        if bytes < 16 {
            return true;
        }
        if kind == u64::from(libc::SOL_SOCKET as u32) | (libc::SCM_RIGHTS as u64) << 32 {
            let last = at.saturating_add(bytes).min(end);
            for fd in (at + 16..last.saturating_sub(3)).step_by(4) {
                let past = |fd| {
                    used_past(fd);
                    !PROCESS.tcp.is_used_past(fd)
                };
                if user_access::read(fd as *const c_int).is_some_and(past) {
                    return false;
                }
            }
        }
        at = at.saturating_add(bytes.next_multiple_of(8));
    }
    true
}

/// So much of a file goes through the ring in any case. More does so where the call cannot wait for
/// room, for another thread may close the file meanwhile, and open another by its number; and where
/// the kernel has its beginning in memory, for Linux reads ahead. Leaving the ring and coming back
/// takes both ends some ten microseconds.
const BY_RING: usize = 64 << 10;

/// `sendfile(2)`: what the kernel has of a file in memory is read into the ring, and what is kept
/// of one is sent from where it is kept; the rest goes by Linux.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        // (Of no bytes the connection is not asked: an error of its is the next call's.)
        if n > 0 && PROCESS.tcp.in_use() {
            let _plain = [to, from].map(|fd| PROCESS.log.plainly(fd, PlainReason::NotAppended));
            return sendfile_to_connection(to, from, at, n);
        }
        real::sendfile(to, from, at, n)
    }
}

#[inline(never)]
unsafe fn sendfile_to_connection(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        if !file::perhaps(&PROCESS, n) {
            return sendfile_otherwise(to, from, at, n);
        }
        let begun = Begun::new(to, from);
        begun.may_wait();
        match send_kept_file(&begun, at, n) {
            None => sendfile_otherwise(to, from, at, n),
            Some((answer, true)) => answer,
            // (Linux would be named another file, or another connection.)
            Some((sent, false)) if !begun.is_the_same() => sent,
            // (It was kept so far.)
            Some((sent, false)) => {
                let more = sendfile_otherwise(to, from, at, n - sent as usize);
                if more < 0 {
                    keeps_error(to);
                }
                sent + more.max(0)
            }
        }
    }
}

/// What a call of sendfile began with. Linux holds both for the whole call; ours are named by their
/// numbers, which may be others' after it has waited.
struct Begun {
    to: c_int,
    from: c_int,
    /// Device and inode of both, once it may wait.
    were: Cell<Option<[(u64, u64); 2]>>,
}

impl Begun {
    fn new(to: c_int, from: c_int) -> Self {
        Self { to, from, were: Cell::new(None) }
    }

    fn are(&self) -> Option<[(u64, u64); 2]> {
        let which = |fd| stat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        Some([which(self.to)?, which(self.from)?])
    }

    /// The call may wait from here on.
    fn may_wait(&self) {
        if self.were.get().is_none() {
            self.were.set(self.are());
        }
    }

    fn is_the_same(&self) -> bool {
        self.were.get().is_none_or(|were| self.are() == Some(were))
    }

    /// The file's own position moves from `begun` to `end`, if nobody has moved it. (Another's that
    /// has its number by now stays.)
    fn moves(&self, begun: off_t, end: off_t) {
        // SAFETY: of the program's own file.
        unsafe {
            let waited = self.were.get().is_some();
            if !waited || self.is_the_same() && libc::lseek(self.from, 0, libc::SEEK_CUR) == begun {
                libc::lseek(self.from, end, libc::SEEK_SET);
            }
        }
    }
}

/// `None`: nothing has happened. Else the answer, and whether it is the call's.
unsafe fn send_kept_file(begun: &Begun, at: *mut off_t, n: usize) -> Option<(ssize_t, bool)> {
    let (mut is_over, mut kept) = (false, None);
    let send = |place: off_t, bytes: usize| {
        // (Linux answers what no file can have.)
        let end = off_t::try_from(bytes).ok().and_then(|bytes| place.checked_add(bytes));
        if is_over || end.is_none() {
            return None;
        }
        if kept.is_none() {
            kept = KeptFile::new((begun.to, begun.from), bytes, &host());
        }
        let sent = kept.as_ref()?.send(place as u64, bytes, &host())?;
        is_over = sent.is_over;
        Some(sent.answer)
    };
    // SAFETY: the program's own arguments.
    let answer = unsafe { in_parts(begun, at, n, send) }?;
    Some((answer, is_over || answer == n as ssize_t))
}

unsafe fn sendfile_otherwise(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        let by_ring = match n {
            0 => false,
            1..=BY_RING => PROCESS.tcp.is_at_ring(to),
            _ => PROCESS.tcp.is_at_ring_and_never_waits(to),
        };
        if by_ring && let Some(sent) = read_and_send(to, from, at, n) {
            return sent;
        }
        PROCESS.tcp.sending_past(to, 0, || real::sendfile(to, from, at, n))
    }
}

/// `None`: nothing has happened.
unsafe fn read_and_send(to: c_int, from: c_int, at: *mut off_t, n: usize) -> Option<ssize_t> {
    let begun = Begun::new(to, from);
    let mut sends = false;
    let send = |place: off_t, n: usize| {
        let direct = PROCESS.tcp.send_file(to, from, place as u64, n);
        let read = || {
            begun.may_wait();
            // SAFETY: as the caller says.
            unsafe { send_part(to, from, place, n) }
        };
        let outcome = direct.or_else(|| (sends || n <= BY_RING && is_regular(from)).then(read));
        sends = true;
        outcome
    };
    // SAFETY: as the caller says.
    unsafe { in_parts(&begun, at, n, send) }
}

/// Sends a file from `*at` on, or from its position, which moves, by `send`: that is named the next
/// place and how many bytes are left, and answers as `sendfile` does. `None` of it: no more goes
/// so. `None`: nothing has happened.
unsafe fn in_parts(
    call: &Begun,
    at: *mut off_t,
    n: usize,
    mut send: impl FnMut(off_t, usize) -> Option<ssize_t>,
) -> Option<ssize_t> {
    let begun = match at.is_null() {
        // SAFETY: asks only.
        true => unsafe { libc::lseek(call.from, 0, libc::SEEK_CUR) },
        false => user_access::read(at)?,
    };
    if begun < 0 {
        return None;
    }
    let mut sent = 0;
    while sent < n && (sent == 0 || call.is_the_same()) {
        let Some(outcome) = send(begun + sent as off_t, n - sent) else { break };
        if outcome <= 0 {
            if sent == 0 {
                return Some(outcome);
            }
            // The next call is told of it.
            if outcome < 0 && call.is_the_same() {
                keeps_error(call.to);
            }
            break;
        }
        sent += outcome as usize;
    }
    if sent == 0 {
        return None;
    }
    let end = begun + sent as off_t;
    if at.is_null() {
        call.moves(begun, end);
    } else {
        // SAFETY: the program's own position.
        unsafe { user_access::write(at, &end) };
    }
    Some(sent as ssize_t)
}

/// The connection's error is told to the next call. (A file that cannot be read is no news of it.)
fn keeps_error(to: c_int) {
    if std::io::Error::last_os_error().raw_os_error() != Some(libc::EIO) {
        PROCESS.tcp.keeps_error(to);
    }
}

fn is_regular(file: c_int) -> bool {
    stat(file).is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// (errno is left alone.)
fn stat(fd: c_int) -> Option<rustix::fs::Stat> {
    // SAFETY: the program's number, for the kernel, which checks it.
    (fd >= 0).then(|| rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()).flatten()
}

/// The part of a file that has to be waited for, or goes by Linux after all: a little of it by a
/// buffer of ours. 0: the file ends.
unsafe fn send_part(to: c_int, from: c_int, place: off_t, n: usize) -> ssize_t {
    const PART: usize = 8 << 10;
    let mut part = [0u8; PART];
    let buffer = part.as_mut_ptr().cast::<c_void>();
    // SAFETY: our own buffer; the file is the program's.
    unsafe {
        let got = real::pread(from, buffer, PART.min(n), place);
        if got <= 0 {
            return got;
        }
        let call = OutputCall::Send { buf: buffer, n: got as usize, flags: 0 };
        endpoint::send_as_it_is(&PROCESS, to, &call)
    }
}

/// `sendfile64`: on x86-64 the same.
///
/// # Safety
/// As for [`sendfile`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t {
    // SAFETY: the same function.
    unsafe { sendfile(to, from, at, n) }
}

/// `splice(2)`: what it sends goes by Linux; where it receives, the connection is Linux's from then
/// on. Bytes that lie in the ring and that nobody takes back are copied.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    at: *mut off_t,
    to: c_int,
    there: *mut off_t,
    n: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    let splice = || unsafe { real::splice(from, at, to, there, n, flags) };
    // (Of no bytes nothing is looked at.)
    if n == 0 || !PROCESS.tcp.in_use() {
        return splice();
    }
    let _plain = [to, from].map(|fd| PROCESS.log.plainly(fd, PlainReason::NotAppended));
    let copied = (!PROCESS.tcp.give_to_linux_or_copy(from))
        // SAFETY: the program's own arguments.
        .then(|| unsafe { splice_copied(from, at, to, there, n, flags) });
    if let Some(Some(answer)) = copied {
        return answer;
    }
    let waits = if flags & libc::SPLICE_F_NONBLOCK != 0 { libc::MSG_DONTWAIT } else { 0 };
    let done = PROCESS.tcp.sending_past(to, waits, splice);
    // (The connection may have gone back to Linux by a call that was told of its error.)
    if done <= 0
        && let Some(error) = PROCESS.tcp.take_error(from)
    {
        return answer(Err(error));
    }
    done
}

/// Of a connection into a pipe. `None`: that is not what is asked for, or an urgent byte is next,
/// and the kernel says so.
unsafe fn splice_copied(
    from: c_int,
    at: *mut off_t,
    to: c_int,
    there: *mut off_t,
    n: usize,
    flags: c_uint,
) -> Option<ssize_t> {
    const PART: usize = 8 << 10;
    // SAFETY: questions; the program's own numbers. The buffers are ours.
    unsafe {
        let is_pipe = real::fcntl(to, libc::F_GETPIPE_SZ, 0) >= 0;
        if !at.is_null() || !there.is_null() || !is_pipe || n == 0 {
            return None;
        }
        let mut part = [0u8; PART];
        let nonblocking = flags & libc::SPLICE_F_NONBLOCK != 0
            || real::fcntl(to, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0;
        let flags = if nonblocking { libc::MSG_DONTWAIT } else { 0 };
        // The room that the pipe has now: so much is taken, and no other thread gets any of it
        // meanwhile.
        let is_full = core::cell::Cell::new(false);
        let put = |bytes: &[u8]| {
            let piece = [piece(bytes.as_ptr() as usize, bytes.len())];
            let put = real::pwritev2(to, piece.as_ptr(), 1, -1, libc::RWF_NOWAIT);
            let error = || Errno::from_raw_os_error(*libc::__errno_location());
            is_full.set(put < 0 && error() == Errno::AGAIN);
            usize::try_from(put).map_err(|_| error())
        };
        loop {
            // (Of this round: there may be nothing to put.)
            is_full.set(false);
            let room = PART.min(n);
            let outcome = PROCESS.tcp.receive_by(from, &mut part[..room], flags, put)?;
            if outcome == Err(AT_MARK) {
                return None;
            }
            if is_full.get() && !nonblocking {
                let mut full = libc::pollfd { fd: to, events: libc::POLLOUT, revents: 0 };
                if real::poll(&mut full, 1, -1) < 0 {
                    return Some(-1);
                }
                continue;
            }
            return Some(answer(outcome));
        }
    }
}
