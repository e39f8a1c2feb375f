//! Memory to measure on: private, anonymous, whole pages, never huge ones.

// Unsafe: maps, fills and drops pages of its own, by their addresses.

use std::io;

use uncopy_measure::Failure;
use uncopy_ranges::span::{PAGE, Span};

/// A line of the cache, in bytes.
const LINE: usize = 64;

/// A mapping of our own.
#[derive(Debug)]
pub struct Mapping(Span);

impl Mapping {
    /// `bytes` of fresh memory: nothing is there until it is touched.
    pub fn map(bytes: usize) -> Result<Self, Failure> {
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Failure::new("no memory to measure on").because(io::Error::last_os_error()));
        }
        let mapping = Self(Span::sized(at as usize, bytes));
        // Huge pages would be split by a move. A kernel without any refuses, and has none.
        // SAFETY: our own mapping.
        unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(mapping)
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.0
    }

    /// The `len` bytes at `offset`.
    pub fn part(&self, offset: usize, len: usize) -> Span {
        assert!(offset + len <= self.0.len());
        Span::sized(self.0.start + offset, len)
    }

    /// Writes to every page of `part`.
    pub fn touch(&self, part: Span) {
        self.check(part);
        for page in (part.start..part.end).step_by(PAGE) {
            // SAFETY: inside our own mapping, which no Rust object lies in.
            unsafe { (page as *mut u8).write_volatile(1) };
        }
    }

    /// Drops the pages of `part`.
    pub fn discard(&self, part: Span) {
        self.check(part);
        // SAFETY: our own mapping, which no Rust object lies in.
        unsafe { libc::madvise(part.start as *mut _, part.len(), libc::MADV_DONTNEED) };
    }

    /// Copies `from` to as many bytes at `to`, which do not overlap.
    pub fn copy(&self, to: Span, from: Span) {
        self.check(to);
        self.check(from);
        assert!(to.len() == from.len() && !to.overlaps(from));
        // SAFETY: both inside our own mapping, apart; no Rust object lies there.
        unsafe {
            std::ptr::copy_nonoverlapping(from.start as *const u8, to.start as *mut u8, to.len());
        }
        std::hint::black_box(self);
    }

    /// Drops `part` from all caches.
    pub fn flush(&self, part: Span) {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        self.check(part);
        for line in (part.start..part.end).step_by(LINE) {
            // SAFETY: inside our own mapping; changes no byte.
            unsafe { _mm_clflush(line as *const u8) };
        }
        // SAFETY: only waits until that is done.
        unsafe { _mm_mfence() };
    }

    fn check(&self, part: Span) {
        assert!(part.start >= self.0.start && part.end <= self.0.end);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to any more.
        unsafe { libc::munmap(self.0.start as *mut _, self.0.len()) };
    }
}
