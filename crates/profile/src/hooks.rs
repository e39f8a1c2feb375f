//! The meaning of each input and output call for the data.
//!
//! unsafe: see the crate; reads the lists of buffers that the program passed, as the kernel does.

use crate::interposed;
use crate::sites::site;
use crate::state::{self, FILTER, Program};
use libc::{iovec, mmsghdr, msghdr};
use uncopy_flow::layout::{Call, Kind};
use uncopy_ranges::span::Span;

/// The buffers of a call.
#[derive(Clone, Copy)]
enum Buffers {
    One(usize, usize),
    /// `iovec`s and how many.
    List(usize, usize),
    /// A `msghdr`.
    Message(usize),
}

const IOV_MAX: usize = 1024;

impl Buffers {
    /// Calls `f` with the list, which the program may read.
    ///
    /// # Safety
    /// The kernel has taken the same list without complaint, or `f` is not given one.
    unsafe fn with<R>(self, f: impl FnOnce(&[iovec]) -> R) -> R {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::One(at, len) => f(&[iovec { iov_base: at as *mut _, iov_len: len }]),
                Self::List(at, n) if at != 0 && n <= IOV_MAX => {
                    f(core::slice::from_raw_parts(at as *const iovec, n))
                }
                Self::Message(at) if at != 0 => {
                    let m = &*(at as *const msghdr);
                    Self::List(m.msg_iov as usize, m.msg_iovlen).with(f)
                }
                _ => f(&[]),
            }
        }
    }
}

fn spans(list: &[iovec]) -> impl Iterator<Item = (usize, usize)> + Clone + '_ {
    list.iter().map(|b| (b.iov_base as usize, b.iov_len))
}

/// The kind of `fd`. errno is left alone.
fn kind(fd: usize) -> Kind {
    use rustix::fs::FileType;
    if (fd as i32) < 0 {
        return Kind::Other;
    }
    // SAFETY: used for one system call, which answers EBADF if it is not open.
    let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd as i32) };
    let mode = rustix::fs::fstat(fd).map_or(0, |s| s.st_mode);
    match FileType::from_raw_mode(mode) {
        FileType::Socket => Kind::Socket,
        FileType::RegularFile => Kind::File,
        FileType::Fifo => Kind::Pipe,
        FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
        _ => Kind::Other,
    }
}

/// Watched pages that the kernel is about to read or write are moved in: that is no touch. Returns
/// whether there were any. (A list that is no list is not looked at: nothing is watched then, as a
/// rule, and the kernel's own reading of pages that are away works.)
unsafe fn before(buffers: Buffers) -> bool {
    if !crate::watch::active() || state::idle() {
        return false;
    }
    if let Buffers::One(at, len) = buffers {
        let span = Span::sized(at, len);
        return state::with(|s| s.watch.release(&mut s.follower, &[span])) == Some(true);
    }
    // The list may be unreadable; all come back instead.
    state::with(|s| s.watch.release_all(&mut s.follower)) == Some(true)
}

unsafe fn input(
    call: Call,
    fd: usize,
    buffers: Buffers,
    caller: usize,
    real: impl FnOnce() -> isize,
) -> isize {
    // SAFETY: as `real`'s.
    unsafe {
        before(buffers);
        let got = real();
        arrived(call, fd, buffers, got, caller);
        got
    }
}

unsafe fn arrived(call: Call, fd: usize, buffers: Buffers, got: isize, caller: usize) {
    if got <= 0 || state::idle() {
        return;
    }
    let site = site(call, caller);
    let kind = kind(fd);
    let here = 0u8;
    let stack = core::ptr::from_ref(&here) as usize;
    // SAFETY: the kernel has filled these buffers.
    unsafe {
        buffers.with(|list| {
            state::with(|s| {
                let id = s.follower.input(spans(list), got as usize, site, kind, &Program);
                if let Some(id) = id {
                    let mut rest = got as usize;
                    for (addr, len) in spans(list) {
                        FILTER.track(Span::sized(addr, len.min(rest)));
                        rest -= len.min(rest);
                    }
                    s.watch.consider(&mut s.follower, id, spans(list), got as usize, stack);
                }
            });
        });
    }
}

/// Bytes arrived of which the call brings the same again, or not all: what was there is gone.
unsafe fn overwritten(buffers: Buffers, real: impl FnOnce() -> isize) -> isize {
    // SAFETY: as `real`'s.
    unsafe {
        before(buffers);
        let got = real();
        if got > 0 && !state::idle() {
            buffers.with(|list| {
                spans(list).for_each(|(addr, len)| crate::blocks::ended(Span::sized(addr, len)));
            });
        }
        got
    }
}

