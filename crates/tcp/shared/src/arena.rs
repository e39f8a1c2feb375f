//! An arena of blocks: a memfd that one program writes, sealed so that its peers map it read-only
//! and its length never changes (a shorter one would be SIGBUS).
//!
//! Its bytes are as its owner says, at any time: a peer treats them as those of a ring.
//!
//! unsafe: the mapping, and what is reached through it: bytes only, by [`copy`].

use crate::copy::{self, Fault};
use crate::file;
use crate::layout::PAGE;
use core::ffi::c_void;
use core::ptr::NonNull;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of an arena. Memory is used as far as blocks are, the lowest first.
pub const ARENA: usize = 64 << 20;

const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// A mapped arena, of this program or another.
#[derive(Debug)]
pub struct Arena {
    at: NonNull<u8>,
}

// SAFETY: a mapping belongs to no thread; its bytes anybody may change who is its owner.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// A new one of this program's, mapped at `hint` if that is free, and what others map it by.
    pub fn create(hint: usize) -> Result<(Self, OwnedFd), Errno> {
        let fd = file::create("uncopy-tcp-blocks", ARENA)?;
        let own = Self::map(hint, &fd, ProtFlags::READ | ProtFlags::WRITE)?;
        // From here on nobody maps it to write, nor writes to the file.
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Ok((own, fd))
    }

    /// Maps another program's. EINVAL: that is none, or one that others than who made it can write
    /// to, or whose length could change, or whose pages are larger than views' are.
    pub fn of_peer(hint: usize, fd: impl AsFd) -> Result<Self, Errno> {
        is_one(&fd)?;
        Self::map(hint, fd, ProtFlags::READ)
    }

    fn map(hint: usize, fd: impl AsFd, access: ProtFlags) -> Result<Self, Errno> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping where there is none.
        let at = unsafe { rustix::mm::mmap(hint as *mut _, ARENA, access, flags, fd, 0) }?;
        // (As for regions: not in a core.)
        // SAFETY: our mapping.
        let _ = unsafe { rustix::mm::madvise(at, ARENA, Advice::LinuxDontDump) };
        NonNull::new(at.cast()).map(|at| Self { at }).ok_or(Errno::NOMEM)
    }

    /// Where it lies.
    pub fn base(&self) -> usize {
        self.at.as_ptr() as usize
    }

    /// Where so many bytes at `at` lie. `None`: not within it.
    #[inline]
    pub fn address(&self, at: u32, bytes: u32) -> Option<*mut u8> {
        let (at, bytes) = (at as usize, bytes as usize);
        // SAFETY: within the mapping, as is asked first.
        (at + bytes <= ARENA).then(|| unsafe { self.at.add(at) }.as_ptr())
    }

    /// Copies into it, which is this program's.
    ///
    /// # Safety
    /// `from` is the program's, whatever it named. The place is a block that nobody has been given.
    ///
    /// # Panics
    /// Where the place is not within it.
    #[inline]
    pub unsafe fn put(&self, at: u32, from: *const u8, bytes: u32) -> Result<(), Fault> {
        let to = self.address(at, bytes).expect("a block lies within its arena");
        // SAFETY: the caller's promise.
        unsafe { copy::copy(to, from, bytes as usize) }
    }
}

/// Whether this is another program's, or EINVAL ([`Arena::of_peer`]).
pub fn is_one(fd: impl AsFd) -> Result<(), Errno> {
    // (Its seals first: of a file that is no memory whoever serves it might not answer the rest.)
    if !rustix::fs::fcntl_get_seals(&fd)?.contains(SEALS)
        || rustix::fs::fstat(&fd)?.st_size != ARENA as i64
        || rustix::fs::fstatfs(&fd)?.f_bsize != PAGE as _
    {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// Copies out of an arena, from an [address](Arena::address) in it.
///
/// # Safety
/// `to` is the program's: whatever it named, but nothing of ours.
#[inline]
pub unsafe fn get(from: *const u8, to: *mut u8, bytes: u32) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { copy::copy(to, from, bytes as usize) }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has an address in it any more.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast::<c_void>(), ARENA) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    #[test]
    fn a_peer_sees_what_the_owner_writes_and_can_write_nothing() {
        let (own, fd) = Arena::create(0).unwrap();
        let peer = Arena::of_peer(0, &fd).unwrap();
        let bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let at = ARENA as u32 - 10_000;
        // SAFETY: our own bytes, in a new arena.
        unsafe { own.put(at, bytes.as_ptr(), 10_000) }.unwrap();
        let mut got = vec![0; 10_000];
        // SAFETY: long enough.
        unsafe { get(peer.address(at, 10_000).unwrap(), got.as_mut_ptr(), 10_000) }.unwrap();
        assert_eq!(got, bytes);
        assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
        let (read, write) = (ProtFlags::READ, ProtFlags::WRITE);
        assert!(Arena::map(0, &fd, read | write).is_err());
        assert_eq!(
            (peer.address(at, 10_001), peer.address(u32::MAX, u32::MAX)),
            (None, None),
            "nothing is outside"
        );
    }

    #[test]
    fn an_arena_that_others_could_write_to_or_shorten_is_refused() {
        let seals = SEALS.difference(SealFlags::SEAL);
        for left_out in [SealFlags::empty(), SealFlags::FUTURE_WRITE, SealFlags::SHRINK] {
            let fd = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&fd, ARENA as u64).unwrap();
            rustix::fs::fcntl_add_seals(&fd, seals.difference(left_out)).unwrap();
            assert_eq!(Arena::of_peer(0, &fd).unwrap_err(), Errno::INVAL);
        }
        // (Memory that is viewed lies at any page: huge pages cannot be mapped so.)
        let huge = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        if let Ok(fd) = rustix::fs::memfd_create("x", huge) {
            rustix::fs::ftruncate(&fd, ARENA as u64).unwrap();
            rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
            assert_eq!(Arena::of_peer(0, &fd).unwrap_err(), Errno::INVAL);
        }
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(Arena::of_peer(0, &file).unwrap_err(), Errno::INVAL);
    }
}
