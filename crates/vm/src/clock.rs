//! The time that copies take, now and then: for the prices that are measured in the program itself
//! ([`uncopy_decide::CopyPrices`]).
//!
//! Only while the space runs: where the kernel's clock needs a system call, a sandbox may forbid it.

use crate::{inject, space};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use uncopy_decide::{AUDIT, Times, UNTIL_THEN};
use uncopy_inject::Call;

/// The first so many calls are all timed.
const ALL_OF: u32 = 64;
/// Of later ones one in so many (a power of two).
const ONE_IN: u32 = 8;
/// A clock that takes longer to read than this, in ns, is not one that the processor keeps: nothing is timed.
const SLOW: u64 = 150;

/// What reading the clock takes, in ns, and 1 more; 0: not known yet.
static READING: AtomicU32 = AtomicU32::new(0);

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

    /// The time, if the call that begins is to be timed; for [`since`].
    #[inline]
    pub fn begin(&self) -> Option<u64> {
        let n = self.calls.load(Relaxed);
        self.calls.store(n.wrapping_add(1), Relaxed);
        if n < ALL_OF || chosen(n) { begin() } else { None }
    }
}

/// Our own part of a call, which surrounds the program's: in two pieces.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    /// When the piece that runs began.
    since: u64,
    /// What those before it took, in ns.
    before: u64,
}

impl Lap {
    /// Begins one, if the call is to be timed.
    #[inline]
    pub fn begin(sampler: &Sampler) -> Option<Self> {
        sampler.begin().map(|since| Self { since, before: 0 })
    }

    /// The first piece ends: the program's own part follows.
    #[inline]
    pub fn pause(&mut self) {
        self.before += since(self.since);
    }

    /// The second one begins; `None`: nothing is timed any more.
    #[inline]
    #[must_use]
    pub fn resume(self) -> Option<Self> {
        space::running().then(|| Self { since: now(), ..self })
    }

    /// What all pieces took so far, in ns.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.before + since(self.since)
    }
}

/// The time, if the copy of a site that rests for `left` copies more (or until sites elide again) is to be timed; for [`since`].
#[inline]
pub fn begin_resting(left: u32) -> Option<u64> {
    static RESTING: Sampler = Sampler::new();
    if left == UNTIL_THEN {
        return RESTING.begin();
    }
    if chosen(left) || left <= AUDIT && left.is_multiple_of(2) { begin() } else { None }
}

fn begin() -> Option<u64> {
    (space::running() && reading() <= SLOW).then(now)
}

fn reading() -> u64 {
    let known = READING.load(Relaxed);
    if known > 0 {
        return u64::from(known - 1);
    }
    let least = (0..8).map(|_| (now(), now())).map(|(a, b)| b.saturating_sub(a)).min();
    let least = least.unwrap_or(0).min(1 << 20);
    READING.store(least as u32 + 1, Relaxed);
    least
}

/// A program that makes the same few copies for each request must not have always the same of them timed.
#[inline]
fn chosen(n: u32) -> bool {
    n.wrapping_mul(0x9e37_79b9) < u32::MAX / ONE_IN
}

/// ns since `start`, without what reading the clock takes.
#[inline]
pub fn since(start: u64) -> u64 {
    now().saturating_sub(start + reading())
}

/// Processor time of this process, which takes a system call, and time; `None`: nothing is timed here.
pub fn times() -> Option<Times> {
    if !space::running() || reading() > SLOW || inject::check(Call::Clock).is_err() {
        return None;
    }
    // (The variant that may fail: a sandbox that we were not told of may refuse it.)
    let used = DynamicClockId::Known(ClockId::ProcessCPUTime);
    let used = clock_gettime_dynamic(used).ok()?;
    Some(Times { cpu: ns(used), wall: now() })
}

#[inline]
fn now() -> u64 {
    ns(clock_gettime(ClockId::Monotonic))
}

#[inline]
fn ns(t: Timespec) -> u64 {
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_eight_is_chosen_whatever_period_the_calls_have() {
        for period in 1..=32 {
            for phase in 0..period {
                let count = (0..4_000).filter(|i| chosen(phase + i * period)).count();
                assert!((300..=700).contains(&count), "period {period}, phase {phase}: {count}");
            }
        }
    }
}
