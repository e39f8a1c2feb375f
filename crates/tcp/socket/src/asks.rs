//! When Linux is asked whether the peer still lives. A peer that is killed leaves its ring as it
//! was; Linux alone knows. Asking takes a system call (200 ns), a call by the ring some 30 ns.

use uncopy_kernel::clock;

/// Calls of a busy connection between two questions.
const CALLS: u32 = 64;
/// Milliseconds after which a call asks in any case: a connection of few calls hears of a death at
/// its next one.
const AFTER: u32 = 10;

/// See above.
#[derive(Debug, Default)]
pub struct Asks {
    calls: u32,
    /// Milliseconds, as [`clock::coarse_ms`] counts them.
    asked: u32,
}

impl Asks {
    /// A call is made: whether Linux is to be asked.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        let now = clock::coarse_ms();
        self.calls += 1;
        let due = self.calls >= CALLS || now.wrapping_sub(self.asked) >= AFTER;
        if due {
            *self = Self { calls: 0, asked: now };
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_connection_asks_once_in_some_calls() {
        let mut asks = Asks { calls: 0, asked: clock::coarse_ms() };
        let asked = (0..10 * CALLS).filter(|_| asks.is_due()).count();
        assert!((10..=20).contains(&asked), "{asked} of {}", 10 * CALLS);
    }

    #[test]
    fn the_first_call_after_a_while_asks() {
        let mut asks = Asks { calls: 0, asked: clock::coarse_ms().wrapping_sub(AFTER) };
        assert!(asks.is_due());
    }
}
