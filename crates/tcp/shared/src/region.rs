//! The memfd of a region: made by the service, sealed so that it never changes its length (a
//! shorter one would be SIGBUS), and mapped by the two programs.
//!
//! unsafe: the mapping, and what is reached through it. References go to atomics only; bytes are
//! reached by [`copy`].

use crate::copy::{self, Fault};
use crate::file;
use crate::layout::{
    Header, Notices, REGION, Runs, header_at, returns_at, ring_at, runs_at, slot_at,
};
use crate::notice::{Notice, SLOTS};
use crate::returns::Returns;
use crate::ring::{RING, Spans};
use crate::runs::Queue;
use crate::stores::Stores;
use core::ffi::c_void;
use core::ptr::NonNull;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A new memfd of a region's length, all zeros, sealed.
pub fn create() -> Result<OwnedFd, Errno> {
    let fd = file::create("uncopy-tcp", REGION)?;
    rustix::fs::fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// A mapped region.
#[derive(Debug)]
pub struct SharedRegion {
    at: NonNull<u8>,
}

// SAFETY: a mapping belongs to no thread; what it holds is atomics, and bytes that anybody may
// change anyway.
unsafe impl Send for SharedRegion {}
// SAFETY: as above.
unsafe impl Sync for SharedRegion {}

impl SharedRegion {
    /// Maps what the service sent, at `hint` (0: anywhere) if that is free. EINVAL: that is no
    /// region, or one whose length could change.
    pub fn map(hint: usize, fd: impl AsFd) -> Result<Self, Errno> {
        if rustix::fs::fstat(&fd)?.st_size != REGION as i64
            || !rustix::fs::fcntl_get_seals(&fd)?.contains(SEALS)
        {
            return Err(Errno::INVAL);
        }
        // SAFETY: a new mapping where there is none.
        let at = unsafe {
            rustix::mm::mmap(
                hint as *mut _,
                REGION,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                fd,
                0,
            )
        }?;
        // Bytes that pass through are as private as those that pass through a socket: not in a
        // core. Failing does no harm.
        // SAFETY: our mapping.
        let _ = unsafe { rustix::mm::madvise(at, REGION, Advice::LinuxDontDump) };
        NonNull::new(at.cast()).map(|at| Self { at }).ok_or(Errno::NOMEM)
    }

    fn notices(&self) -> &Notices {
        // SAFETY: the first page; atomics only.
        unsafe { self.at.cast::<Notices>().as_ref() }
    }

    /// The notices that are posted at this side's door.
    #[inline]
    pub fn notice(&self, side: usize, door: usize) -> &Notice {
        &self.notices().0[side][door]
    }

    /// By which blocks come back that this side has given.
    #[inline]
    pub fn returns(&self, side: usize) -> &Returns {
        assert!(side < 2);
        // SAFETY: a page of the mapping (`layout`'s tests); atomics only.
        unsafe { self.at.add(returns_at(side)).cast::<Returns>().as_ref() }
    }

    /// A slot.
    ///
    /// # Panics
    /// If there is no such slot: the caller checks what it was sent.
    #[inline]
    pub fn slot(&self, slot: usize) -> Slot<'_> {
        assert!(slot < SLOTS);
        // SAFETY: within the mapping (`layout`'s tests), for as long as it.
        let at = unsafe { self.at.add(slot_at(slot)) };
        // SAFETY: as above; atomics only, aligned to 64.
        Slot { at, header: unsafe { at.add(header_at()).cast::<Header>().as_ref() } }
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast::<c_void>(), REGION) };
    }
}

/// A slot of a mapped region.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    at: NonNull<u8>,
    /// Its header.
    pub header: &'a Header,
}

impl<'a> Slot<'a> {
    /// Which bytes of this direction lie in blocks.
    #[inline]
    pub fn queue(&self, ring: usize) -> &'a Queue {
        // SAFETY: the slot's last page, for as long as the mapping; atomics only.
        let runs = unsafe { self.at.add(runs_at()).cast::<Runs>().as_ref() };
        &runs.0[ring]
    }
}

