//! libc's functions by the names of the script.

use core::ffi::{c_int, c_void};
use core::hint::black_box;
use core::mem::zeroed;
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, ssize_t};
use uncopy_torture::op::{CopyBy, InputBy, ListedBy, OutputBy};

use super::raw;

unsafe extern "C" {
    /// `memcpy(3)`; declared here so that the compiler has no opinion about it.
    pub fn memcpy(dst: *mut c_void, src: *const c_void, n: size_t) -> *mut c_void;
    fn memmove(dst: *mut c_void, src: *const c_void, n: size_t) -> *mut c_void;
    fn mempcpy(dst: *mut c_void, src: *const c_void, n: size_t) -> *mut c_void;
    fn bcopy(src: *const c_void, dst: *mut c_void, n: size_t);
    fn __memcpy_chk(d: *mut c_void, s: *const c_void, n: size_t, room: size_t) -> *mut c_void;
    fn __memmove_chk(d: *mut c_void, s: *const c_void, n: size_t, room: size_t) -> *mut c_void;
    fn __mempcpy_chk(d: *mut c_void, s: *const c_void, n: size_t, room: size_t) -> *mut c_void;
    fn __read_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t) -> ssize_t;
    fn __pread_chk(fd: c_int, buf: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn __recvfrom_chk(
        fd: c_int,
        buf: *mut c_void,
        n: size_t,
        room: size_t,
        flags: c_int,
        from: *mut libc::sockaddr,
        len: *mut libc::socklen_t,
    ) -> ssize_t;
}

/// Parts (offset and length) of what begins at `start`, as the kernel takes them.
pub fn list(start: *mut u8, parts: &[(usize, usize)]) -> Vec<iovec> {
    let part = |&(at, len): &(usize, usize)| iovec {
        iov_base: start.wrapping_add(at).cast(),
        iov_len: len,
    };
    parts.iter().map(part).collect()
}

/// A copy at one of several call sites. The ranges may overlap. Returns what the function returned,
/// as an offset from the destination.
///
/// # Safety
/// As for `memmove`.
pub unsafe fn copy(by: CopyBy, site: usize, to: *mut u8, from: *const u8, n: usize) -> isize {
    type Site = unsafe fn(CopyBy, *mut u8, *const u8, usize) -> isize;
    macro_rules! sites {
        ($($n:literal)*) => { [ $( copy_here::<$n> as Site, )* ] };
    }
    static SITES: [Site; 32] = sites!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
        24 25 26 27 28 29 30 31);
    // SAFETY: the caller's promise.
    unsafe { SITES[site % SITES.len()](by, to, from, n) }
}

#[inline(never)]
unsafe fn copy_here<const SITE: usize>(
    by: CopyBy,
    to: *mut u8,
    from: *const u8,
    n: usize,
) -> isize {
    // The code behind this must be of its own for every site.
    black_box(SITE);
    let overlap = (to as usize) < from as usize + n && (from as usize) < to as usize + n;
    let (d, s) = (to.cast::<c_void>(), from.cast::<c_void>());
    // SAFETY: the caller's promise; functions that forbid overlap are not called with it.
    let end = unsafe {
        match by {
            CopyBy::Memmove => memmove(d, s, n),
            CopyBy::MemmoveChk => __memmove_chk(d, s, n, n + 1),
            CopyBy::Bcopy => {
                bcopy(s, d, n);
                d
            }
            _ if overlap => memmove(d, s, n),
            CopyBy::Memcpy => memcpy(d, s, n),
            CopyBy::Mempcpy => mempcpy(d, s, n),
            CopyBy::MemcpyChk => __memcpy_chk(d, s, n, n),
            CopyBy::MempcpyChk => __mempcpy_chk(d, s, n, usize::MAX),
            CopyBy::Inline => {
                core::arch::asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _,
                    inout("rsi") from => _, options(nostack, preserves_flags));
                d
            }
            CopyBy::Kernel => {
                let to = iovec { iov_base: d, iov_len: n };
                let from = iovec { iov_base: s.cast_mut(), iov_len: n };
                let copied = libc::process_vm_readv(raw::pid() as i32, &to, 1, &from, 1, 0);
                return black_box(copied);
            }
        }
    };
    black_box(end as isize - to as isize)
}

