//! How late it is: for the experiments that compare stretches of the program's own time.
//!
//! Asked for once in several MB that the program copies, so it matters little what reading it
//! takes; and only while something may be tracked: both are system calls on some machines, which a
//! sandbox may forbid.

use crate::inject;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use uncopy_inject::Call;

/// Finds the kernel's code that tells the time. To be called by a constructor: what finds it
/// (`dlsym`) waits for whoever loads a library, who may wait for us.
pub fn prepare() {
    // (The variant that may fail: whatever refuses it, the program goes on.)
    let _ = clock_gettime_dynamic(DynamicClockId::Known(ClockId::Monotonic));
}

/// Seconds since some beginning, at the cost of a few loads; 0: the kernel does not tell.
pub fn seconds() -> i64 {
    clock_gettime_dynamic(DynamicClockId::Known(ClockId::MonotonicCoarse)).map_or(0, |t| t.tv_sec)
}

/// Milliseconds since some beginning, come round; as exact as the kernel's tick. A few loads; 0:
/// the kernel does not tell.
#[inline]
pub fn coarse_ms() -> u32 {
    clock_gettime_dynamic(DynamicClockId::Known(ClockId::MonotonicCoarse)).map_or(0, |t| {
        (t.tv_sec as u32).wrapping_mul(1000).wrapping_add(t.tv_nsec as u32 / 1_000_000)
    })
}

/// Milliseconds since some beginning, to a few exactly; 0: the kernel does not tell.
pub fn millis() -> u64 {
    let now = clock_gettime_dynamic(DynamicClockId::Known(ClockId::MonotonicCoarse));
    now.map_or(0, |t| ns(t) / 1_000_000)
}

/// Processor time of this process, and time, in ns; `None`: the kernel does not tell.
pub fn times() -> Option<(u64, u64)> {
    inject::check(Call::Clock).ok()?;
    // (The variant that may fail: a sandbox that we were not told of may refuse it.)
    let used = DynamicClockId::Known(ClockId::ProcessCPUTime);
    let used = clock_gettime_dynamic(used).ok()?;
    Some((ns(used), ns(clock_gettime(ClockId::Monotonic))))
}

#[inline]
fn ns(t: Timespec) -> u64 {
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}
