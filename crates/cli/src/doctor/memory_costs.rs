//! What memory costs without userfaultfd: copying, first touches, dropping; and a system call.

use super::measured::{Measured, SIZES, Work};
use super::region::Region;
use super::sample::{of, time, time_of_each};
use crate::Outcome;

/// Measures; calls `done` after each piece of work.
pub fn measure(results: &mut Vec<Measured>, mut done: impl FnMut()) -> Outcome {
    let largest = SIZES[SIZES.len() - 1];
    let memory = Region::map(2 * largest)?;
    memory.touch(memory.span());
    let mut put = |work, bytes, ns| {
        results.push(Measured { work, bytes, ns });
        done();
    };
    for size in SIZES {
        let (to, from) = (memory.part(largest, size), memory.part(0, size));
        let times = (256 << 10) / size.min(256 << 10);
        put(Work::CopyHot, size, of(|| time_of_each(times, || memory.copy(to, from))));
    }
    for size in SIZES {
        let (to, from) = (memory.part(largest, size), memory.part(0, size));
        let cold = of(|| {
            memory.flush(to);
            memory.flush(from);
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
