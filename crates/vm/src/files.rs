//! Kept files, from the side of the program's threads: the lock around the [`Shelf`], and the memory
//! that files are read into. The other side is [`crate::leases`].
//!
//! The lock is held for plain work on the shelf only: no system call, nothing else's lock. So it can
//! be taken across fork, and a lease that is being broken never waits for anything slow.
//!
//! unsafe: the shelf lives in a static behind our own lock; the memory is a mapping of ours.

use crate::lock::Lock;
use crate::space::COUNTERS;
use crate::{critical, inject, leases, limits, space};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use rustix::fd::AsFd;
use rustix::fs::{FileType, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use uncopy_inject::Call;
use uncopy_ranges::span::{PAGE, Span};
use uncopy_shelf::{Answer, Chunk, Hit, Shelf, Stamp, address_space};

pub use uncopy_shelf::{CHUNK, READ_MIN, chunks};

struct Global(UnsafeCell<Shelf>);
// SAFETY: reached only with the lock held.
unsafe impl Sync for Global {}
static SHELF: Global = Global(UnsafeCell::new(Shelf::new()));
static LOCK: Lock = Lock::new();
/// Bytes that kept files may take; 0: none is kept.
static ALLOWED: AtomicUsize = AtomicUsize::new(0);
/// Where they are kept, and how many bytes are reserved there.
static REGION: AtomicUsize = AtomicUsize::new(0);
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Of reads of a file that is not kept, one in so many is looked at.
const SAMPLE: u8 = 8;
/// Reads not to be looked at still, by descriptor. (A descriptor that has become another file's is
/// looked at later: no harm.)
static SKIP: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];

/// Lets files be kept, in `bytes` of memory at most. Before the process has threads.
pub fn allow(bytes: usize) {
    if bytes == 0 || limits::reserving_counts() {
        return;
    }
    let len = address_space(bytes);
    let reserve = inject::check(Call::Mmap).and_then(|()| {
        // SAFETY: a new private mapping at an address of the kernel's choice.
        unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
    });
    let Ok(start) = reserve else { return };
    REGION.store(start as usize, Relaxed);
    RESERVED.store(len, Relaxed);
    with(|s| s.furnish(Span::sized(start as usize, len), bytes));
    ALLOWED.store(bytes, Relaxed);
}

/// Whether files are kept at all.
#[inline]
pub fn allowed() -> bool {
    ALLOWED.load(Relaxed) != 0
}

/// Runs `f` on the shelf. `None`: inside a critical section of ours.
pub(crate) fn with<R>(f: impl FnOnce(&mut Shelf) -> R) -> Option<R> {
    if critical::inside() {
        return None;
    }
    Some(critical::within(|| {
        LOCK.lock();
        // SAFETY: the lock is held.
        let result = f(unsafe { &mut *SHELF.0.get() });
        LOCK.unlock();
        result
    }))
}

