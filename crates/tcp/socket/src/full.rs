//! How long a ring has been full, whoever asks, and in however many calls.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Since when calls that wait for room have found the ring full, and where the other side was in
/// it: bytes that it had taken, and milliseconds since some beginning, come round.
#[derive(Debug)]
pub(crate) struct Full(AtomicU64);

const NEVER: u64 = u64::MAX;

impl Default for Full {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER))
    }
}

impl Full {
    /// It is full now, and the other side is there: for how long that is so.
    pub fn found(&self, head: u32) -> Duration {
        let since = self.0.load(Relaxed);
        // (Another thread may have said so, and not later than this.)
        let now = clock_gettime(ClockId::Monotonic);
        let now =
            (now.tv_sec as u32).wrapping_mul(1000).wrapping_add(now.tv_nsec as u32 / 1_000_000);
        if since != NEVER && (since >> 32) as u32 == head {
            return Duration::from_millis(now.wrapping_sub(since as u32).into());
        }
        self.0.store(u64::from(head) << 32 | u64::from(now), Relaxed);
        Duration::ZERO
    }

    /// It is empty, and the other side is where it was.
    pub fn is_over(&self) {
        self.0.store(NEVER, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_full_anew_once_something_was_taken_or_it_was_empty() {
        let full = Full::default();
        let passes = || std::thread::sleep(Duration::from_millis(3));
        let is_anew = |head| full.found(head).is_zero();
        assert!(is_anew(7));
        passes();
        assert!(full.found(7) >= Duration::from_millis(3));
        assert!(is_anew(8));
        passes();
        assert!(!is_anew(8));
        full.is_over();
        assert!(is_anew(8));
    }
}
