//! Mappings of our own: reserved, given back, left out of core dumps.
//!
//! unsafe: maps and unmaps memory that only its caller knows.

use crate::inject;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, mmap_anonymous};
use uncopy_inject::Call;
use uncopy_ranges::span::Span;

/// Memory that is read and written.
pub const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Address space of `bytes`, at `hint` (0: anywhere) if that is free, which takes memory only where
/// it is touched.
///
/// # Errors
/// The kernel's.
pub fn reserve(hint: usize, bytes: usize, access: ProtFlags) -> Result<usize, Errno> {
    inject::check(Call::Mmap)?;
    // SAFETY: a new private mapping where there is none.
    unsafe {
        mmap_anonymous(hint as *mut _, bytes, access, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }
    .map(|p| p as usize)
}

/// Unmaps pages of ours; returns whether that worked. Where the kernel refuses, addresses are lost,
/// not memory: most of it was never touched.
///
/// # Safety
/// They are a mapping of ours, or a part of one, and nothing refers to them.
pub unsafe fn unmap(span: Span) -> bool {
    // SAFETY: the caller's promise.
    inject::check(Call::Munmap)
        .and_then(|()| unsafe { rustix::mm::munmap(span.start as *mut _, span.len()) })
        .is_ok()
}

/// Drops what is in pages of ours; they read as zeros then. Returns whether that worked: locked
/// pages stay.
///
/// # Safety
/// They are a mapping of ours, or a part of one, and nobody needs their content.
pub unsafe fn empty(span: Span) -> bool {
    // SAFETY: the caller's promise.
    inject::check(Call::Madvise)
        .and_then(|()| unsafe {
            rustix::mm::madvise(span.start as *mut _, span.len(), Advice::LinuxDontNeed)
        })
        .is_ok()
}

/// Core dumps do not have `span`, which is ours: the pool alone would be an eighth of the machine's
/// memory to be written to a pipe.
pub fn leave_out_of_dumps(span: Span) {
    // SAFETY: concerns core dumps only.
    let _ = inject::check(Call::Madvise).and_then(|()| unsafe {
        rustix::mm::madvise(span.start as *mut _, span.len(), Advice::LinuxDontDump)
    });
}
