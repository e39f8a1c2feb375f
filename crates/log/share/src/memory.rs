//! The mapping of what is shared.
//!
//! unsafe: the mapping, and what is reached through it. References go to atomics only; bytes of
//! rings are reached by pointers, and the words say who may.

use crate::layout::{BYTES, ENTRY, Entry, HEADER, Header, PIECE, RING, RINGS, SLOTS};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use uncopy_inject::Call;
use uncopy_kernel::inject;
use uncopy_log_store::HeldMemory;
use uncopy_log_store::held_memory::back;

/// See the module.
#[derive(Debug)]
pub struct Memory<F> {
    file: F,
    at: NonNull<u8>,
}

// SAFETY: a mapping belongs to no thread; what it holds is atomics, and bytes of which the words
// say who may use them.
unsafe impl<F: Send> Send for Memory<F> {}
// SAFETY: as above.
unsafe impl<F: Sync> Sync for Memory<F> {}

/// Bytes of a ring, from a place in the file on: at most two runs.
pub type Runs = [(*mut u8, usize); 2];

impl<F: AsFd> Memory<F> {
    /// Maps what lies in `file`, of which `length` bytes are there.
    ///
    /// # Errors
    /// EINVAL: it has another length, or is of another version; else the kernel's.
    pub fn map(file: F, length: u64) -> Result<Self, Errno> {
        if length != BYTES {
            return Err(Errno::INVAL);
        }
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        inject::check(Call::Mmap)?;
        // SAFETY: a new mapping where there is none.
        let at = unsafe { mmap(core::ptr::null_mut(), BYTES as usize, both, flags, &file, 0) }?;
        // (Held bytes are as private as the file. Failing does no harm.)
        // SAFETY: our mapping.
        let _ = unsafe { madvise(at, BYTES as usize, Advice::LinuxDontDump) };
        NonNull::new(at.cast()).map(|at| Self { file, at }).ok_or(Errno::NOMEM)
    }

    /// The first words, for which there must be room ([`Memory::furnish`]).
    pub fn header(&self) -> &Header {
        // SAFETY: the beginning of the mapping; atomics only.
        unsafe { self.at.cast::<Header>().as_ref() }
    }

    /// Takes room for header and entries.
    ///
    /// # Errors
    /// ENOSPC: tmpfs has none.
    pub fn furnish(&self) -> Result<(), Errno> {
        back(self.file.as_fd(), 0, (HEADER + SLOTS * ENTRY) as u64)
    }

    /// An entry.
    ///
    /// # Panics
    /// If there is no such slot: the caller checks what it was sent.
    pub fn entry(&self, slot: usize) -> &Entry {
        assert!(slot < SLOTS);
        // SAFETY: within the mapping, aligned, atomics only.
        unsafe { self.at.add(HEADER + slot * ENTRY).cast::<Entry>().as_ref() }
    }

    /// All of them.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        (0..SLOTS).map(|slot| (slot, self.entry(slot)))
    }

    /// Where `bytes` of the file of `slot` lie, from its byte `from` on.
    ///
    /// # Panics
    /// If these are more than a ring has.
    pub fn runs(&self, slot: usize, from: u64, bytes: usize) -> Runs {
        assert!(slot < SLOTS && bytes as u64 <= RING);
        let place = from % RING;
        let first = bytes.min((RING - place) as usize);
        // SAFETY: within the slot's ring, and so within the mapping.
        let ring = unsafe { self.at.add((RINGS + slot as u64 * RING) as usize) };
        // SAFETY: as above.
        let at = unsafe { ring.add(place as usize) };
        [(at.as_ptr(), first), (ring.as_ptr(), bytes - first)]
    }

    /// Takes memory for `bytes` of the ring from the file's byte `from` on, as far as it has none.
    ///
    /// # Errors
    /// ENOSPC: tmpfs has none. Touching what has none would be SIGBUS.
    pub fn back(&self, slot: usize, from: u64, bytes: usize) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        let backed = &self.entry(slot).backed;
        let last = (from + bytes as u64 - 1) / PIECE;
        for piece in from / PIECE..=last {
            let place = piece % (RING / PIECE);
            if backed.load(Ordering::Acquire) >> place & 1 == 0 {
                let at = RINGS + slot as u64 * RING + place * PIECE;
                back(self.file.as_fd(), at, PIECE)?;
                backed.fetch_or(1 << place, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Copies bytes of the file of `slot` from `from` on out of its ring. While somebody appends
    /// they may be any.
    pub fn copy_out(&self, slot: usize, from: u64, to: &mut [u8]) {
        let mut rest = to;
        for (at, bytes) in self.runs(slot, from, rest.len()) {
            let (run, others) = rest.split_at_mut(bytes);
            // SAFETY: within the ring; what it holds are bytes, whoever writes them.
            unsafe { run.as_mut_ptr().copy_from_nonoverlapping(at, bytes) };
            rest = others;
        }
    }

    /// Its file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Memory<HeldMemory> {
    /// Service: makes what is shared anew, in a file at `path` that is not there.
    ///
    /// # Errors
    /// The kernel's; EEXIST: there is one.
    pub fn create(path: &std::path::Path) -> Result<Self, Errno> {
        let held = HeldMemory::create(path, BYTES).map_err(|failed| failed.why)?;
        let made = Self::map(held, BYTES).and_then(|memory| memory.furnish().map(|()| memory));
        // (Half of it would be taken for one that is damaged.)
        let memory = made.inspect_err(|_| drop(std::fs::remove_file(path)))?;
        memory.header().begin();
        Ok(memory)
    }

    /// Service: what was shared before, as somebody left it.
    ///
    /// # Errors
    /// The kernel's; EINVAL: it is of another version, or no such file.
    pub fn open(path: &std::path::Path) -> Result<Self, Errno> {
        let (held, length) = HeldMemory::open(path).map_err(|failed| failed.why)?;
        let memory = Self::map(held, length)?;
        memory.furnish()?;
        if memory.header().is_known() { Ok(memory) } else { Err(Errno::INVAL) }
    }
}

impl<F> Drop for Memory<F> {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has a reference into it.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), BYTES as usize) };
    }
}
