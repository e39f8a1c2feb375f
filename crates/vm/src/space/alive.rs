//! Whether this process is the one that the tracker was made for: a child that was made behind our back (clone without fork's handlers)
//! must not use what it inherited.
//!
//! unsafe: maps one page of our own, which the kernel clears in children, and reads a word of it.

use crate::{inject, stats};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use uncopy_core::inject::Call;
use uncopy_core::span::PAGE;

/// A word that a child made behind our back (clone without fork) finds zeroed.
static ALIVE: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the word, or in a forked child sets it again.
pub(super) fn plant_alive() -> Result<(), Errno> {
    let word = ALIVE.load(Ordering::Relaxed);
    if !word.is_null() {
        // SAFETY: planted once, never unmapped; fork's child has found it zeroed.
        unsafe { (*word).store(1, Ordering::Relaxed) };
        return Ok(());
    }
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
    unsafe { (*word).store(1, Ordering::Relaxed) };
    ALIVE.store(word, Ordering::Release);
    Ok(())
}

/// Whether this is not such a child.
pub fn alive() -> bool {
    let word = ALIVE.load(Ordering::Relaxed);
    // SAFETY: planted once, never unmapped.
    word.is_null() || unsafe { (*word).load(Ordering::Relaxed) } == 1
}

/// A child that was made behind our back must not count in its parent's statistics.
#[inline]
pub(crate) fn heed_unknown_fork() {
    if stats::published() && !alive() {
        stats::keep_private();
    }
}
