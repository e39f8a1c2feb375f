//! Buffers through which files are streamed into rings: a few for the process, which stay in the
//! caches and in no core file.
//!
//! unsafe: memory of their own, which nobody unmaps.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr::NonNull;
use std::sync::Mutex;
use uncopy_kernel::placement;

/// Bytes of each: 64 KB of a file that are read by 32 KB take a seventh more time, by 8 KB twice as
/// much.
pub const SIZE: usize = 64 << 10;

/// As many as there are threads that send files at the same time, roughly; a child that was forked
/// meanwhile lacks those that were in use.
static ALL: [Mutex<Option<Buffer>>; 4] = [const { Mutex::new(None) }; 4];

struct Buffer(NonNull<u8>);

// SAFETY: it is used by whoever holds its lock.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new() -> Option<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let at = placement::SMALL.next(SIZE) as *mut _;
        // SAFETY: a new place.
        let at = unsafe { mmap_anonymous(at, SIZE, access, MapFlags::PRIVATE) };
        let at = at.ok()?;
        // SAFETY: our own memory. (Nothing depends on it.)
        let _ = unsafe { madvise(at, SIZE, Advice::LinuxDontDump) };
        NonNull::new(at.cast()).map(Self)
    }
}

/// Uses one of [`SIZE`] bytes. `None`: all are in use, or there is no memory; nobody waits.
pub fn with<T>(uses: impl FnOnce(NonNull<u8>) -> T) -> Option<T> {
    let mut buffer = ALL.iter().find_map(|buffer| buffer.try_lock().ok())?;
    if buffer.is_none() {
        *buffer = Buffer::new();
    }
    buffer.as_ref().map(|buffer| uses(buffer.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_at_a_time_are_different_ones_and_a_fifth_is_none() {
        let used = with(|a| with(|b| with(|c| with(|d| (a, b, c, d, with(|_| ()))))));
        let (a, b, c, d, fifth) = used.flatten().flatten().flatten().unwrap();
        let mut all = [a, b, c, d];
        all.sort();
        assert!(all.is_sorted_by(|a, b| a < b));
        assert_eq!(fifth, None);
        assert_eq!(with(|again| all.contains(&again)), Some(true));
    }
}
