//! Sending by reference: `vmsplice` of pool pages into a pipe of ours, `splice` from there to the
//! program's socket. (A pipe of the program's takes the pages itself.)
//!
//! The result must be what the plain call would have had. So whatever is not clear (a short count
//! on a blocking socket, a refusal) ends in the plain call for what is left. Bytes that stay in our
//! pipe are thrown away with it.
//!
//! unsafe: system calls on descriptors that are ours, or that the program named.

use crate::ask::{ask, cork, status_flags, writable};
use crate::kind::{Kind, Sockets, fits};
use crate::left;
use crate::pieces::Pieces;
use crate::pipes::{PIPES, Pipe, Pipes};
use core::ffi::{c_int, c_uint};
use core::net::IpAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::iovec;
use uncopy_inject::{Call, Error};
use uncopy_kernel::call::syscall4;
use uncopy_kernel::inject;
use uncopy_kernel::sigpipe::WithoutSigpipe;

/// The libc functions behind ours: where the program's own call could wait, and could be cancelled,
/// so can these.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// `splice(2)`.
    pub splice: unsafe fn(c_int, *mut i64, c_int, *mut i64, usize, c_uint) -> isize,
    /// `vmsplice(2)`.
    pub vmsplice: unsafe fn(c_int, *const iovec, usize, c_uint) -> isize,
    /// `sendmsg(2)`.
    pub sendmsg: unsafe fn(c_int, *const libc::msghdr, c_int) -> isize,
}

/// A call that may go by reference.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The program's descriptor.
    pub fd: i32,
    /// `MSG_MORE` was said.
    pub more: bool,
    /// `MSG_NOSIGNAL` was said.
    pub no_signal: bool,
    /// How to call.
    pub calls: Calls,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// Nothing was sent: the plain call is to be made.
    No,
    /// It is done: what the call returns (with errno set where that is -1).
    Done(isize),
    /// So many bytes were sent; the plain call is to be made for the rest.
    Rest(usize),
}

/// The means that a process lends with: its pipes, and what it knows of the program's sockets.
#[derive(Debug)]
pub struct Lending {
    /// All bits the other way round: nothing may go by reference until it is allowed.
    from: AtomicUsize,
    pipes: Pipes,
    sockets: Sockets,
}

impl Default for Lending {
    fn default() -> Self {
        Self::new()
    }
}

impl Lending {
    /// Where in it the word lies that says from how many bytes on, all its bits the other way
    /// round, for the entry points of output calls.
    pub const FROM: usize = core::mem::offset_of!(Self, from);

    /// Nothing goes by reference.
    pub const fn new() -> Self {
        Self { from: AtomicUsize::new(0), pipes: Pipes::new(), sockets: Sockets::new() }
    }

    /// Calls of so many bytes and more may go by reference. For the constructor.
    pub fn allow(&self, from: usize) {
        self.from.store(!from, Ordering::Relaxed);
    }

    /// From how many bytes on a call may go by reference.
    #[inline]
    pub fn from(&self) -> usize {
        !self.from.load(Ordering::Relaxed)
    }

    /// The kind of `fd`, if it takes pages.
    pub fn kind(&self, fd: i32) -> Option<Kind> {
        self.sockets.kind(fd)
    }

    /// Before the program listens with `fd`: see `pacing.rs`.
    pub fn before_listen(&self, fd: i32) {
        self.sockets.pacing.before_listen(fd);
    }

    /// Before the program connects `fd` to `address`.
    pub fn before_connect(&self, fd: i32, address: IpAddr) {
        self.sockets.pacing.before_connect(fd, address);
    }

    /// Our pipes: `close` and its kin leave them alone.
    pub fn descriptors(&self) -> [i32; PIPES] {
        self.pipes.descriptors()
    }

    /// The program takes the number `fd` for itself (dup2, which closes what is there). Not in a
    /// child of vfork, which has a table of its own, but our memory.
    pub fn make_way(&self, fd: i32) {
        self.pipes.make_way(fd);
    }

    /// In a forked child: the pipes are the parent's, with what is in them.
    pub fn after_fork_child(&self) {
        self.pipes.after_fork_child();
    }

    /// No pipe of ours stays open, but those in use.
    pub fn close(&self) {
        self.pipes.close();
    }

    /// Sends `pieces`, of which those with a bit in `lent` are pool pages that stay as they are for
    /// ever, to what [`Lending::kind`] said of the descriptor.
    pub fn send(&'static self, kind: Kind, target: &Target, pieces: &[iovec], lent: u64) -> Lent {
        let before = errno();
        let pieces = Pieces { all: pieces, lent };
        let under_way = left::Sending::begin();
        let outcome = match kind {
            Kind::Tcp => to_tcp(&self.pipes, target, &pieces),
            Kind::Unix => to_socket(&self.pipes, target, &pieces),
            Kind::Pipe => to_pipe(target, &pieces),
        };
        drop(under_way);
        if outcome != Lent::Done(-1) {
            set_errno(before);
        }
        outcome
    }
}

