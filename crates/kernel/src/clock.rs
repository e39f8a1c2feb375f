//! The time that copies take, now and then: for the prices that are measured in the program itself.
//!
//! Only while something may be tracked: where the kernel's clock needs a system call, a sandbox may forbid it. So whoever asks for the
//! time has a [`Clock`] only then.

use crate::inject;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use uncopy_inject::Call;

/// The first so many calls are all timed.
const ALL_OF: u32 = 64;
/// Of later ones one in so many (a power of two).
const ONE_IN: u32 = 8;
/// A clock that takes longer to read than this, in ns, is not one that the processor keeps: nothing is timed.
const SLOW: u64 = 150;

/// The kernel's clock, and what reading it takes.
#[derive(Debug, Default)]
pub struct Clock {
    /// In ns, and 1 more; 0: not known yet.
    reading: AtomicU32,
}

impl Clock {
    /// Not read yet.
    pub const fn new() -> Self {
        Self { reading: AtomicU32::new(0) }
    }

    /// The time; `None`: it takes too long to read.
    #[inline]
    pub fn begin(&'static self) -> Option<Lap> {
        (self.reading() <= SLOW).then(|| Lap { clock: self, since: now(), before: 0 })
    }

    fn reading(&self) -> u64 {
        let known = self.reading.load(Relaxed);
        if known > 0 {
            return u64::from(known - 1);
        }
        let least = (0..8).map(|_| (now(), now())).map(|(a, b)| b.saturating_sub(a)).min();
        let least = least.unwrap_or(0).min(1 << 20);
        self.reading.store(least as u32 + 1, Relaxed);
        least
    }

    /// Processor time of this process, which takes a system call, and time, in ns; `None`: nothing is timed here.
    pub fn times(&self) -> Option<(u64, u64)> {
        if self.reading() > SLOW || inject::check(Call::Clock).is_err() {
            return None;
        }
        // (The variant that may fail: a sandbox that we were not told of may refuse it.)
        let used = DynamicClockId::Known(ClockId::ProcessCPUTime);
        let used = clock_gettime_dynamic(used).ok()?;
        Some((ns(used), now()))
    }
}

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

    /// The time, if the call that begins is to be timed, and can be.
    #[inline]
    pub fn begin(&self, clock: impl FnOnce() -> Option<&'static Clock>) -> Option<Lap> {
        let n = self.calls.load(Relaxed);
        self.calls.store(n.wrapping_add(1), Relaxed);
        if n < ALL_OF || chosen(n) { clock()?.begin() } else { None }
    }
}

/// Whether the `n`th call is among those that are timed. A program that makes the same few copies for each request must not have
/// always the same of them timed.
#[inline]
pub fn chosen(n: u32) -> bool {
    n.wrapping_mul(0x9e37_79b9) < u32::MAX / ONE_IN
}

/// A call, or our own part of one, which surrounds the program's: in two pieces.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    clock: &'static Clock,
    /// When the piece that runs began.
    since: u64,
    /// What those before it took, in ns.
    before: u64,
}

impl Lap {
    /// The first piece ends: the program's own part follows.
    #[inline]
    pub fn pause(&mut self) {
        self.before = self.taken();
    }

    /// The second one begins, unless nothing is timed any more.
    #[inline]
    #[must_use]
    pub fn resume(self, clock: Option<&'static Clock>) -> Option<Self> {
        clock.map(|_| Self { since: now(), ..self })
    }

    /// What all pieces took so far, in ns, without what reading the clock takes.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.before + now().saturating_sub(self.since + self.clock.reading())
    }
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

    #[test]
    fn a_lap_counts_its_pieces_and_not_what_lies_between_them() {
        static CLOCK: Clock = Clock::new();
        let Some(mut lap) = CLOCK.begin() else { return };
        lap.pause();
        let before = lap.before;
        std::thread::sleep(core::time::Duration::from_millis(20));
        let lap = lap.resume(Some(&CLOCK)).unwrap();
        assert!(lap.taken() < before + 20_000_000, "{} ns", lap.taken());
        assert!(lap.resume(None).is_none());
    }

    #[test]
    fn where_there_is_no_clock_nothing_is_timed() {
        let sampler = Sampler::new();
        assert!((0..100).all(|_| sampler.begin(|| None).is_none()));
    }
}
