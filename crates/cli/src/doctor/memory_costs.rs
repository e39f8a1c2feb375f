//! The cost of memory without userfaultfd: copying, first touches, dropping; and of a system call.

use uncopy_measure::Failure;

use super::mapping::Mapping;
use super::measured::{Measured, SIZES, Work};
use super::sample::{of, time, time_of_each};

/// Half of the memory that cold copies walk through: its pages are far more than the processor's
/// translation caches hold. (Its lines are flushed: caches may be larger.)
const COLD: usize = 64 << 20;
/// Least distance of cold copies, so that none is read ahead for the next.
const STRIDE: usize = 68 << 10;

/// Measures; calls `done` after each piece of work.
pub fn measure(results: &mut Vec<Measured>, mut done: impl FnMut()) -> Result<(), Failure> {
    let memory = Mapping::map(2 * COLD)?;
    memory.touch(memory.span());
    let mut put = |work, bytes, ns| {
        results.push(Measured { work, bytes, ns });
        done();
    };
    for size in SIZES {
        let (to, from) = (memory.part(COLD, size), memory.part(0, size));
        let times = (256 << 10) / size.min(256 << 10);
        put(Work::CopyHot, size, of(|| time_of_each(times, || memory.copy(to, from))));
    }
    for size in SIZES {
        let mut offset = COLD;
        let cold = of(|| {
            offset += size.max(STRIDE);
            if offset + size > COLD {
                offset = 0;
                memory.flush(memory.span());
            }
            let (to, from) = (memory.part(COLD + offset, size), memory.part(offset, size));
            time(|| memory.copy(to, from))
        });
        put(Work::CopyCold, size, cold);
    }
    for size in SIZES {
        let part = memory.part(0, size);
        let touch = || {
            memory.discard(part);
            time(|| memory.touch(part))
        };
        put(Work::FirstTouch, size, of(touch));
        let discard = || {
            memory.touch(part);
            time(|| memory.discard(part))
        };
        put(Work::Discard, size, of(discard));
    }
    // SAFETY: the call takes nothing and changes nothing.
    let call = || unsafe {
        libc::syscall(libc::SYS_getppid);
    };
    put(Work::SystemCall, 0, of(|| time_of_each(100, call)));
    Ok(())
}