unsafe fn output(
    call: Call,
    fd: usize,
    buffers: Buffers,
    caller: usize,
    real: impl FnOnce() -> isize,
) -> isize {
    // SAFETY: as `real`'s.
    unsafe {
        let again = before(buffers);
        let sent = real();
        left(call, fd, buffers, sent, caller, again);
        sent
    }
}

unsafe fn left(call: Call, fd: usize, buffers: Buffers, sent: isize, caller: usize, again: bool) {
    if sent <= 0 || state::idle() {
        return;
    }
    let site = site(call, caller);
    let kind = kind(fd);
    // SAFETY: the kernel has read these buffers.
    unsafe {
        buffers.with(|list| {
            state::with(|s| {
                s.follower.output(spans(list), sent as usize, site, kind, &Program);
                if again {
                    s.watch.take_all(&mut s.follower);
                }
            });
        });
    }
}

unsafe fn passed(
    call: Call,
    from: usize,
    to: usize,
    caller: usize,
    real: impl FnOnce() -> isize,
) -> isize {
    let n = real();
    if n > 0 && !state::idle() {
        let site = site(call, caller);
        let (from, to) = (kind(from), kind(to));
        state::with(|s| s.follower.passed(n as usize, site, from, to));
    }
    n
}

/// The bytes stay in the socket, or are cut off, or are not the stream's.
fn unusual(flags: usize) -> bool {
    flags as i32 & (libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0
}

unsafe fn stream_descriptor(stream: usize) -> usize {
    // SAFETY: the program passed an open stream; errno is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let fd = libc::fileno(stream as *mut libc::FILE);
        *libc::__errno_location() = errno;
        fd as usize
    }
}

unsafe fn stream_read(a: [usize; 6], caller: usize, real: impl FnOnce() -> isize) -> isize {
    let [buf, each, n, stream, ..] = a;
    let buffers = Buffers::One(buf, each.saturating_mul(n));
    // SAFETY: the program's own arguments.
    unsafe {
        before(buffers);
        let got = real();
        let bytes = (got as usize).saturating_mul(each) as isize;
        if bytes > 0 && !state::idle() {
            arrived(Call::fread, stream_descriptor(stream), buffers, bytes, caller);
        }
        got
    }
}

unsafe fn stream_write(a: [usize; 6], caller: usize, real: impl FnOnce() -> isize) -> isize {
    let [buf, each, n, stream, ..] = a;
    let buffers = Buffers::One(buf, each.saturating_mul(n));
    // SAFETY: the program's own arguments.
    unsafe {
        let again = before(buffers);
        let put = real();
        let bytes = (put as usize).saturating_mul(each) as isize;
        if bytes > 0 && !state::idle() {
            left(Call::fwrite, stream_descriptor(stream), buffers, bytes, caller, again);
        }
        put
    }
}

