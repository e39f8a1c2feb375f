//! How long connections have been lately, in this process: where most end before the ring has paid,
//! later ones are Linux's for longer.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU32};

/// Calls before a connection is registered, while that pays.
const EARLY: u32 = 4;
/// And while it does not: some thirty requests by Linux, a millisecond, are not much to a
/// connection that is worth a ring.
const LATE: u32 = 64;
/// So many calls by the ring pay for registering both ends, which costs about as much as Linux
/// takes for two requests and their answers (35 us at both ends, asleep).
const PAYS: i32 = 4;
/// A connection says no more than this, however long it was.
const MOST: i32 = 8 * PAYS;
/// So much is remembered: some twenty connections that were too short, or fewer that were long.
const MEMORY: i32 = 32 * PAYS;
/// While registering does not pay, one connection in so many is registered early all the same: else
/// nobody would hear that they are longer now.
const PROBE: u32 = 16;

/// See above. (Of threads that meet here one may be overheard.)
#[derive(Debug)]
pub(crate) struct Lengths {
    /// Calls that connections made by the ring, less what registering them cost.
    gained: AtomicI32,
    begun: AtomicU32,
    /// A test says after how many.
    said: Option<u32>,
}

impl Lengths {
    pub fn new(said: Option<u32>) -> Self {
        Self { gained: AtomicI32::new(MEMORY), begun: AtomicU32::new(0), said }
    }

    /// One begins: after so many calls it is to be registered.
    pub fn begins(&self) -> u32 {
        if let Some(said) = self.said {
            return said;
        }
        if self.gained.load(Relaxed) > 0 {
            return EARLY;
        }
        let number = self.begun.load(Relaxed).wrapping_add(1);
        self.begun.store(number, Relaxed);
        if number.is_multiple_of(PROBE) { EARLY } else { LATE }
    }

    /// One has ended that was registered after so many calls, and made so many by the ring.
    pub fn ended(&self, registers_after: u32, by_ring: u64) {
        // (It would have made those by the ring, too.)
        let by_ring = by_ring + u64::from(registers_after.saturating_sub(EARLY));
        let gained = i32::try_from(by_ring).unwrap_or(MOST).min(MOST) - PAYS;
        let before = self.gained.load(Relaxed);
        self.gained.store((before + gained).clamp(-MEMORY, MEMORY), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections of so many calls each. How many of them were registered.
    fn registered(lengths: &Lengths, connections: u32, calls: u32) -> u32 {
        let is_registered = |_: &u32| {
            let after = lengths.begins();
            if let Some(by_ring) = calls.checked_sub(after) {
                lengths.ended(after, by_ring.into());
            }
            calls >= after
        };
        (0..connections).filter(is_registered).count() as u32
    }

    #[test]
    fn short_connections_are_hardly_shown_and_long_ones_always() {
        for calls in [4, 6, 7] {
            assert!(registered(&Lengths::new(None), 10_000, calls) < 10_000 / 12, "{calls}");
        }
        for calls in [9, 64, 1000] {
            assert_eq!(registered(&Lengths::new(None), 1000, calls), 1000, "{calls}");
        }
    }

    #[test]
    fn after_many_short_connections_long_ones_are_shown_soon() {
        for calls in [16, 32, 1000] {
            let lengths = Lengths::new(None);
            registered(&lengths, 10_000, 6);
            registered(&lengths, 40 * PROBE, calls);
            assert_eq!(lengths.begins(), EARLY, "{calls}");
        }
    }

    #[test]
    fn where_some_are_long_the_short_ones_are_shown_too() {
        let lengths = Lengths::new(None);
        let most = (0..1000).map(|i| registered(&lengths, 1, if i % 4 == 0 { 1000 } else { 6 }));
        assert!(most.sum::<u32>() > 950);
    }
}
