//! Kept files, from the side of the program's threads, and the memory that files are read into. The
//! other side is `leases`.
//!
//! unsafe: gives back a mapping of ours.

use crate::leases::Leases;
use crate::shelf::{Shelved, empty, now, stamp_of};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use rustix::fd::AsFd;
use rustix::fs::OFlags;
use uncopy_inject::Call;
use uncopy_kernel::mapping::{self, BOTH};
use uncopy_kernel::placement::{self, Place};
use uncopy_kernel::{critical, inject, limits};
use uncopy_ranges::span::{PAGE, Span};
use uncopy_shelf::{Answer, Chunk, Hit, Shelf, address_space};
use uncopy_space::space::Space;

pub use uncopy_shelf::{CHUNK, READ_MIN, chunks};

/// Of reads of a file that is not kept, one in so many is looked at.
const SAMPLE: u8 = 8;
/// The files that a process keeps.
#[derive(Debug)]
pub struct Files {
    leases: Leases,
    /// Where they are kept, and how many bytes are reserved there.
    region: AtomicUsize,
    reserved: AtomicUsize,
    /// Reads not to be looked at still, by descriptor. (A descriptor that has become another file's
    /// is looked at later: no harm.)
    skip: [AtomicU8; 256],
}

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Files {
    /// None.
    pub const fn new() -> Self {
        Self {
            leases: Leases::new(),
            region: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            skip: [const { AtomicU8::new(0) }; 256],
        }
    }

    /// Lets files be kept, in `bytes` of memory at most. Before the process has threads.
    pub fn allow(&self, space: &'static Space, bytes: usize) {
        if bytes == 0 || limits::reserving_counts() {
            return;
        }
        let len = address_space(bytes);
        let Ok(start) = mapping::reserve(placement::hint(Place::Files), len, BOTH) else { return };
        self.region.store(start, Relaxed);
        self.reserved.store(len, Relaxed);
        let mut shelf = Shelf::new();
        shelf.furnish(Span::sized(start, len), bytes);
        self.shelf().allow(space, shelf, bytes);
    }

    fn shelf(&self) -> &Shelved {
        &self.leases.shelf
    }

    /// Whether files are kept at all.
    #[inline]
    pub fn allowed(&self) -> bool {
        self.shelf().allowed()
    }

    /// Threads of ours that hold leases: they are more than the program knows of.
    pub fn threads(&self) -> usize {
        usize::from(self.leases.running())
    }
}

/// Whether a read now would set the file's time of access, as mounts do unless told otherwise
/// (`relatime`).
fn access_counts(s: &rustix::fs::Stat, now: u64) -> bool {
    const DAY: i64 = 24 * 60 * 60;
    let accessed = (s.st_atime, s.st_atime_nsec as i64);
    accessed <= (s.st_mtime, s.st_mtime_nsec as i64)
        || accessed <= (s.st_ctime, s.st_ctime_nsec as i64)
        || (now / 1_000_000_000) as i64 - accessed.0 >= DAY
}

/// A kept file in use, until it is dropped: what is there of it stays.
#[derive(Debug)]
pub struct Kept {
    hit: Hit,
    files: &'static Files,
}

impl Kept {
    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.hit.size
    }

    /// Where the byte at `offset` is, once its chunk is there.
    pub fn address(&self, offset: u64) -> usize {
        self.hit.base + offset as usize
    }

    /// Where the bytes of `chunk` are, or are to be.
    pub fn chunk(&self, chunk: usize) -> Span {
        let start = chunk * CHUNK;
        let end = (start + CHUNK).min(self.hit.size as usize);
        Span::new(self.hit.base + start, self.hit.base + end)
    }

    /// The next step for `chunk`.
    pub fn need(&self, chunk: usize) -> Chunk {
        self.files.shelf().with(|s| s.need(self.hit.file, chunk)).unwrap_or(Chunk::NotNow)
    }

    /// After [`Chunk::Yours`]: it was read from `fd`, or not. Returns whether it is good.
    pub fn filled(&self, chunk: usize, fd: impl AsFd, read: bool) -> bool {
        // (A process that was stopped for longer than the kernel waits for an answer has lost its
        // lease without having been told yet.)
        let stat = || inject::check(Call::Fstat).and_then(|()| rustix::fs::fstat(fd)).ok();
        let found = if read { stat().and_then(|s| stamp_of(&s)) } else { None };
        self.files.shelf().with(|s| s.filled(self.hit.file, chunk, found)) == Some(true)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.files.shelf().with(|s| s.done(&self.hit)) == Some(true) {
            self.files.leases.wake();
        }
    }
}

