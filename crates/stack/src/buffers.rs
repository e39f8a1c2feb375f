//! The `iovec` list of a call, ours or the program's.
//!
//! unsafe: reads the list that the program passed.

use arrayvec::ArrayVec;
use libc::iovec;
use uncopy_core::plan::MAX_PIECES;
use uncopy_vm::space;

/// A list of pieces made by us.
pub type Pieces = ArrayVec<iovec, MAX_PIECES>;

/// One piece.
pub fn piece(addr: usize, len: usize) -> iovec {
    iovec { iov_base: addr as *mut libc::c_void, iov_len: len }
}

/// Address and length of each buffer.
pub fn spans(buffers: &[iovec]) -> impl Iterator<Item = (usize, usize)> + '_ {
    buffers.iter().map(|b| (b.iov_base as usize, b.iov_len))
}

/// Whether any of the buffers may hold tracked pages (without the lock).
#[inline]
pub fn perhaps_tracked(buffers: &[iovec]) -> bool {
    space::running()
        && buffers.len() <= MAX_PIECES
        && spans(buffers).any(|(addr, len)| len > 0 && space::FILTER.perhaps_tracked(addr, len))
}

/// Most buffers that one call may have.
pub const IOV_MAX: usize = 1024;

/// The buffers of a vectored call; none if the list is one that the kernel refuses.
///
/// # Safety
/// Unless it is null or too long, `iov` points to `count` buffers.
pub unsafe fn list<'a>(iov: *const iovec, count: usize) -> &'a [iovec] {
    if iov.is_null() || count > IOV_MAX || !iov.is_aligned() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(iov, count) }
}
