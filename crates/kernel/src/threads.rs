//! How many threads the process has.
//!
//! unsafe: reads a word of libc's.

use crate::descriptors::OwnFd;
use crate::inject;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};
use rustix::fs::{Mode, OFlags, RawDir};
use uncopy_inject::Call;

/// libc's count of threads, in which ours are not. The symbol is there for libthread_db; null in a
/// libc without it.
#[derive(Debug)]
pub struct LibcsCount(AtomicPtr<AtomicU32>);

impl Default for LibcsCount {
    fn default() -> Self {
        Self::new()
    }
}

impl LibcsCount {
    /// Not looked for yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Looks for what must not be looked up later, in the middle of a copy.
    pub fn prepare(&self) {
        // SAFETY: a plain lookup.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__nptl_nthreads".as_ptr()) };
        self.0.store(found.cast(), Ordering::Relaxed);
    }

    /// Whether the program has one thread besides ours, as far as libc counts.
    pub fn is_one(&self) -> bool {
        // SAFETY: an `unsigned int` of libc's data, which is never unmapped, changed only
        // atomically.
        let count = unsafe { self.0.load(Ordering::Relaxed).as_ref() };
        count.is_some_and(|c| c.load(Ordering::Relaxed) == 1)
    }
}

unsafe extern "C" {
    /// `sys/single_threaded.h`: libc sets it to 0 before the program's second thread begins.
    static __libc_single_threaded: AtomicU8;
}

/// Whether the program has one thread besides ours, as far as libc knows: its own malloc goes
/// without locked instructions then.
#[inline(always)]
pub fn single() -> bool {
    // SAFETY: a byte of libc's data, which is never unmapped.
    unsafe { __libc_single_threaded.load(Ordering::Relaxed) != 0 }
}

/// How many threads the process has as the kernel lists them; one that has ended counts if it is
/// the first. `None`: in a chroot without /proc.
pub fn listed() -> Option<usize> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tasks = inject::check(Call::Open)
        .and_then(|()| rustix::fs::open(c"/proc/self/task", flags, Mode::empty()))
        .map(OwnFd::from)
        .ok()?;
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(tasks, &mut buffer);
    let mut count = 0;
    while let Some(Ok(entry)) = entries.next() {
        count += usize::from(!entry.file_name().to_bytes().starts_with(b"."));
    }
    Some(count)
}
