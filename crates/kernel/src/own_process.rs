//! Whether this process is the one that our state was made for. A child that was made behind our
//! back (clone without fork's handlers) must not use what it inherited; a child of vfork shares our
//! memory, but not our descriptors and threads.
//!
//! unsafe: maps one page of our own, which the kernel clears in children, and reads a word of it;
//! calls what it was given to call.

use crate::{critical, inject, placement};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use uncopy_inject::Call;
use uncopy_ranges::span::PAGE;

/// See the module.
#[derive(Debug)]
pub struct OwnProcess {
    /// A word that a child made behind our back finds zeroed; null before [`OwnProcess::plant`].
    word: AtomicPtr<AtomicUsize>,
    /// The first thing that such a child has to do, a `fn()`.
    alone: AtomicPtr<()>,
    /// The process whose descriptors and threads they are.
    pid: AtomicI32,
}

const HERE: usize = 1;
/// A child made behind our back: one of its threads puts our locks right.
const CLAIMED: usize = 2;
/// It has.
const GOES_ON: usize = 3;

impl Default for OwnProcess {
    fn default() -> Self {
        Self::new()
    }
}

impl OwnProcess {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self {
            word: AtomicPtr::new(core::ptr::null_mut()),
            alone: AtomicPtr::new(core::ptr::null_mut()),
            pid: AtomicI32::new(0),
        }
    }

    /// Makes the word. `alone` is called in a child that was made behind our back, before it uses
    /// anything of ours: the locks that threads of its parent held are nobody's there, and it goes
    /// on without us.
    ///
    /// # Errors
    /// The kernel's.
    pub fn plant(&self, alone: fn()) -> Result<(), Errno> {
        self.alone.store(alone as *mut (), Ordering::Relaxed);
        inject::check(Call::Mmap)?;
        // SAFETY: a fresh page of our own.
        let page = unsafe {
            rustix::mm::mmap_anonymous(
                placement::SMALL.next(PAGE) as *mut _,
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        // SAFETY: the page is ours, and zeroing it in a child is what we want.
        unsafe {
            inject::check(Call::Madvise)?;
            rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork)?;
        }
        let word = page.cast::<AtomicUsize>();
        // SAFETY: aligned, mapped, never unmapped.
        unsafe { (*word).store(HERE, Ordering::Relaxed) };
        self.word.store(word, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn word(&self) -> Option<&'static AtomicUsize> {
        // SAFETY: planted once, never unmapped.
        unsafe { self.word.load(Ordering::Relaxed).as_ref() }
    }

    /// Sets the word again, in a forked child.
    pub fn is_here(&self) {
        if let Some(word) = self.word() {
            word.store(HERE, Ordering::Relaxed);
        }
    }

    /// Whether this is not a child made behind our back that has not been detected.
    #[inline]
    pub fn alive(&self) -> bool {
        self.word().is_none_or(|word| matches!(word.load(Ordering::Relaxed), HERE | GOES_ON))
    }

    /// Before anything of ours is used: a child that was made behind our back goes on without us.
    /// It must not count in its parent's statistics, nor wait for a lock or for the end of a fork
    /// of its parent's.
    #[inline]
    pub fn detect_unknown_fork(&self) {
        if !self.alive() {
            self.made_behind_our_back();
        }
    }

    #[cold]
    fn made_behind_our_back(&self) {
        // A child of `fork` comes to our handler.
        if critical::forking() {
            return;
        }
        let Some(word) = self.word() else { return };
        // Of several threads one does what follows.
        let claimed = word.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
        if claimed.is_ok() {
            let alone = self.alone.load(Ordering::Relaxed);
            // SAFETY: `plant` alone stores it, before the word is there.
            unsafe { core::mem::transmute::<*mut (), fn()>(alone)() };
            word.store(GOES_ON, Ordering::Release);
        }
        while word.load(Ordering::Acquire) == CLAIMED {
            core::hint::spin_loop();
        }
    }

    /// The descriptors and threads that are made now are this process's.
    pub fn note_pid(&self) {
        self.pid.store(pid(), Ordering::Relaxed);
    }

    /// Whether our descriptors and threads are the calling process's. (A child of vfork has our
    /// memory, but another number.)
    pub fn in_own_process(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == pid()
    }
}

/// This process's number.
pub fn pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_its_own_once_its_number_was_noted() {
        let own = OwnProcess::new();
        assert!(own.alive() && !own.in_own_process());
        own.note_pid();
        assert!(own.in_own_process());
    }

    #[test]
    fn a_child_that_finds_the_word_zeroed_goes_on_alone_and_only_once() {
        static TIMES: AtomicUsize = AtomicUsize::new(0);
        fn alone() {
            TIMES.fetch_add(1, Ordering::Relaxed);
        }
        let own = OwnProcess::new();
        own.plant(alone).unwrap();
        own.detect_unknown_fork();
        assert_eq!(TIMES.load(Ordering::Relaxed), 0);
        // As the kernel leaves it in a child.
        own.word().unwrap().store(0, Ordering::Relaxed);
        assert!(!own.alive());
        own.detect_unknown_fork();
        own.detect_unknown_fork();
        assert!(own.alive());
        assert_eq!(TIMES.load(Ordering::Relaxed), 1);
        own.is_here();
        assert!(own.alive());
    }
}
