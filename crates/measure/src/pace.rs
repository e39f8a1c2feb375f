//! A measurement that ends by itself: time that is left is shared out among the rows that are left,
//! and what a row costs beside its timed windows is measured as it goes.

use std::time::{Duration, Instant};

/// Rows are measured so often, with fresh servers, where there is time: one time says nothing of
/// how far it is from the next.
pub const TIMES: usize = 3;
/// A shorter window of one server says nothing.
const SHORTEST: Duration = Duration::from_millis(150);

/// The rows of one table, and the time for them.
pub struct Pace {
    end: Instant,
    rows_left: usize,
    /// The time that the last row took beside its timed windows: starting, warming, verifying.
    beside: Duration,
    row_ends: Instant,
}

impl Pace {
    /// `allowed` from `now` on for so many rows, each of which takes about so much beside its
    /// windows.
    pub fn new(now: Instant, allowed: Duration, rows: usize, beside: Duration) -> Self {
        Self { end: now + allowed, rows_left: rows, beside, row_ends: now }
    }

    /// The next row begins: the timed window for each of `sides`, at most `longest`; nothing if no
    /// time is left for the row.
    pub fn next_row(&mut self, now: Instant, sides: usize, longest: Duration) -> Option<Duration> {
        let share = self.end.saturating_duration_since(now) / self.rows_left.max(1) as u32;
        self.row_ends = now + share;
        self.rows_left = self.rows_left.saturating_sub(1);
        if now >= self.end {
            return None;
        }
        let window = (share / TIMES as u32).saturating_sub(self.beside) / sides.max(1) as u32;
        Some(window.clamp(SHORTEST.min(longest), longest))
    }

    /// A repeat that began at `began` is over, of which `timed` was measured: whether the row has
    /// time for another one.
    pub fn again(&mut self, now: Instant, began: Instant, timed: Duration) -> bool {
        let took = now.saturating_duration_since(began);
        self.beside = took.saturating_sub(timed);
        now + took <= self.row_ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Rows and repeats that fit into `allowed` where a repeat of a row takes `beside` and its
    /// windows.
    fn run(allowed: Duration, rows: usize, beside: Duration) -> (usize, usize, Duration) {
        let begin = Instant::now();
        let mut now = begin;
        let mut pace = Pace::new(now, allowed, rows, SECOND);
        let (mut done, mut repeats) = (0, 0);
        for _ in 0..rows {
            let Some(window) = pace.next_row(now, 5, SECOND) else { continue };
            done += 1;
            for _ in 0..5 {
                let began = now;
                now += beside + window * 5;
                repeats += 1;
                if !pace.again(now, began, window * 5) {
                    break;
                }
            }
        }
        (done, repeats, now - begin)
    }

    #[test]
    fn with_much_time_every_row_has_all_its_repeats() {
        assert_eq!(run(SECOND * 10_000, 10, SECOND * 3).0, 10);
        assert_eq!(run(SECOND * 10_000, 10, SECOND * 3).1, 50);
    }

    #[test]
    fn windows_become_shorter_before_repeats_are_dropped() {
        let (rows, repeats, took) = run(SECOND * 300, 10, SECOND * 6);
        // (The first row does not know yet what it takes beside its windows.)
        assert!(rows == 10 && (29..=30).contains(&repeats), "{rows} {repeats}");
        assert!(took <= SECOND * 310, "{took:?}");
    }

    #[test]
    fn with_little_time_every_row_is_measured_and_the_end_is_kept() {
        let (rows, repeats, took) = run(SECOND * 60, 10, SECOND * 4);
        // (Shortest windows leave some time over: the last rows have it.)
        assert!(rows == 10 && (10..=12).contains(&repeats), "{rows} {repeats}");
        assert!(took <= SECOND * 66, "{took:?}");
    }

    #[test]
    fn with_far_too_little_the_last_rows_are_left_out() {
        let (rows, _, took) = run(SECOND * 20, 10, SECOND * 9);
        assert!((2..=3).contains(&rows), "{rows}");
        assert!(took <= SECOND * 30, "{took:?}");
    }
}
