//! The time of a report, shared out among its modes: a mode that takes less leaves more to those
//! behind it, one that takes more leaves them less.

use std::time::{Duration, Instant};

use super::modes::Mode;

/// A row that has begun is measured to its end, so the plan ends a little before the time is over.
const PLANNED: f64 = 0.98;

/// The time that is left.
pub struct Budget {
    whole: Duration,
    end: Instant,
    left: Vec<Mode>,
}

impl Budget {
    /// `whole` from `now` on, for `modes` one after the other.
    pub fn new(now: Instant, whole: Duration, modes: &[Mode]) -> Self {
        Self { whole, end: now + whole.mul_f64(PLANNED), left: modes.to_vec() }
    }

    /// All of it.
    pub fn whole(&self) -> Duration {
        self.whole
    }

    /// The time that each mode is to get, in words.
    pub fn plan(&self) -> String {
        let planned = self.whole.mul_f64(PLANNED);
        let shares = self
            .left
            .iter()
            .map(|mode| format!("{} {}", mode.name(), text(planned.mul_f64(self.share(*mode)))));
        shares.collect::<Vec<_>>().join(", ")
    }

    fn share(&self, mode: Mode) -> f64 {
        let all: u32 = self.left.iter().map(|mode| mode.weight()).sum();
        f64::from(mode.weight()) / f64::from(all.max(1))
    }

    /// `mode`, which is next, begins: its time.
    pub fn next(&mut self, now: Instant, mode: Mode) -> Duration {
        let left = self.end.saturating_duration_since(now);
        let share = self.share(mode);
        self.left.retain(|other| *other != mode);
        left.mul_f64(share.min(1.0))
    }
}

/// `2 min 5 s`.
pub fn text(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_shares_of_all_modes_are_the_planned_time() {
        let mut now = Instant::now();
        let begin = now;
        let mut budget = Budget::new(now, MINUTE * 20, Mode::ALL);
        for mode in Mode::ALL {
            now += budget.next(now, *mode);
        }
        let took = now - begin;
        assert!(took <= MINUTE * 20 && took > MINUTE * 19, "{took:?}");
    }

    #[test]
    fn a_mode_that_takes_too_long_leaves_less_to_the_others() {
        let now = Instant::now();
        let mut punctual = Budget::new(now, MINUTE * 20, Mode::ALL);
        let mut late = Budget::new(now, MINUTE * 20, Mode::ALL);
        let first = punctual.next(now, Mode::Servers);
        late.next(now, Mode::Servers);
        let (second, less) = (now + first, now + first * 3 / 2);
        assert!(late.next(less, Mode::Echo) < punctual.next(second, Mode::Echo));
        assert_eq!(late.next(now + MINUTE * 30, Mode::Copies), Duration::ZERO);
    }
}
