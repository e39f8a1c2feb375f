//! Time, as the caller's clock has it: the core reads none itself.

use core::ops::Add;

/// A span of time in nanoseconds.
pub type Nanos = u64;

/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// A moment: nanoseconds of a clock that never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Time(pub Nanos);

impl Time {
    /// Later than every moment: a deadline that is not set.
    pub const NEVER: Time = Time(Nanos::MAX);

    /// The time from `earlier` to this, or nothing.
    #[inline]
    pub fn since(self, earlier: Time) -> Nanos {
        self.0.saturating_sub(earlier.0)
    }

    /// Microseconds, cut to 32 bits: what round trips are measured in. It wraps after 71 minutes.
    #[inline]
    pub fn micros(self) -> u32 {
        (self.0 / MICROSECOND) as u32
    }

    /// Milliseconds, cut to 32 bits: the tick of our timestamps.
    #[inline]
    pub fn millis(self) -> u32 {
        (self.0 / MILLISECOND) as u32
    }
}

impl Add<Nanos> for Time {
    type Output = Time;
    #[inline]
    fn add(self, span: Nanos) -> Time {
        Time(self.0.saturating_add(span))
    }
}

/// How far the clocks of two threads, each taken once for a batch, may be apart: a second in
/// microseconds, a quarter of an hour in milliseconds.
const APART: u32 = 1 << 20;

/// From `then` to `now`, which both wrap; nothing where `then` lies a little ahead, because another
/// thread took its time later.
#[inline]
pub(crate) fn elapsed(now: u32, then: u32) -> u32 {
    let span = now.wrapping_sub(then);
    if span > u32::MAX - APART { 0 } else { span }
}

/// The moment of a batch of segments, in the units that the fast path wants: made once, used for
/// all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The moment.
    pub time: Time,
    /// The present value of our timestamp option: milliseconds, and an offset that hides how long
    /// this machine runs. Finer ticks would be of use for round trips only, which are measured by
    /// the clock instead; and a peer throws away what comes after half a turn of idleness: 35
    /// minutes with ticks of a microsecond, 24 days with these (RFC 7323, 5.5).
    pub stamp: u32,
}

impl Now {
    /// `time`, and `offset` added to its milliseconds.
    #[inline]
    pub fn new(time: Time, offset: u32) -> Now {
        Now { time, stamp: time.millis().wrapping_add(offset) }
    }
}