/// The return value of the plain call: what was sent, or its error.
fn done(sent: usize) -> Lent {
    Lent::Done(if sent > 0 { sent as isize } else { -1 })
}

/// The rest (or all of it) is for the plain call.
fn plainly(sent: usize) -> Lent {
    if sent > 0 { Lent::Rest(sent) } else { Lent::No }
}

/// One batch of pages between a head and a tail is one burst of segments, with one waking of the
/// receiver, if these two are sent beside it rather than through the pipe.
fn to_tcp(pipes: &'static Pipes, target: &Target, pieces: &Pieces<'_>) -> Lent {
    let Some((head, body)) = pieces.single_batch() else {
        let _corked = Corked::begin(target);
        return to_socket(pipes, target, pieces);
    };
    let Some(mut pipe) = pipes.claim() else { return Lent::No };
    let total = pieces.bytes();
    if pipe.load(pieces, head, true) != body {
        return Lent::No;
    }
    if head > 0 {
        let (list, _) = pieces.run(0).unwrap_or_else(|| pieces.collect(0, true));
        let no_signal = if target.no_signal { libc::MSG_NOSIGNAL } else { 0 };
        let msg = message(list.get());
        // SAFETY: pieces of the program's call.
        let n = unsafe { (target.calls.sendmsg)(target.fd, &msg, libc::MSG_MORE | no_signal) };
        if n != head as isize {
            return Lent::Done(n);
        }
    }
    let more = target.more || head + body < total;
    let n = splice(target, pipe.fd, body, more, head > 0);
    if n != body as isize {
        return stopped(target, &pipe, pieces, Stopped { sent: head, left: body, n, more });
    }
    pipe.used = false;
    if head + body == total { done(total) } else { finish(target, pieces, head + body) }
}

/// Bytes behind the last piece that goes by reference.
fn tail(pieces: &Pieces<'_>) -> usize {
    let last = 64 - pieces.lent.leading_zeros() as usize;
    pieces.all[last.min(pieces.all.len())..].iter().map(|p| p.iov_len).sum()
}

/// Sends what is left, none of it by reference, as the plain call would have gone on.
fn finish(target: &Target, pieces: &Pieces<'_>, sent: usize) -> Lent {
    let (rest, _) = pieces.collect(sent, false);
    let more = if target.more { libc::MSG_MORE } else { 0 };
    let msg = message(rest.get());
    // SAFETY: pieces of the program's call.
    let n = unsafe { (target.calls.sendmsg)(target.fd, &msg, libc::MSG_NOSIGNAL | more) };
    done(sent + n.max(0) as usize)
}

/// Between two batches the kernel lets go of the socket, and timers and acknowledgements send what
/// does not fill a segment yet (53 bytes of each 64 KB on loopback), MSG_MORE or not. A cork holds
/// that back until the end.
struct Corked(Option<i32>);

impl Corked {
    fn begin(target: &Target) -> Self {
        // (A message that the program holds back itself stays so.)
        let free = !target.more && ask(target.fd, libc::SOL_TCP, libc::TCP_CORK) == Some((0, 4));
        if free {
            left::Sending::corks(Some(target.fd));
        }
        Self((free && cork(target.fd, 1)).then_some(target.fd))
    }
}

impl Drop for Corked {
    fn drop(&mut self) {
        if let Some(fd) = self.0 {
            cork(fd, 0);
        }
        left::Sending::corks(None);
    }
}

fn message(pieces: &[iovec]) -> libc::msghdr {
    // SAFETY: all zeros is an empty header.
    let mut msg: libc::msghdr = unsafe { core::mem::zeroed() };
    msg.msg_iov = pieces.as_ptr().cast_mut();
    msg.msg_iovlen = pieces.len();
    msg
}

fn to_socket(pipes: &'static Pipes, target: &Target, pieces: &Pieces<'_>) -> Lent {
    let total = pieces.bytes();
    let Some(mut pipe) = pipes.claim() else { return Lent::No };
    let mut sent = 0;
    loop {
        let loaded = pipe.load(pieces, sent, false);
        if loaded == 0 {
            return plainly(sent);
        }
        let more = target.more || sent + loaded < total;
        let n = splice(target, pipe.fd, loaded, more, sent > 0);
        if n != loaded as isize {
            return stopped(target, &pipe, pieces, Stopped { sent, left: loaded, n, more });
        }
        pipe.used = false;
        sent += loaded;
        if sent == total {
            return done(sent);
        }
        if total - sent <= tail(pieces) {
            return finish(target, pieces, sent);
        }
    }
}

