//! Whether this process is the one that the tracker was made for: a child that was made behind our back (clone without fork's handlers)
//! must not use what it inherited.
//!
//! unsafe: maps one page of our own, which the kernel clears in children, and reads a word of it.

use crate::{critical, inject};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use uncopy_inject::Call;
use uncopy_ranges::span::PAGE;

/// A word that a child made behind our back (clone without fork) finds zeroed.
static ALIVE: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the word again, in a forked child.
pub(super) fn alive_here() {
    let word = ALIVE.load(Ordering::Relaxed);
    if !word.is_null() {
        // SAFETY: planted once, never unmapped; fork's child has found it zeroed.
        unsafe { (*word).store(ALIVE_HERE, Ordering::Relaxed) };
    }
}

/// Makes the word.
pub(super) fn plant_alive() -> Result<(), Errno> {
    inject::check(Call::Mmap)?;
    // SAFETY: a fresh page of our own.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
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
    unsafe { (*word).store(ALIVE_HERE, Ordering::Relaxed) };
    ALIVE.store(word, Ordering::Release);
    Ok(())
}

/// Whether this is not such a child.
pub fn alive() -> bool {
    let word = ALIVE.load(Ordering::Relaxed);
    // SAFETY: planted once, never unmapped.
    word.is_null() || matches!(unsafe { (*word).load(Ordering::Relaxed) }, ALIVE_HERE | GOES_ON)
}

/// What a child made behind our back has to do first: the locks that threads of its parent held are nobody's there.
static FORGET_LOCKS: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// See [`super::Settings::forget_locks`].
pub(super) fn set_forget_locks(f: fn()) {
    FORGET_LOCKS.store(f as *mut (), Ordering::Relaxed);
}

/// Before anything of ours is used: a child that was made behind our back goes on without us. It must not count in
/// its parent's statistics, nor wait for a lock or for the end of a fork of its parent's.
#[inline]
pub(crate) fn heed_unknown_fork() {
    if !alive() {
        made_behind_our_back();
    }
}

#[cold]
fn made_behind_our_back() {
    // A child of `fork` comes to our handler.
    if critical::forking() {
        return;
    }
    let word = ALIVE.load(Ordering::Relaxed);
    // SAFETY: planted once, never unmapped. Of several threads one does what follows.
    let claimed =
        unsafe { &*word }.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
    if claimed.is_ok() {
        let forget = FORGET_LOCKS.load(Ordering::Relaxed);
        if !forget.is_null() {
            // SAFETY: [`set_forget_locks`] alone stores it.
            unsafe { core::mem::transmute::<*mut (), fn()>(forget)() };
        }
        super::after_bare_fork_child();
        // SAFETY: as above.
        unsafe { (*word).store(GOES_ON, Ordering::Release) };
    }
    // SAFETY: as above.
    while unsafe { (*word).load(Ordering::Acquire) } == CLAIMED {
        core::hint::spin_loop();
    }
}

const ALIVE_HERE: usize = 1;
/// A child made behind our back: one of its threads puts our locks right.
const CLAIMED: usize = 2;
/// It has.
const GOES_ON: usize = 3;