impl Slot<'_> {
    fn runs(&self, ring: usize, spans: Spans) -> [(*mut u8, usize); 2] {
        assert!(ring < 2 && spans.place <= RING && spans.first <= RING - spans.place);
        assert!(spans.second <= RING);
        // SAFETY: within the ring, as asserted, and so within the mapping.
        let run = |place: u32| unsafe { self.at.add(ring_at(ring) + place as usize) }.as_ptr();
        [(run(spans.place), spans.first as usize), (run(0), spans.second as usize)]
    }

    /// Copies into the ring.
    ///
    /// # Safety
    /// `from` is the program's, whatever it named; or memory of the caller's own that nobody writes
    /// to meanwhile.
    #[inline]
    pub unsafe fn put(
        &self,
        ring: usize,
        spans: Spans,
        from: *const u8,
        stores: Stores,
    ) -> Result<(), Fault> {
        let [(a, first), (b, second)] = self.runs(ring, spans);
        let copy = match stores {
            Stores::Ordinary => copy::copy,
            Stores::Streaming => copy::stream,
        };
        // SAFETY: the caller's promise, and a place within the ring.
        unsafe {
            copy(a, from, first)?;
            if second == 0 { Ok(()) } else { copy(b, from.wrapping_add(first), second) }
        }
    }

    /// Copies out of the ring.
    ///
    /// # Safety
    /// `to` is the program's: whatever it named, but nothing of ours.
    #[inline]
    pub unsafe fn get(&self, ring: usize, spans: Spans, to: *mut u8) -> Result<(), Fault> {
        let [(a, first), (b, second)] = self.runs(ring, spans);
        // SAFETY: the caller's promise, and a place within the ring.
        unsafe {
            copy::copy(to, a, first)?;
            if second == 0 { Ok(()) } else { copy::copy(to.wrapping_add(first), b, second) }
        }
    }

    /// Where the runs are, for the kernel to write to.
    pub fn room(&self, ring: usize, spans: Spans) -> [(*mut u8, usize); 2] {
        self.runs(ring, spans)
    }

    /// Where the runs are, for the kernel to read from (a ring's bytes that are taken back).
    pub fn addresses(&self, ring: usize, spans: Spans) -> [(*const u8, usize); 2] {
        self.runs(ring, spans).map(|(at, bytes)| (at.cast_const(), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::home;
    use crate::ring::{Reader, Writer};
    use crate::wanted::DOORS;
    use core::sync::atomic::Ordering::Relaxed;
    use rustix::fs::MemfdFlags;

    #[test]
    fn two_mappings_are_one_memory_and_new_ones_are_zero() {
        let fd = create().unwrap();
        let (a, b) = (SharedRegion::map(0, &fd).unwrap(), SharedRegion::map(0, &fd).unwrap());
        for slot in [0, 1, SLOTS - 1] {
            let header = a.slot(slot).header;
            assert_eq!(header.directions[1].produced.tail.load(Relaxed), 0);
            header.ends[1].closed.store(slot as u32 + 7, Relaxed);
            assert_eq!(b.slot(slot).header.ends[1].closed.load(Relaxed), slot as u32 + 7);
        }
        assert!(!a.notice(1, DOORS - 1).post(SLOTS - 1));
        let mut seen = vec![];
        assert!(b.notice(1, DOORS - 1).collect(|slot| seen.push(slot)));
        assert_eq!(seen, [SLOTS - 1]);
        assert!(!b.notice(1, DOORS - 1).any());
    }

    #[test]
    fn a_region_that_could_shrink_is_refused() {
        let fd = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, REGION as u64).unwrap();
        assert_eq!(SharedRegion::map(0, &fd).unwrap_err(), Errno::INVAL);
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .unwrap();
        SharedRegion::map(0, &fd).unwrap();
        let sealed = create().unwrap();
        assert_eq!(rustix::fs::ftruncate(&sealed, 0), Err(Errno::PERM));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(SharedRegion::map(0, &file).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn small_messages_each_way_use_one_page_of_a_slot() {
        let fd = create().unwrap();
        let region = SharedRegion::map(0, &fd).unwrap();
        let before = rustix::fs::fstat(&fd).unwrap().st_blocks;
        let slot = region.slot(3);
        for ring in [0, 1] {
            let direction = &slot.header.directions[ring];
            let (mut w, mut r) = (Writer::<RING>::new(home(ring)), Reader::<RING>::new());
            for message in 0..10_000u32 {
                let mut bytes = [0u8; 1500];
                bytes[..4].copy_from_slice(&message.to_ne_bytes());
                w.look(&direction.consumed).unwrap();
                let spans = w.reserve(bytes.len());
                // SAFETY: ours, and long enough.
                unsafe { slot.put(ring, spans, bytes.as_ptr(), Stores::Ordinary) }.unwrap();
                w.commit(&direction.produced, 1500);
                let mut got = [1u8; 1500];
                r.look(&direction.produced).unwrap();
                // SAFETY: as above.
                unsafe { slot.get(ring, r.peek(0, 1500), got.as_mut_ptr()) }.unwrap();
                r.release(&direction.consumed, 1500);
                assert_eq!(got, bytes);
            }
        }
        // Blocks of 512 bytes.
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_blocks - before, 8);
    }
}
