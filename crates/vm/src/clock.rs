//! The time that copies take, now and then: for the prices that are measured in the program itself
//! ([`uncopy_core::prices`]).
//!
//! Only while the space runs: where the kernel's clock needs a system call, a sandbox may forbid it.

use crate::space;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use rustix::time::{ClockId, clock_gettime};

/// The first so many calls are all timed.
const ALL_OF: u32 = 64;
/// Of later ones one in so many (a power of two).
const ONE_IN: u32 = 8;

/// Chooses which calls are timed. (Threads that use one may lose a count: no harm.)
#[derive(Debug, Default)]
pub struct Sampler {
    calls: AtomicU32,
}

impl Sampler {
    /// Nothing timed yet.
    pub const fn new() -> Self {
        Self { calls: AtomicU32::new(0) }
    }

    /// The time (monotonic, in ns), if the call that begins is to be timed.
    #[inline]
    pub fn begin(&self) -> Option<u64> {
        let n = self.calls.load(Relaxed);
        self.calls.store(n.wrapping_add(1), Relaxed);
        (chosen(n) && space::running()).then(now)
    }
}

/// A program that makes the same few copies for each request must not have always the same of them timed.
#[inline]
fn chosen(n: u32) -> bool {
    n < ALL_OF || n.wrapping_mul(0x9e37_79b9) < u32::MAX / ONE_IN
}

/// ns since `start`.
#[inline]
pub fn since(start: u64) -> u64 {
    now().saturating_sub(start)
}

#[inline]
fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_eight_is_chosen_whatever_period_the_calls_have() {
        for period in 1..=32 {
            for phase in 0..period {
                let count = (0..4_000).filter(|i| chosen(ALL_OF + phase + i * period)).count();
                assert!((300..=700).contains(&count), "period {period}, phase {phase}: {count}");
            }
        }
    }
}
