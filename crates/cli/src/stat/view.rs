//! A program, and how fast it does what it does.

use std::time::Instant;

use uncopy_counters::{Snapshot, is_gauge};

use super::process;
use super::program::Program;

/// A program, and how fast it does what it does.
#[derive(Debug)]
pub struct View {
    /// At the end of the interval.
    pub program: Program,
    /// The length of the interval, in seconds; that of the program's life if nobody watched before.
    pub seconds: f64,
    /// At the beginning of the interval.
    pub before: Snapshot,
}

impl View {
    /// Beside what was seen earlier.
    pub fn new(program: Program, earlier: Option<(Instant, Snapshot)>) -> Self {
        let age = process::age(program.start_time);
        let (seconds, before) =
            earlier.map_or((age, Snapshot::default()), |(t, s)| (t.elapsed().as_secs_f64(), s));
        Self { program, seconds: seconds.max(0.001), before }
    }

    /// Name, value, and how much a second, if it is not a gauge.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64, Option<f64>)> {
        self.program.counters.iter().zip(self.before.iter()).map(|((name, now), (_, before))| {
            let rate = now.wrapping_sub(before) as f64 / self.seconds;
            (name, now, (!is_gauge(name)).then_some(rate))
        })
    }

    /// How much a second, of the counter of this name.
    pub fn rate(&self, name: &str) -> f64 {
        self.rows().find(|r| r.0 == name).and_then(|r| r.2).unwrap_or(0.0)
    }
}