impl Files {
    /// A read of `len` bytes of `fd`: the file, if it is kept and is now what it was when its lease
    /// was taken. Counts the read, and has the file kept if it is read often.
    pub fn ask(&'static self, fd: impl AsFd, number: i32, len: usize) -> Option<Kept> {
        if critical::inside() {
            return None;
        }
        let space = self.shelf().space()?;
        if !space.own.alive() {
            return None;
        }
        let skip = &self.skip[number as usize % self.skip.len()];
        let left = skip.load(Relaxed);
        if left > 0 {
            // (Two threads may count one read: no harm.)
            skip.store(left - 1, Relaxed);
            return None;
        }
        skip.store(SAMPLE - 1, Relaxed);
        inject::check(Call::Fstat).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let stamp = stamp_of(&stat)?;
        let now = now();
        // A file that has no name any more should go when its last user closes it.
        let weight = if stat.st_nlink == 0 { 0 } else { u32::from(SAMPLE) };
        match self.shelf().with(|s| s.ask(&stamp, number, len, weight, now))? {
            Answer::Plain => None,
            Answer::PlainAndWake => {
                self.begin(space);
                None
            }
            Answer::Kept(hit) => {
                skip.store(0, Relaxed);
                let kept = Kept { hit, files: self };
                let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
                let unusual = OFlags::DIRECT | OFlags::PATH;
                let readable = !flags.contains(OFlags::WRONLY) && !flags.intersects(unusual);
                let counts = hit.timed && access_counts(&stat, now);
                (readable && !counts && space.running()).then_some(kept)
            }
        }
    }

    /// The keeper of leases has something to do: it is made, where there is none.
    #[cold]
    fn begin(&'static self, space: &'static Space) {
        // A child of vfork must not make threads; a handler may have interrupted what that needs.
        let may_start = !critical::in_handler() && space.own.in_own_process();
        if self.leases.running() || may_start && space.start() && self.leases.start() {
            self.leases.wake();
            return;
        }
        if may_start {
            self.shelf().forbid();
        }
        // Nobody has taken a lease or used memory for what was wanted.
        self.shelf().with(|s| {
            s.leave_all();
            while let Some((file, _)) = s.leaving() {
                s.gone(file);
            }
        });
    }

    /// No file is kept from here on: leases are given up, and their thread has ended.
    pub fn stop(&self) {
        self.shelf().forbid();
        // (Also of a thread that ended by itself: it may not be gone yet.)
        if self.shelf().space().is_some() {
            self.leases.stop();
            self.leave_region();
        }
    }

    /// The part of `span` that is memory for kept files.
    pub fn region_in(&self, span: Span) -> Span {
        Span::sized(self.region.load(Relaxed), self.reserved.load(Relaxed)).intersect(span)
    }

    /// After [`Files::stop`]: the address space goes back once nothing of it is in use.
    pub fn leave_region(&self) {
        let len = self.reserved.load(Relaxed);
        if len == 0 || self.allowed() {
            return;
        }
        let unused = self.shelf().with(|s| {
            let empty = s.is_empty();
            if empty {
                s.furnish(Span::new(0, 0), 0);
            }
            empty
        });
        if unused == Some(true) && self.reserved.swap(0, Relaxed) != 0 {
            // SAFETY: nobody has been given any of it.
            unsafe { mapping::unmap(Span::sized(self.region.load(Relaxed), len)) };
        }
    }

    /// The thread that keeps leases ends, and with it the leases; another is made when files are to
    /// be kept again.
    pub fn end_lease_thread(&self) {
        if self.leases.running() {
            self.leases.stop();
        }
    }

    /// Every lease is given up, for the sake of a child that copies all memory; files may be kept
    /// again.
    pub fn give_up_leases(&self) {
        if self.allowed() && self.shelf().with(|s| s.leave_all()).is_some() {
            self.leases.wake();
        }
    }

    /// Before fork: the shelf does not change until [`Files::after_fork_parent`].
    pub fn before_fork(&self) {
        self.shelf().lock();
    }

    /// After fork, in the parent.
    pub fn after_fork_parent(&self) {
        self.shelf().unlock();
    }

    /// After fork, in the child, first of all: the leases are its parent's.
    pub fn disown(&self) {
        self.leases.is_gone();
        self.shelf().reset();
        self.shelf().with(Shelf::disown);
    }

    /// After fork, in the child, once pages are served: the memory of what its parent keeps goes.
    /// Memory that its buffers are views of stays.
    pub fn after_fork_child(&self) {
        let Some(space) = self.shelf().space() else { return };
        while let Some(Some((file, span))) = self.shelf().with(|s| s.leaving()) {
            space.untrack(span);
            empty(span);
            self.shelf().with(|s| s.gone(file));
        }
    }

    /// In a child that was made without fork's handlers: it goes on without us.
    pub fn after_bare_fork_child(&self) {
        self.shelf().forbid();
        self.leases.is_gone();
        self.shelf().reset();
    }
}

const _: () = assert!(CHUNK.is_multiple_of(PAGE));