interposed! {
    /// `read(2)`.
    read(a, caller, real) { input(Call::read, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `read(2)` with a known buffer size.
    __read_chk(a, caller, real) { input(Call::read, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `readv(2)`.
    readv(a, caller, real) { input(Call::readv, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `pread(2)`.
    pread(a, caller, real) { input(Call::pread, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `pread64(2)`.
    pread64(a, caller, real) { input(Call::pread, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `pread(2)` with a known buffer size.
    __pread_chk(a, caller, real) { input(Call::pread, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `pread64(2)` with a known buffer size.
    __pread64_chk(a, caller, real) { input(Call::pread, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `preadv(2)`.
    preadv(a, caller, real) { input(Call::preadv, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `preadv64(2)`.
    preadv64(a, caller, real) { input(Call::preadv, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `preadv2(2)`.
    preadv2(a, caller, real) { input(Call::preadv2, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `preadv64v2(2)`.
    preadv64v2(a, caller, real) { input(Call::preadv2, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `recv(2)`.
    recv(a, caller, real) { receive(Call::recv, a, a[3], caller, real) }
    /// `recv(2)` with a known buffer size.
    __recv_chk(a, caller, real) { receive(Call::recv, a, a[4], caller, real) }
    /// `recvfrom(2)`.
    recvfrom(a, caller, real) { receive(Call::recvfrom, a, a[3], caller, real) }
    /// `recvmsg(2)`.
    recvmsg(a, caller, real) {
        let buffers = Buffers::Message(a[1]);
        if unusual(a[2]) {
            overwritten(buffers, || real.call(a))
        } else {
            input(Call::recvmsg, a[0], buffers, caller, || real.call(a))
        }
    }
    /// `recvmmsg(2)`.
    recvmmsg(a, caller, real) {
        before(Buffers::List(0, 0));
        let got = real.call(a);
        for i in 0..(got as i32).max(0) as usize {
            let m = &*(a[1] as *const mmsghdr).add(i);
            let buffers = Buffers::Message(core::ptr::from_ref(&m.msg_hdr) as usize);
            arrived(Call::recvmmsg, a[0], buffers, m.msg_len as isize, caller);
        }
        got
    }
    /// `fread(3)`.
    fread(a, caller, real) { stream_read(a, caller, || real.call(a)) }
    /// `fread_unlocked(3)`.
    fread_unlocked(a, caller, real) { stream_read(a, caller, || real.call(a)) }
    /// `fread(3)` with a known buffer size.
    __fread_chk(a, caller, real) { stream_read([a[0], a[2], a[3], a[4], 0, 0], caller, || real.call(a)) }
    /// `fread_unlocked(3)` with a known buffer size.
    __fread_unlocked_chk(a, caller, real) { stream_read([a[0], a[2], a[3], a[4], 0, 0], caller, || real.call(a)) }
    /// `write(2)`.
    write(a, caller, real) { output(Call::write, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `writev(2)`.
    writev(a, caller, real) { output(Call::writev, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `pwrite(2)`.
    pwrite(a, caller, real) { output(Call::pwrite, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `pwrite64(2)`.
    pwrite64(a, caller, real) { output(Call::pwrite, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `pwritev(2)`.
    pwritev(a, caller, real) { output(Call::pwritev, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `pwritev64(2)`.
    pwritev64(a, caller, real) { output(Call::pwritev, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `pwritev2(2)`.
    pwritev2(a, caller, real) { output(Call::pwritev2, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `pwritev64v2(2)`.
    pwritev64v2(a, caller, real) { output(Call::pwritev2, a[0], Buffers::List(a[1], a[2] as i32 as usize), caller, || real.call(a)) }
    /// `send(2)`.
    send(a, caller, real) { output(Call::send, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `sendto(2)`.
    sendto(a, caller, real) { output(Call::sendto, a[0], Buffers::One(a[1], a[2]), caller, || real.call(a)) }
    /// `sendmsg(2)`.
    sendmsg(a, caller, real) { output(Call::sendmsg, a[0], Buffers::Message(a[1]), caller, || real.call(a)) }
    /// `sendmmsg(2)`.
    sendmmsg(a, caller, real) {
        let again = before(Buffers::List(0, 0));
        let sent = real.call(a);
        for i in 0..(sent as i32).max(0) as usize {
            let m = &*(a[1] as *const mmsghdr).add(i);
            let buffers = Buffers::Message(core::ptr::from_ref(&m.msg_hdr) as usize);
            left(Call::sendmmsg, a[0], buffers, m.msg_len as isize, caller, again);
        }
        sent
    }
    /// `vmsplice(2)`: the pipe refers to the pages, which stay where they are.
    vmsplice(a, caller, real) {
        before(Buffers::List(0, 0));
        let sent = real.call(a);
        left(Call::vmsplice, a[0], Buffers::List(a[1], a[2]), sent, caller, false);
        state::with(|s| s.watch.end(&mut s.follower));
        sent
    }
    /// `fwrite(3)`.
    fwrite(a, caller, real) { stream_write(a, caller, || real.call(a)) }
    /// `fwrite_unlocked(3)`.
    fwrite_unlocked(a, caller, real) { stream_write(a, caller, || real.call(a)) }
    /// `sendfile(2)`.
    sendfile(a, caller, real) { passed(Call::sendfile, a[1], a[0], caller, || real.call(a)) }
    /// `sendfile64(2)`.
    sendfile64(a, caller, real) { passed(Call::sendfile, a[1], a[0], caller, || real.call(a)) }
    /// `splice(2)`.
    splice(a, caller, real) { passed(Call::splice, a[0], a[2], caller, || real.call(a)) }
    /// `tee(2)`.
    tee(a, caller, real) { passed(Call::tee, a[0], a[1], caller, || real.call(a)) }
    /// `copy_file_range(2)`.
    copy_file_range(a, caller, real) { passed(Call::copy_file_range, a[0], a[2], caller, || real.call(a)) }
}

unsafe fn receive(
    call: Call,
    a: [usize; 6],
    flags: usize,
    caller: usize,
    real: &crate::entry::Real,
) -> isize {
    let buffers = Buffers::One(a[1], a[2]);
    // SAFETY: the program's own arguments.
    unsafe {
        if unusual(flags) {
            return overwritten(buffers, || real.call(a));
        }
        input(call, a[0], buffers, caller, || real.call(a))
    }
}
