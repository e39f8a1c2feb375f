//! Sending by reference: `vmsplice` of pool pages into a pipe of ours, `splice` from there to the program's
//! socket. (A pipe of the program's takes the pages itself.)
//!
//! The result must be what the plain call would have had. So whatever is not clear (a short count on a
//! blocking socket, a refusal) ends in the plain call for what is left. What stays in our pipe is thrown
//! away with it.
//!
//! unsafe: system calls on descriptors that are ours, or that the program named.

use crate::critical::{syscall4, syscall6};
use crate::inject;
use crate::sigpipe::WithoutSigpipe;
use crate::space::lift;
use crate::stats::COUNTERS;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use libc::iovec;
use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use uncopy_core::counters::add;
use uncopy_core::inject::{Call, Error};
use uncopy_core::plan::MAX_PIECES;
use uncopy_core::span::{PAGE, Span};

/// The libc functions behind ours: where the program's own call could wait, and could be cancelled, so can
/// these.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// `splice(2)`.
    pub splice: unsafe fn(c_int, *mut i64, c_int, *mut i64, usize, c_uint) -> isize,
    /// `vmsplice(2)`.
    pub vmsplice: unsafe fn(c_int, *const iovec, usize, c_uint) -> isize,
    /// `sendmsg(2)`.
    pub sendmsg: unsafe fn(c_int, *const libc::msghdr, c_int) -> isize,
}

/// What takes pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TCP socket.
    Tcp,
    /// A UNIX stream socket.
    Unix,
    /// A pipe.
    Pipe,
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

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// Nothing was sent: the plain call is to be made.
    No,
    /// It is done: what the call returns (with errno set where that is -1).
    Done(isize),
    /// So many bytes were sent; the plain call is to be made for the rest.
    Rest(usize),
}

static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Whether they may go over paced connections within this host.
static PACED: AtomicBool = AtomicBool::new(false);

/// Calls of so many bytes and more may go by reference, also over paced connections within this host or not. For
/// the constructor.
pub fn allow(from: usize, paced: bool) {
    PACED.store(paced, Ordering::Relaxed);
    FROM.store(from, Ordering::Relaxed);
}

/// From how many bytes on a call may go by reference.
#[inline]
pub fn from() -> usize {
    FROM.load(Ordering::Relaxed)
}

/// Pipes at once: one for each call under way.
pub const PIPES: usize = 8;
/// Bytes that a pipe should hold, best first; 1 MB is what the kernel allows to all (`pipe-max-size`). With
/// less than the last it is of no use.
const ROOM: [usize; 4] = [2 << 20, 1 << 20, 256 << 10, 64 << 10];
/// Pages that the kernel hands from a pipe to a socket at once.
const BATCH: usize = 16;
/// After a pipe was refused, so many calls go plainly.
const REST: u32 = 1024;

struct Slot {
    busy: AtomicBool,
    /// Open for both reading and writing, so that there is one descriptor to be sure of. -1: none.
    fd: AtomicI32,
    /// Tells whether the number is still ours: programs close numbers past us.
    inode: AtomicU64,
}

static SLOTS: [Slot; PIPES] = [const {
    Slot { busy: AtomicBool::new(false), fd: AtomicI32::new(-1), inode: AtomicU64::new(0) }
}; PIPES];
static RESTING: AtomicU32 = AtomicU32::new(0);

/// Our pipes: `close` and its kin leave them alone.
pub fn descriptors() -> [i32; PIPES] {
    core::array::from_fn(|i| SLOTS[i].fd.load(Ordering::Relaxed))
}