fn to_pipe(target: &Target, pieces: &Pieces<'_>) -> Lent {
    let flags = status_flags(target.fd);
    let all = pieces.lent.count_ones() as usize == pieces.all.len();
    if flags < 0 || flags & libc::O_DIRECT != 0 || !all || !fits(Kind::Pipe, pieces.all) {
        return Lent::No;
    }
    let wait = if flags & libc::O_NONBLOCK != 0 { libc::SPLICE_F_NONBLOCK } else { 0 };
    let total = pieces.bytes();
    let mut sent = 0;
    while let Some((run, _)) = pieces.run(sent) {
        let most = match inject::draw(Call::Vmsplice, run.count == 1) {
            None => run.count,
            Some(Error::Short) => run.count / 2,
            Some(_) => return plainly(sent),
        };
        // SAFETY: pinned pool pages; the program's descriptor.
        let n = unsafe { (target.calls.vmsplice)(target.fd, run.get().as_ptr(), most, wait) };
        match (n, errno()) {
            (1.., _) => sent += n as usize,
            (_, libc::EAGAIN | libc::EINTR | libc::EPIPE) => return done(sent),
            _ => return plainly(sent),
        }
    }
    debug_assert_eq!(sent, total);
    done(sent)
}

/// Sends from our pipe. `quietly`: without a SIGPIPE, as where the plain call has sent something
/// already.
fn splice(target: &Target, pipe: i32, len: usize, more: bool, quietly: bool) -> isize {
    if let Some(error) = inject::draw(Call::Splice, true) {
        set_errno(error.errno());
        return -1;
    }
    let flags = if more { libc::SPLICE_F_MORE } else { 0 };
    let null = core::ptr::null_mut();
    // SAFETY: from a pipe of ours to the descriptor that the program named.
    let make = || unsafe { (target.calls.splice)(pipe, null, target.fd, null, len, flags) };
    if target.no_signal || quietly {
        let without = WithoutSigpipe::begin();
        let n = make();
        let why = errno();
        without.end(n < 0 && why == libc::EPIPE);
        set_errno(why);
        n
    } else {
        make()
    }
}

/// How far it got: `sent` before, then `n` (or -1) of the `left` bytes in the pipe.
struct Stopped {
    sent: usize,
    left: usize,
    n: isize,
    more: bool,
}

/// Not all went out: tells what the plain call would have said.
fn stopped(target: &Target, pipe: &Pipe, pieces: &Pieces<'_>, s: Stopped) -> Lent {
    let Stopped { mut sent, mut left, mut n, more } = s;
    let blocking = status_flags(target.fd) & libc::O_NONBLOCK == 0;
    loop {
        let why = if n < 0 { errno() } else { libc::EINTR };
        sent += n.max(0) as usize;
        left -= n.max(0) as usize;
        match why {
            libc::EINTR => {}
            // The socket takes no pages, or this process may not splice.
            libc::EINVAL
            | libc::EPERM
            | libc::EACCES
            | libc::ENOSYS
            | libc::ENOMEM
            | libc::ENOBUFS
            | libc::EBADF
            | libc::EOPNOTSUPP
            | libc::ENOTCONN
            | libc::EFAULT => return plainly(sent),
            // The plain call would have met it too: no room, the time is over, a reset.
            _ => return done(sent),
        }
        if blocking {
            // A signal has come, or the time was over. Bytes that the plain call would have sent
            // without waiting go out all the same.
            let (rest, _) = pieces.collect(sent, false);
            sent += send_now(target, rest.get(), target.more).max(0) as usize;
            set_errno(why);
            return done(sent);
        }
        // The plain call would have stopped only where there is no room. (Asking makes the kernel
        // tell when there is some again; an error stays for the next call.)
        if sent > 0 && !writable(target.fd) {
            return done(sent);
        }
        n = splice(target, pipe.fd, left, more, sent > 0);
        if n == left as isize {
            sent += left;
            return if sent == pieces.bytes() { done(sent) } else { Lent::Rest(sent) };
        }
    }
}

/// Sends without waiting, plainly.
fn send_now(target: &Target, pieces: &[iovec], more: bool) -> isize {
    let msg = message(pieces);
    let more = if more { libc::MSG_MORE } else { 0 };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
    let msg = core::ptr::from_ref(&msg) as usize;
    // SAFETY: pieces of the program's call.
    unsafe { syscall4(libc::SYS_sendmsg as usize, target.fd as usize, msg, flags as usize, 0) }
}

fn set_errno(errno: c_int) {
    // SAFETY: errno's address is always valid.
    unsafe { *libc::__errno_location() = errno };
}

fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