/// Whether a call takes several pieces.
pub fn input_is_vectored(by: InputBy) -> bool {
    use InputBy::*;
    matches!(by, Readv | Preadv | Preadv2 | Recvmsg | RawReadv)
}

/// Whether a call takes an offset.
pub fn input_is_placed(by: InputBy) -> bool {
    use InputBy::*;
    matches!(by, Pread | PreadChk | Preadv | Preadv2)
}

/// One input call into `list`; `at` is the offset of those that take one. (`Recvmmsg` is
/// [`receive_messages`].)
///
/// # Safety
/// The list's pieces may be written.
pub unsafe fn input(by: InputBy, fd: c_int, list: &[iovec], at: usize) -> (isize, usize) {
    let (buf, n) = (list[0].iov_base, list[0].iov_len);
    let (iov, count, at) = (list.as_ptr(), list.len() as c_int, at as off_t);
    let mut extra = 0;
    // SAFETY: the caller's promise; addresses of senders go to a variable of their size.
    let result = unsafe {
        let mut from: libc::sockaddr_storage = zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let who = (&raw mut from).cast();
        match by {
            InputBy::Read | InputBy::Recvmmsg => libc::read(fd, buf, n),
            InputBy::ReadChk => __read_chk(fd, buf, n, n),
            InputBy::Readv => libc::readv(fd, iov, count),
            InputBy::Pread => libc::pread(fd, buf, n, at),
            InputBy::PreadChk => __pread_chk(fd, buf, n, at, n + 5),
            InputBy::Preadv => libc::preadv(fd, iov, count, at),
            InputBy::Preadv2 => libc::preadv2(fd, iov, count, at, 0),
            InputBy::Recv => libc::recv(fd, buf, n, 0),
            InputBy::RecvChk => __recv_chk(fd, buf, n, n, 0),
            InputBy::RecvPeek => {
                extra = libc::recv(fd, buf, n, libc::MSG_PEEK) as usize;
                libc::recv(fd, buf, n, 0)
            }
            InputBy::RecvAll => libc::recv(fd, buf, n, libc::MSG_WAITALL),
            InputBy::Recvfrom => {
                let r = libc::recvfrom(fd, buf, n, 0, who, &mut len);
                extra = len as usize;
                r
            }
            InputBy::RecvfromChk => {
                let r = __recvfrom_chk(fd, buf, n, n, 0, who, &mut len);
                extra = len as usize;
                r
            }
            InputBy::Recvmsg => {
                let mut m = message(list);
                let r = libc::recvmsg(fd, &mut m, 0);
                extra = m.msg_flags as usize & !(libc::MSG_EOR as usize);
                r
            }
            InputBy::RawRead => raw_result(libc::SYS_read, fd, buf as usize, n),
            InputBy::RawReadv => raw_result(libc::SYS_readv, fd, iov as usize, list.len()),
        }
    };
    (result, extra)
}

/// A system call by inline assembly, with libc's result.
unsafe fn raw_result(number: i64, fd: c_int, a: usize, b: usize) -> isize {
    // SAFETY: the caller's promise; errno is this thread's own.
    unsafe {
        let result = raw::call(number, [fd as usize, a, b, 0, 0, 0]);
        if result < 0 {
            *libc::__errno_location() = -result as c_int;
            return -1;
        }
        result
    }
}

fn message(list: &[iovec]) -> msghdr {
    // SAFETY: nothing but the list.
    let mut m: msghdr = unsafe { zeroed() };
    m.msg_iov = list.as_ptr().cast_mut();
    m.msg_iovlen = list.len() as _;
    m
}

fn messages(list: &[iovec]) -> Vec<mmsghdr> {
    let header = |i| mmsghdr { msg_hdr: message(core::slice::from_ref(i)), msg_len: 0 };
    list.iter().map(header).collect()
}

/// `recvmmsg`, a message for each piece; also the length and flags of each.
///
/// # Safety
/// The list's pieces may be written.
pub unsafe fn receive_messages(fd: c_int, list: &[iovec]) -> (isize, Vec<(usize, i32)>) {
    let mut all = messages(list);
    let (first, count) = (all.as_mut_ptr(), all.len() as u32);
    // SAFETY: the caller's promise.
    let n = unsafe { libc::recvmmsg(fd, first, count, libc::MSG_DONTWAIT, core::ptr::null_mut()) };
    let got = all.iter().take(n.max(0) as usize);
    (n as isize, got.map(|m| (m.msg_len as usize, m.msg_hdr.msg_flags)).collect())
}

