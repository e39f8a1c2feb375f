//! Where records are put together before they are written: memory that begins a page, as O_DIRECT
//! wants it.
//!
//! unsafe: an anonymous mapping of its own, seen as bytes.

use core::ptr::NonNull;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use uncopy_inject::Call;
use uncopy_kernel::inject;

/// Bytes that are put together at once, at most: a flush is no longer.
pub const STAGED: usize = 1 << 20;

/// See the module. It takes memory where it was touched.
#[derive(Debug)]
pub struct Staging {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread, and this value is its only owner.
unsafe impl Send for Staging {}

impl Staging {
    /// Memory of `bytes`, all zeros.
    ///
    /// # Errors
    /// The kernel's: no memory.
    pub fn new(bytes: usize) -> Result<Self, Errno> {
        inject::check(Call::Mmap)?;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping where there is none.
        let at = unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, both, flags) }?;
        NonNull::new(at.cast()).map(|at| Self { at, bytes }).ok_or(Errno::NOMEM)
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping, as long as this value; anonymous memory is initialized.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    /// All of it, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed by nobody else.
        unsafe { core::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has a reference into it.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
