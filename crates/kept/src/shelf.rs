//! The shelf and the lock around it. The lock is held for plain work only: no system call, nothing
//! else's lock. So it can be taken across fork, and a lease that is being broken never waits for
//! anything slow.
//!
//! unsafe: hands out what the lock guards; drops memory of ours.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use rustix::fs::FileType;
use uncopy_kernel::lock::Lock;
use uncopy_kernel::once::OnceInit;
use uncopy_kernel::{critical, mapping};
use uncopy_ranges::span::Span;
use uncopy_shelf::{Shelf, Stamp};
use uncopy_space::space::Space;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Shelved {
    shelf: OnceInit<Shelf>,
    lock: Lock,
    /// Bytes that kept files may take; 0: none is kept.
    allowed: AtomicUsize,
    space: AtomicPtr<Space>,
}

impl Shelved {
    pub(crate) const fn new() -> Self {
        Self {
            shelf: OnceInit::new(),
            lock: Lock::new(),
            allowed: AtomicUsize::new(0),
            space: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Files may be kept, in `bytes` at most, as views that `space` has. Before the process has
    /// threads.
    pub(crate) fn allow(&self, space: &'static Space, shelf: Shelf, bytes: usize) {
        // SAFETY: the constructor is alone, and comes here once.
        unsafe { self.shelf.make(shelf) };
        self.space.store(core::ptr::from_ref(space).cast_mut(), Relaxed);
        self.allowed.store(bytes, Relaxed);
    }

    /// No file is kept from here on. Returns whether any was.
    pub(crate) fn forbid(&self) -> bool {
        self.allowed.swap(0, Relaxed) != 0
    }

    /// Whether files are kept at all.
    #[inline]
    pub(crate) fn allowed(&self) -> bool {
        self.allowed.load(Relaxed) != 0
    }

    /// The space that has the views; `None` where files were never allowed.
    pub(crate) fn space(&self) -> Option<&'static Space> {
        // SAFETY: `allow` alone stores it, for ever.
        unsafe { self.space.load(Relaxed).as_ref() }
    }

    /// Runs `f` on the shelf. `None`: inside a critical section of ours, or there is none.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Shelf) -> R) -> Option<R> {
        if critical::inside() {
            return None;
        }
        critical::within(|| {
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = unsafe { self.shelf.get() }.map(f);
            self.lock.unlock();
            result
        })
    }

    /// Before fork.
    pub(crate) fn lock(&self) {
        critical::within(|| self.lock.lock());
    }

    /// After fork, in the parent.
    pub(crate) fn unlock(&self) {
        critical::within(|| self.lock.unlock());
    }

    /// After fork, in the child.
    pub(crate) fn reset(&self) {
        self.lock.reset();
    }

    /// How many files are kept, for those that look.
    pub(crate) fn count(&self) {
        if let (Some((files, bytes)), Some(space)) = (self.with(|s| s.totals()), self.space()) {
            space.counters().kept_files.store(files as u64, Relaxed);
            space.counters().kept_bytes.store(bytes as u64, Relaxed);
        }
    }
}

/// Ns since the epoch, at the cost of a few loads.
pub(crate) fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The stamp that `stat` gives of a regular file; nothing for any other.
pub(crate) fn stamp_of(s: &rustix::fs::Stat) -> Option<Stamp> {
    (FileType::from_raw_mode(s.st_mode) == FileType::RegularFile).then_some(Stamp {
        dev: s.st_dev,
        ino: s.st_ino,
        size: s.st_size as u64,
        mtime: (s.st_mtime, s.st_mtime_nsec as i64),
        ctime: (s.st_ctime, s.st_ctime_nsec as i64),
    })
}

/// `span` of the region is empty memory again. Its tracking has ended.
pub(crate) fn empty(span: Span) {
    // SAFETY: memory of ours that nobody uses. (Where that is refused, memory is lost until it is
    // used again; what is there is overwritten before anybody reads it.)
    unsafe { mapping::empty(span) };
}
