//! The store for persistent memory: the log's file mapped with MAP_SYNC, so that what the processor
//! has stored and fenced is durable without a system call. Stores go past the caches, which is both
//! what makes them durable and faster than copying and writing lines back.
//!
//! The kernel refuses MAP_SYNC where the file is no such memory (EOPNOTSUPP): then this store is
//! not to be had, and says so.
//!
//! unsafe: the mapping, and stores to it.

use crate::failed::Failed;
use crate::file::{length, new_file};
use crate::staging::{STAGED, Staging};
use crate::store::{Kind, Store};
use core::arch::x86_64::{_mm_sfence, _mm_stream_si64};
use core::ptr::NonNull;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use uncopy_inject::Call;
use uncopy_kernel::inject;

/// `MAP_SYNC | MAP_SHARED_VALIDATE` (linux/mman.h).
const SYNC: u32 = 0x8_0000 | 0x3;

/// See the module.
#[derive(Debug)]
pub struct Dax {
    file: OwnedFd,
    at: NonNull<u8>,
    bytes: usize,
    staging: Staging,
}

// SAFETY: a mapping belongs to no thread, and this value is its only owner.
unsafe impl Send for Dax {}

impl Dax {
    /// A new one, of zeros.
    ///
    /// # Errors
    /// The step that failed; EOPNOTSUPP for the mapping: the file system does not lie in persistent
    /// memory.
    pub fn create(directory: BorrowedFd<'_>, name: &str, bytes: u64) -> Result<Self, Failed> {
        let file = new_file(directory, name)?;
        inject::check(Call::LogZeros)
            .and_then(|()| fallocate(&file, FallocateFlags::empty(), 0, bytes))
            .and_then(|()| fdatasync(&file))
            .map_err(Failed::to("give the log file its length"))?;
        Self::open(file)
    }

    /// One that was made before.
    ///
    /// # Errors
    /// As [`Dax::create`].
    pub fn open(file: OwnedFd) -> Result<Self, Failed> {
        let bytes = length(&file)? as usize;
        let flags = MapFlags::from_bits_retain(SYNC);
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let staging = Staging::new(STAGED).map_err(Failed::to("get memory for the log"))?;
        let mapped = inject::check(Call::LogMemory)
            // SAFETY: a new mapping where there is none.
            .and_then(|()| unsafe { mmap(core::ptr::null_mut(), bytes, both, flags, &file, 0) });
        let mapped = mapped.map_err(|why| Failed {
            what: "map the log with MAP_SYNC",
            why,
            hint: "the store `dax` wants a file system in persistent memory, mounted with -o dax; \
                   take --log-store=direct",
        })?;
        let at = NonNull::new(mapped.cast::<u8>());
        let at = at.ok_or(Errno::NOMEM).map_err(Failed::to("map the log with MAP_SYNC"))?;
        Ok(Self { file, at, bytes, staging })
    }
}

/// Stores `from` at `to` past the caches; durable once this returns, where `to` is persistent
/// memory mapped with MAP_SYNC.
///
/// # Safety
/// So many bytes at `to` are ours, and `to` is aligned to 8.
unsafe fn store(to: *mut u8, from: &[u8]) {
    for (i, word) in from.chunks_exact(8).enumerate() {
        let word = i64::from_ne_bytes(word.try_into().expect("eight bytes"));
        // SAFETY: the caller's promise; SSE2 is part of x86-64.
        unsafe { _mm_stream_si64(to.add(i * 8).cast(), word) };
    }
    // SAFETY: orders the stores before whatever comes after.
    unsafe { _mm_sfence() };
}

impl Store for Dax {
    fn kind(&self) -> Kind {
        Kind::Dax
    }

    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn memory(&mut self) -> &mut [u8] {
        self.staging.bytes_mut()
    }

    fn flush(&mut self, at: u64, bytes: usize) -> Result<(), Errno> {
        inject::check(Call::LogFlush)?;
        let end = usize::try_from(at).ok().and_then(|at| at.checked_add(bytes));
        if end.is_none_or(|end| end > self.bytes) || !at.is_multiple_of(8) {
            return Err(Errno::INVAL);
        }
        // SAFETY: within the mapping, as was just seen, and aligned.
        unsafe { store(self.at.as_ptr().add(at as usize), &self.staging.bytes()[..bytes]) };
        Ok(())
    }

    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Errno> {
        inject::check(Call::LogRead)?;
        to.fill(0);
        let at = (at as usize).min(self.bytes);
        let n = to.len().min(self.bytes - at);
        // SAFETY: within the mapping; this value is borrowed, so nobody stores there meanwhile.
        let from = unsafe { core::slice::from_raw_parts(self.at.as_ptr().add(at), n) };
        to[..n].copy_from_slice(from);
        Ok(())
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Dax {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has a reference into it.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_past_the_caches_are_the_bytes_that_were_given() {
        let from: Vec<u8> = (0..4096u32).map(|i| (i * 7) as u8).collect();
        let mut to = vec![0u64; 512];
        // SAFETY: a block of our own, as long, of words.
        unsafe { store(to.as_mut_ptr().cast(), &from) };
        assert!(to.iter().flat_map(|w| w.to_ne_bytes()).eq(from.iter().copied()));
    }
}
