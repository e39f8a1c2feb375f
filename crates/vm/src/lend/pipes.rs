//! Our pipes, through which pages reach a socket: made when first needed, one for each call under way, recognized
//! before each use; and the pieces of a call, put into one.
//!
//! unsafe: system calls on our own descriptors and on memory that the caller's plan names.

use super::left;
use crate::critical::syscall4;
use crate::inject;
use crate::space::lift;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use libc::iovec;
use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use uncopy_core::plan::MAX_PIECES;
use uncopy_inject::{Call, Error};
use uncopy_ranges::span::{PAGE, Span};

/// Pipes at once: one for each call under way.
pub const PIPES: usize = 8;
/// Bytes that a pipe should hold, best first; 1 MB is what the kernel allows to all (`pipe-max-size`). With
/// less than the last it is of no use.
pub(super) const ROOM: [usize; 4] = [2 << 20, 1 << 20, 256 << 10, 64 << 10];
/// Pages that the kernel hands from a pipe to a socket at once.
pub(super) const BATCH: usize = 16;
/// After a pipe was refused, so many calls go plainly.
pub(super) const REST: u32 = 1024;

#[derive(Debug)]
pub(super) struct Slot {
    busy: AtomicBool,
    /// Open for both reading and writing, so that there is one descriptor to be sure of. -1: none.
    fd: AtomicI32,
    /// Tells whether the number is still ours: programs close numbers past us.
    inode: AtomicU64,
}

pub(super) static SLOTS: [Slot; PIPES] = [const {
    Slot { busy: AtomicBool::new(false), fd: AtomicI32::new(-1), inode: AtomicU64::new(0) }
}; PIPES];
pub(super) static RESTING: AtomicU32 = AtomicU32::new(0);

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

pub(super) fn status(fd: i32) -> Option<(FileType, u64)> {
    if fd < 0 {
        return None;
    }
    // SAFETY: borrowed for one call, which answers EBADF where nothing is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let s = inject::check(Call::Fstat).and_then(|()| rustix::fs::fstat(fd)).ok()?;
    Some((FileType::from_raw_mode(s.st_mode), s.st_ino))
}

impl Slot {
    pub(super) fn ours(&self) -> bool {
        let fd = self.fd.load(Ordering::Relaxed);
        fd >= 0 && status(fd) == Some((FileType::Fifo, self.inode.load(Ordering::Relaxed)))
    }

    pub(super) fn close(&self) {
        let ours = self.ours();
        let fd = self.fd.swap(-1, Ordering::Relaxed);
        if ours {
            // SAFETY: it is our pipe; nobody uses it.
            unsafe { syscall4(libc::SYS_close as usize, fd as usize, 0, 0, 0) };
        }
    }

    /// Its call will not go on.
    pub(super) fn abandon(&self) {
        self.close();
        self.busy.store(false, Ordering::Release);
    }

    pub(super) fn open(&self) -> Result<(), Errno> {
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
pub(super) struct Pipe {
    pub(super) slot: &'static Slot,
    pub(super) fd: i32,
    /// Something may be left in it.
    pub(super) used: bool,
}

impl Pipe {
    pub(super) fn claim() -> Option<Self> {
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
        left::Sending::holds(Some(slot));
        Some(Self { slot, fd: slot.fd.load(Ordering::Relaxed), used: false })
    }

    /// Puts bytes in, from `at` on, as many as there is room for (or those of one sort). Returns how many;
    /// 0: refused.
    pub(super) fn load(&mut self, pieces: &Pieces<'_>, at: usize, one_sort: bool) -> usize {
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
        left::Sending::holds(None);
        if self.used {
            self.slot.close();
        }
        self.slot.busy.store(false, Ordering::Release);
    }
}

/// Puts pieces of one sort into our pipe: by reference, or copied by the kernel.
pub(super) fn put(pipe: i32, run: &List, lent: bool) -> isize {
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
pub(super) struct List {
    pub(super) pieces: [iovec; MAX_PIECES],
    pub(super) count: usize,
}

impl List {
    pub(super) fn get(&self) -> &[iovec] {
        &self.pieces[..self.count]
    }

    pub(super) fn bytes(&self) -> usize {
        self.get().iter().map(|p| p.iov_len).sum()
    }
}

/// What is to be sent.
pub(super) struct Pieces<'a> {
    pub(super) all: &'a [iovec],
    /// A bit for each that goes by reference.
    pub(super) lent: u64,
}

impl Pieces<'_> {
    /// From byte `from` on: all that is left, or all of one sort.
    pub(super) fn collect(&self, from: usize, one_sort: bool) -> (List, bool) {
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

    pub(super) fn run(&self, from: usize) -> Option<(List, bool)> {
        let (list, lent) = self.collect(from, true);
        (list.count > 0).then_some((list, lent))
    }

    /// If what goes by reference lies together and is one batch, but with the rest would be two: the bytes
    /// before it, and its own.
    pub(super) fn single_batch(&self) -> Option<(usize, usize)> {
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

    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(|p| p.iov_len).sum()
    }
}