/// Whether a call takes several pieces.
pub fn output_is_vectored(by: OutputBy) -> bool {
    use OutputBy::*;
    matches!(by, Writev | Pwritev | Pwritev2 | Sendmsg | Sendmmsg | Vmsplice)
}

/// Whether a call takes an offset.
pub fn output_is_placed(by: OutputBy) -> bool {
    matches!(by, OutputBy::Pwrite | OutputBy::Pwritev | OutputBy::Pwritev2)
}

/// One output call from `list`.
///
/// # Safety
/// The list's pieces may be read.
pub unsafe fn output(by: OutputBy, fd: c_int, list: &[iovec], at: usize) -> isize {
    let (buf, n) = (list[0].iov_base.cast_const(), list[0].iov_len);
    let (iov, count, at) = (list.as_ptr(), list.len() as c_int, at as off_t);
    let quiet = libc::MSG_NOSIGNAL;
    // SAFETY: the caller's promise.
    unsafe {
        match by {
            OutputBy::Write => libc::write(fd, buf, n),
            OutputBy::Writev => libc::writev(fd, iov, count),
            OutputBy::Pwrite => libc::pwrite(fd, buf, n, at),
            OutputBy::Pwritev => libc::pwritev(fd, iov, count, at),
            OutputBy::Pwritev2 => libc::pwritev2(fd, iov, count, at, 0),
            OutputBy::Send => libc::send(fd, buf, n, quiet),
            OutputBy::Sendto => libc::sendto(fd, buf, n, quiet, core::ptr::null(), 0),
            OutputBy::Sendmsg => libc::sendmsg(fd, &message(list), quiet),
            OutputBy::Sendmmsg => {
                let mut all = messages(list);
                let sent = libc::sendmmsg(fd, all.as_mut_ptr(), all.len() as u32, quiet);
                if sent < 0 {
                    return -1;
                }
                all.iter().take(sent as usize).map(|m| m.msg_len as isize).sum()
            }
            OutputBy::RawWrite => raw_result(libc::SYS_write, fd, buf as usize, n),
            OutputBy::Vmsplice => libc::vmsplice(fd, iov, list.len(), libc::SPLICE_F_NONBLOCK),
        }
    }
}

/// `sendmsg` with MSG_ZEROCOPY (plainly, where the kernel has no room for notes about it).
///
/// # Safety
/// The list's pieces may be read.
pub unsafe fn send_zerocopy(fd: c_int, list: &[iovec]) -> isize {
    let on: c_int = 1;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the caller's promise; the option takes an int.
    unsafe {
        let (value, len) = ((&raw const on).cast(), size_of::<c_int>() as libc::socklen_t);
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, value, len);
        let sent = libc::sendmsg(fd, &message(list), flags | libc::MSG_ZEROCOPY);
        if sent < 0 && *libc::__errno_location() == libc::ENOBUFS {
            return libc::sendmsg(fd, &message(list), flags);
        }
        sent
    }
}

/// A call whose list, and header, lie somewhere in the script's memory.
///
/// # Safety
/// The caller keeps the contract of both calls.
pub unsafe fn listed(
    by: ListedBy,
    fd: c_int,
    list: *const iovec,
    count: usize,
    header: *mut msghdr,
) -> isize {
    let (n, quiet) = (count as c_int, libc::MSG_NOSIGNAL);
    // SAFETY: the caller's promise.
    unsafe {
        match by {
            ListedBy::Readv => libc::readv(fd, list, n),
            ListedBy::Preadv => libc::preadv(fd, list, n, 0),
            ListedBy::Recvmsg => libc::recvmsg(fd, header, 0),
            ListedBy::RawReadv => raw_result(libc::SYS_readv, fd, list as usize, count),
            ListedBy::RawRecvmsg => raw_result(libc::SYS_recvmsg, fd, header as usize, 0),
            ListedBy::Writev => libc::writev(fd, list, n),
            ListedBy::Sendmsg => libc::sendmsg(fd, header, quiet),
            ListedBy::RawWritev => raw_result(libc::SYS_writev, fd, list as usize, count),
        }
    }
}