/// Ns since the epoch, at the cost of a few loads.
pub(crate) fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// What `stat` says of a regular file; nothing for any other.
pub(crate) fn stamp_of(s: &rustix::fs::Stat) -> Option<Stamp> {
    (FileType::from_raw_mode(s.st_mode) == FileType::RegularFile).then_some(Stamp {
        dev: s.st_dev,
        ino: s.st_ino,
        size: s.st_size as u64,
        mtime: (s.st_mtime, s.st_mtime_nsec as i64),
        ctime: (s.st_ctime, s.st_ctime_nsec as i64),
    })
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
pub struct Kept(Hit);

impl Kept {
    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Where the byte at `offset` is, once its chunk is there.
    pub fn address(&self, offset: u64) -> usize {
        self.0.base + offset as usize
    }

    /// Where the bytes of `chunk` are, or are to be.
    pub fn chunk(&self, chunk: usize) -> Span {
        let start = chunk * CHUNK;
        let end = (start + CHUNK).min(self.0.size as usize);
        Span::new(self.0.base + start, self.0.base + end)
    }

    /// What is to be done about `chunk`.
    pub fn need(&self, chunk: usize) -> Chunk {
        with(|s| s.need(self.0.file, chunk)).unwrap_or(Chunk::NotNow)
    }

    /// After [`Chunk::Yours`]: it was read from `fd`, or not. Returns whether it is good.
    pub fn filled(&self, chunk: usize, fd: impl AsFd, read: bool) -> bool {
        // (A process that was stopped for longer than the kernel waits for an answer has lost its lease
        // without having been told yet.)
        let stat = || inject::check(Call::Fstat).and_then(|()| rustix::fs::fstat(fd)).ok();
        let found = if read { stat().and_then(|s| stamp_of(&s)) } else { None };
        with(|s| s.filled(self.0.file, chunk, found)) == Some(true)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if with(|s| s.done(&self.0)) == Some(true) {
            leases::wake();
        }
    }
}

/// A read of `len` bytes of `fd`: the file, if it is kept and is now what it was when its lease was
/// taken. Counts the read, and has the file kept if it is read often.
pub fn ask(fd: impl AsFd, number: i32, len: usize) -> Option<Kept> {
    if critical::inside() || !space::alive() {
        return None;
    }
    let skip = &SKIP[number as usize % SKIP.len()];
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
    match with(|s| s.ask(&stamp, number, len, weight, now))? {
        Answer::Plain => None,
        Answer::PlainAndWake => {
            begin();
            None
        }
        Answer::Kept(hit) => {
            skip.store(0, Relaxed);
            let kept = Kept(hit);
            let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
            let unusual = OFlags::DIRECT | OFlags::PATH;
            let readable = !flags.contains(OFlags::WRONLY) && !flags.intersects(unusual);
            let counts = hit.timed && access_counts(&stat, now);
            (readable && !counts && space::running()).then_some(kept)
        }
    }
}

/// The keeper of leases has something to do: it is made, where there is none.
#[cold]
fn begin() {
    // A child of vfork must not make threads; a handler may have interrupted what that needs.
    let may_start = !critical::in_handler() && space::in_own_process();
    if leases::running() || may_start && space::start() && leases::start() {
        leases::wake();
        return;
    }
    if may_start {
        ALLOWED.store(0, Relaxed);
    }
    // Nobody has taken a lease or used memory for what was wanted.
    with(|s| {
        s.leave_all();
        while let Some((file, _)) = s.leaving() {
            s.gone(file);
        }
    });
}

/// How many files are kept, for whoever looks.
pub(crate) fn count() {
    if let Some((files, bytes)) = with(|s| s.totals()) {
        COUNTERS.kept_files.store(files as u64, Relaxed);
        COUNTERS.kept_bytes.store(bytes as u64, Relaxed);
    }
}

/// `span` of the region is empty memory again. Its tracking has ended.
pub(crate) fn empty(span: Span) {
    // (Where that is refused, memory is lost until it is used again; what is there is overwritten
    // before anybody reads it.)
    let _ = inject::check(Call::Madvise).and_then(|()| {
        // SAFETY: memory of ours that nobody uses.
        unsafe { rustix::mm::madvise(span.start as *mut _, span.len(), Advice::LinuxDontNeed) }
    });
}

/// No file is kept from here on: leases are given up, and their thread has ended.
pub fn stop() {
    if ALLOWED.swap(0, Relaxed) != 0 {
        leases::stop();
        leave_region();
    }
}

/// What of `span` is memory for kept files.
pub(crate) fn region_in(span: Span) -> Span {
    Span::sized(REGION.load(Relaxed), RESERVED.load(Relaxed)).intersect(span)
}

/// After [`stop`]: the address space goes back once nothing of it is in use.
pub(crate) fn leave_region() {
    let len = RESERVED.load(Relaxed);
    if len == 0 || allowed() {
        return;
    }
    let unused = with(|s| {
        let empty = s.is_empty();
        if empty {
            s.furnish(Span::new(0, 0), 0);
        }
        empty
    });
    if unused == Some(true) && RESERVED.swap(0, Relaxed) != 0 {
        // SAFETY: nobody has been given any of it.
        unsafe {
            let _ = inject::check(Call::Munmap)
                .and_then(|()| rustix::mm::munmap(REGION.load(Relaxed) as *mut _, len));
        }
    }
}

/// The thread that keeps leases ends, and with it the leases; another is made when files are to be kept again.
pub fn let_go_of_thread() {
    if leases::running() {
        leases::stop();
    }
}

/// Every lease is given up, for the sake of a child that copies all memory; files may be kept again.
pub fn let_go() {
    if allowed() && with(|s| s.leave_all()).is_some() {
        leases::wake();
    }
}

/// Before fork: the shelf does not change until [`after_fork_parent`].
pub fn before_fork() {
    critical::within(|| LOCK.lock());
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    critical::within(|| LOCK.unlock());
}

/// After fork, in the child, first of all: the leases are its parent's.
pub fn disown() {
    leases::is_gone();
    LOCK.reset();
    with(Shelf::disown);
}

/// After fork, in the child, once pages are served: the memory of what its parent keeps goes. What its
/// buffers are views of stays.
pub fn after_fork_child() {
    while let Some(Some((file, span))) = with(|s| s.leaving()) {
        space::relinquish(span);
        empty(span);
        with(|s| s.gone(file));
    }
}

/// In a child that was made without fork's handlers: it goes on without us.
pub fn after_bare_fork_child() {
    ALLOWED.store(0, Relaxed);
    leases::is_gone();
    LOCK.reset();
}

const _: () = assert!(CHUNK.is_multiple_of(PAGE));
