//! A clock that costs next to nothing and is the same on all cores: to compare what happened when,
//! and for spans of time whose length hardly matters.
//!
//! unsafe: the instruction.

/// Roughly: it is so at the usual rates of time-stamp counters.
pub const TEN_MICROSECONDS: u64 = 1 << 15;

/// Ticks since some beginning.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: reads a counter. (Where Linux forbids that, PR_SET_TSC, libc's own clocks fail
        // too.)
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use rustix::time::{ClockId, clock_gettime};
        let now = clock_gettime(ClockId::Monotonic);
        // (Thirds of a nanosecond.)
        3 * (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_on() {
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(ticks() - before > TEN_MICROSECONDS);
    }
}