/// The program takes the number `fd` for itself (dup2, which closes what is there).
pub fn make_way(fd: i32) {
    // A child of vfork has a table of its own, but our memory.
    if !crate::space::in_own_process() {
        return;
    }
    for slot in &SLOTS {
        let _ = slot.fd.compare_exchange(fd, -1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// In a forked child: the pipes are the parent's, with what is in them.
pub fn after_fork_child() {
    for slot in &SLOTS {
        slot.close();
        slot.busy.store(false, Ordering::Relaxed);
    }
}

/// No pipe of ours stays open, but those in use.
pub fn close() {
    for slot in &SLOTS {
        if !slot.busy.swap(true, Ordering::Acquire) {
            slot.close();
            slot.busy.store(false, Ordering::Release);
        }
    }
}

fn status(fd: i32) -> Option<(FileType, u64)> {
    if fd < 0 {
        return None;
    }
    // SAFETY: borrowed for one call, which answers EBADF where nothing is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let s = inject::check(Call::Fstat).and_then(|()| rustix::fs::fstat(fd)).ok()?;
    Some((FileType::from_raw_mode(s.st_mode), s.st_ino))
}

impl Slot {
    fn ours(&self) -> bool {
        let fd = self.fd.load(Ordering::Relaxed);
        fd >= 0 && status(fd) == Some((FileType::Fifo, self.inode.load(Ordering::Relaxed)))
    }

    fn close(&self) {
        let ours = self.ours();
        let fd = self.fd.swap(-1, Ordering::Relaxed);
        if ours {
            // SAFETY: it is our pipe; nobody uses it.
            unsafe { syscall4(libc::SYS_close as usize, fd as usize, 0, 0, 0) };
        }
    }

    fn open(&self) -> Result<(), Errno> {
        inject::check(Call::Pipe)?;
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (_read, write) = rustix::pipe::pipe_with(flags)?;
        let set = |room: &usize| {
            inject::check(Call::PipeSize)
                .and_then(|()| rustix::pipe::fcntl_setpipe_size(&write, *room))
                .is_ok()
        };
        if !ROOM.iter().any(set) && rustix::pipe::fcntl_getpipe_size(&write)? < ROOM[ROOM.len() - 1]
        {
            return Err(Errno::NOMEM);
        }
        let mut path = [0u8; 32];
        let name = {
            use std::io::Write;
            let mut to = &mut path[..31];
            let _ = write!(to, "/proc/self/fd/{}", write.as_raw_fd());
            core::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?
        };
        inject::check(Call::Open)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let both = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
        let both = lift(&both).unwrap_or(both);
        let (_, inode) = status(both.as_raw_fd()).ok_or(Errno::BADF)?;
        self.inode.store(inode, Ordering::Relaxed);
        self.fd.store(both.into_raw_fd(), Ordering::Relaxed);
        Ok(())
    }
}

/// A pipe in use by this call.
struct Pipe {
    slot: &'static Slot,
    fd: i32,
    /// Something may be left in it.
    used: bool,
}

impl Pipe {
    fn claim() -> Option<Self> {
        let resting = RESTING.load(Ordering::Relaxed);
        if resting > 0 {
            RESTING.store(resting - 1, Ordering::Relaxed);
            return None;
        }
        let slot = SLOTS
            .iter()
            .find(|s| !s.busy.load(Ordering::Relaxed) && !s.busy.swap(true, Ordering::Acquire))?;
        if !slot.ours() {
            slot.fd.store(-1, Ordering::Relaxed);
            if slot.open().is_err() {
                slot.busy.store(false, Ordering::Release);
                RESTING.store(REST, Ordering::Relaxed);
                return None;
            }
        }
        Some(Self { slot, fd: slot.fd.load(Ordering::Relaxed), used: false })
    }

    /// Puts bytes in, from `at` on, as many as there is room for (or those of one sort). Returns how many;
    /// 0: refused.
    fn load(&mut self, pieces: &Pieces<'_>, at: usize, one_sort: bool) -> usize {
        let mut loaded = 0;
        self.used = true;
        while let Some((run, lent)) = pieces.run(at + loaded) {
            let n = put(self.fd, &run, lent).max(0) as usize;
            loaded += n;
            if one_sort || n < run.bytes() {
                break;
            }
        }
        loaded
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.used {
            self.slot.close();
        }
        self.slot.busy.store(false, Ordering::Release);
    }
}

/// Puts pieces of one sort into our pipe: by reference, or copied by the kernel.
fn put(pipe: i32, run: &List, lent: bool) -> isize {
    let run = run.get();
    let most = match inject::draw(Call::Vmsplice, run.len() == 1) {
        None => run.len(),
        Some(Error::Short) => run.len() / 2,
        Some(error) => return -(error.errno() as isize),
    };
    let (call, flags) = if lent {
        (libc::SYS_vmsplice, libc::SPLICE_F_NONBLOCK as usize)
    } else {
        (libc::SYS_writev, 0)
    };
    // SAFETY: into a pipe of ours, from pinned pool pages or from what the program named.
    unsafe { syscall4(call as usize, pipe as usize, run.as_ptr() as usize, most, flags) }
}

/// Pieces of a call, or some of them.
struct List {
    pieces: [iovec; MAX_PIECES],
    count: usize,
}

impl List {
    fn get(&self) -> &[iovec] {
        &self.pieces[..self.count]
    }

    fn bytes(&self) -> usize {
        self.get().iter().map(|p| p.iov_len).sum()
    }
}

/// What is to be sent.
struct Pieces<'a> {
    all: &'a [iovec],
    /// A bit for each that goes by reference.
    lent: u64,
}

impl Pieces<'_> {
    /// From byte `from` on: all that is left, or all of one sort.
    fn collect(&self, from: usize, one_sort: bool) -> (List, bool) {
        let nothing = iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
        let mut list = List { pieces: [nothing; MAX_PIECES], count: 0 };
        let (mut before, mut first) = (0, None);
        for (i, p) in self.all.iter().enumerate() {
            let skip = from.saturating_sub(before);
            before += p.iov_len;
            if skip >= p.iov_len {
                continue;
            }
            let sort = self.lent >> i & 1 != 0;
            if one_sort && *first.get_or_insert(sort) != sort {
                break;
            }
            let iov_base = p.iov_base.wrapping_byte_add(skip);
            list.pieces[list.count] = iovec { iov_base, iov_len: p.iov_len - skip };
            list.count += 1;
        }
        (list, first == Some(true))
    }

    fn run(&self, from: usize) -> Option<(List, bool)> {
        let (list, lent) = self.collect(from, true);
        (list.count > 0).then_some((list, lent))
    }

    /// If what goes by reference lies together and is one batch, but with the rest would be two: the bytes
    /// before it, and its own.
    fn single_batch(&self) -> Option<(usize, usize)> {
        let first = self.lent.trailing_zeros() as usize;
        let count = self.lent.count_ones() as usize;
        if count == 0 || self.lent >> first != (1 << count) - 1 {
            return None;
        }
        let pages = |p: &iovec| Span::sized(p.iov_base as usize, p.iov_len).hull().pages();
        let body = &self.all[first..first + count];
        let body_pages: usize = body.iter().map(pages).sum();
        let bytes = |list: &[iovec]| list.iter().map(|p| p.iov_len).sum::<usize>();
        let (head, tail) = (bytes(&self.all[..first]), bytes(&self.all[first + count..]));
        let all_pages = body_pages + head.div_ceil(PAGE) + tail.div_ceil(PAGE);
        (body_pages <= BATCH && all_pages > BATCH).then(|| (head, bytes(body)))
    }

    fn bytes(&self) -> usize {
        self.all.iter().map(|p| p.iov_len).sum()
    }
}

/// What `fd` is, if it takes pages: looked up again at every call, because numbers are closed and opened past
/// us; what costs more is remembered with the socket's own number.
pub fn kind(fd: i32) -> Option<Kind> {
    const REMEMBERED: usize = 1024;
    static SOCKETS: [AtomicU64; REMEMBERED] = [const { AtomicU64::new(0) }; REMEMBERED];
    let (file, inode) = status(fd)?;
    match file {
        FileType::Fifo => Some(Kind::Pipe),
        FileType::Socket => {
            let known = &SOCKETS[fd as usize % REMEMBERED];
            let mut value = known.load(Ordering::Relaxed);
            if value >> 2 != inode {
                let what = match takes_pages(fd) {
                    Some(Kind::Tcp) => 1,
                    Some(Kind::Unix) => 2,
                    _ => 0,
                };
                value = inode << 2 | what;
                known.store(value, Ordering::Relaxed);
            }
            [None, Some(Kind::Tcp), Some(Kind::Unix), None][value as usize & 3]
        }
        _ => None,
    }
}

/// Whether the socket is a stream over TCP (not MPTCP, no TLS in the kernel) or UNIX.
fn takes_pages(fd: i32) -> Option<Kind> {
    let is = |name, what| ask(fd, libc::SOL_SOCKET, name).is_some_and(|(v, _)| v == what);
    if !is(libc::SO_TYPE, libc::SOCK_STREAM) {
        return None;
    }
    match ask(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        Some((libc::AF_UNIX, _)) => Some(Kind::Unix),
        Some((libc::AF_INET | libc::AF_INET6, _)) => (is(libc::SO_PROTOCOL, libc::IPPROTO_TCP)
            && ask(fd, libc::SOL_TCP, libc::TCP_ULP).is_some_and(|(_, len)| len == 0)
            && (PACED.load(Ordering::Relaxed) || !paced_within_host(fd)))
        .then_some(Kind::Tcp),
        _ => None,
    }
}

/// Whether the connection paces itself by timers (BBR, without a queue that does so) though it leaves no host. The faster
/// its sender, the more timers: on a virtual machine these cost more than the copies did.
fn paced_within_host(fd: i32) -> bool {
    let name = ask(fd, libc::SOL_TCP, libc::TCP_CONGESTION).map(|(v, _)| v.to_le_bytes());
    if name.is_none_or(|n| !n.starts_with(b"bbr")) {
        return false;
    }
    let address = |call: libc::c_long| {
        let (mut name, mut len) = ([0u8; 28], 28u32);
        let (to, length) = (name.as_mut_ptr() as usize, core::ptr::from_mut(&mut len) as usize);
        // SAFETY: the kernel writes at most the 28 bytes of a sockaddr_in6, and how many.
        let r = unsafe { syscall4(call as usize, fd as usize, to, length, 0) };
        // Family, then (behind the port) the address.
        (r == 0).then(|| if len > 16 { name[8..24].to_vec() } else { name[4..8].to_vec() })
    };
    let (ours, theirs) = (address(libc::SYS_getsockname), address(libc::SYS_getpeername));
    let loopback = |a: &Vec<u8>| a.len() == 4 && a[0] == 127;
    ours == theirs || theirs.as_ref().is_some_and(loopback)
}

/// An option of a socket, and its length.
fn ask(fd: i32, level: c_int, name: c_int) -> Option<(c_int, u32)> {
    let (mut value, mut len) = (0u32, 4u32);
    let to = core::ptr::from_mut(&mut value) as usize;
    let length = core::ptr::from_mut(&mut len) as usize;
    let call = libc::SYS_getsockopt as usize;
    // SAFETY: the kernel writes at most four bytes, and how many.
    let r = unsafe { syscall6(call, [fd as usize, level as usize, name as usize, to, length, 0]) };
    (r == 0).then_some((value as c_int, len))
}

fn status_flags(fd: i32) -> c_int {
    // SAFETY: a question.
    unsafe {
        syscall4(libc::SYS_fcntl as usize, fd as usize, libc::F_GETFL as usize, 0, 0) as c_int
    }
}

fn set_errno(errno: c_int) {
    // SAFETY: errno's address is always valid.
    unsafe { *libc::__errno_location() = errno };
}

fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Sends `pieces`, of which those with a bit in `lent` are pool pages that stay as they are for ever, to what
/// [`kind`] said of the descriptor.
pub fn send(kind: Kind, target: &Target, pieces: &[iovec], lent: u64) -> Lent {
    let before = errno();
    let pieces = Pieces { all: pieces, lent };
    let outcome = match kind {
        Kind::Tcp => to_tcp(target, &pieces),
        Kind::Unix => to_socket(target, &pieces),
        Kind::Pipe => to_pipe(target, &pieces),
    };
    if outcome != Lent::Done(-1) {
        set_errno(before);
    }
    if outcome == Lent::No {
        add(&COUNTERS.unlent_refused, 1);
    }
    outcome
}

/// What the plain call would return: what was sent, or its error.
fn done(sent: usize) -> Lent {
    Lent::Done(if sent > 0 { sent as isize } else { -1 })
}

/// What is left (or all of it) is for the plain call.
fn plainly(sent: usize) -> Lent {
    if sent > 0 { Lent::Rest(sent) } else { Lent::No }
}

/// One batch of pages between a head and a tail is one burst of segments, with one waking of the receiver, if
/// these two are sent beside it rather than through the pipe.
fn to_tcp(target: &Target, pieces: &Pieces<'_>) -> Lent {
    let Some((head, body)) = pieces.single_batch() else {
        let _corked = Corked::begin(target);
        return to_socket(target, pieces);
    };
    let Some(mut pipe) = Pipe::claim() else { return Lent::No };
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

/// Between two batches the kernel lets go of the socket, and timers and acknowledgements send what does not fill a
/// segment yet (53 bytes of each 64 KB on loopback), MSG_MORE or not. A cork holds that back until the end.
struct Corked(Option<i32>);

impl Corked {
    fn begin(target: &Target) -> Self {
        // (What the program holds back itself stays so.)
        let free = !target.more && ask(target.fd, libc::SOL_TCP, libc::TCP_CORK) == Some((0, 4));
        Self((free && cork(target.fd, 1)).then_some(target.fd))
    }
}

impl Drop for Corked {
    fn drop(&mut self) {
        if let Some(fd) = self.0 {
            cork(fd, 0);
        }
    }
}

fn cork(fd: i32, value: u32) -> bool {
    let at = core::ptr::from_ref(&value) as usize;
    let (level, name) = (libc::SOL_TCP as usize, libc::TCP_CORK as usize);
    let call = libc::SYS_setsockopt as usize;
    // SAFETY: the kernel reads four bytes.
    unsafe { syscall6(call, [fd as usize, level, name, at, 4, 0]) == 0 }
}

fn message(pieces: &[iovec]) -> libc::msghdr {
    // SAFETY: all zeros is an empty header.
    let mut msg: libc::msghdr = unsafe { core::mem::zeroed() };
    msg.msg_iov = pieces.as_ptr().cast_mut();
    msg.msg_iovlen = pieces.len();
    msg
}

fn to_socket(target: &Target, pieces: &Pieces<'_>) -> Lent {
    let total = pieces.bytes();
    let Some(mut pipe) = Pipe::claim() else { return Lent::No };
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

/// Whether these pieces may go by reference to what is of this kind. Of a pipe, its reader, and how much fits, can
/// tell how many pages a write took: so only whole ones go there.
pub fn fits(kind: Kind, pieces: &[iovec]) -> bool {
    let whole = |p: &iovec| (p.iov_base as usize | p.iov_len).is_multiple_of(PAGE);
    kind != Kind::Pipe || pieces.iter().all(whole)
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

/// Sends from our pipe. `quietly`: without a SIGPIPE, as where the plain call has sent something already.
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
            // A signal has come, or the time was over. What the plain call would have sent without waiting goes
            // out all the same.
            let (rest, _) = pieces.collect(sent, false);
            sent += send_now(target, rest.get(), target.more).max(0) as usize;
            set_errno(why);
            return done(sent);
        }
        // The plain call would have stopped only where there is no room. (Asking makes the kernel tell when
        // there is some again; an error stays for the next call.)
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

fn writable(fd: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    let at = core::ptr::from_mut(&mut poll) as usize;
    // SAFETY: one entry, which the kernel writes to; it does not wait.
    let n = unsafe { syscall4(libc::SYS_poll as usize, at, 1, 0, 0) };
    n == 1 && poll.revents & (libc::POLLERR | libc::POLLHUP) == 0
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
