//! Which differences count. The plain sides decide: what they spread over is noise.

use uncopy_measure::medians::{median, quotient};
use uncopy_measure::side::Side;

const SIDES: usize = Side::ALL.len();

/// The rule, for people.
pub const RULE: &str = "Ratios are plain's need over the side's: above 1 is a gain. A difference counts if all turns of one side lie below (or above) all turns of the other, or \
if the medians differ by more than twice what the plain turns spread over: their middle half, or what the two plain \
sides differ by if that is more.";

/// All sides, by processor time and by time.
#[derive(Clone, Debug)]
pub struct Standing {
    cpu: [Vec<f64>; SIDES],
    time: [Vec<f64>; SIDES],
    /// What the plain turns say of processor time, and of time.
    plain: [Plain; 2],
}

impl Standing {
    /// From the turns of each side, in the order of [`Side::ALL`].
    pub fn new(cpu: [Vec<f64>; SIDES], time: [Vec<f64>; SIDES]) -> Self {
        let plain = |turns: &[Vec<f64>; SIDES]| {
            Plain::new(&turns[Side::Plain as usize], &turns[Side::Again as usize])
        };
        Self { plain: [plain(&cpu), plain(&time)], cpu, time }
    }

    /// What the plain turns say of processor time.
    pub fn plain(&self) -> &Plain {
        &self.plain[0]
    }

    /// What the plain turns spread over, as a part of their median.
    pub fn spread(&self) -> f64 {
        self.plain[0].spread
    }

    /// How two sides compare by processor time.
    pub fn cpu(&self, side: Side, other: Side) -> Found {
        self.found(&self.cpu, &self.plain[0], side, other)
    }

    /// How they compare by time.
    pub fn time(&self, side: Side, other: Side) -> Found {
        self.found(&self.time, &self.plain[1], side, other)
    }

    fn found(&self, all: &[Vec<f64>; SIDES], plain: &Plain, side: Side, other: Side) -> Found {
        // Both plain sides are what anything is compared with.
        let turns = |side| match side {
            Side::Plain | Side::Again => &plain.turns,
            other => &all[other as usize],
        };
        plain.compare(turns(side), turns(other))
    }

    /// Whether a side needs less of one of the two and no more of the other.
    pub fn better(&self, side: Side, than: Side) -> bool {
        let both = [self.cpu(side, than), self.time(side, than)];
        both.contains(&Found::Less) && !both.contains(&Found::More)
    }

    /// Whether a side gains in one of the two and loses in the other, against plain.
    pub fn trades(&self, side: Side) -> bool {
        let both = [self.cpu(side, Side::Plain), self.time(side, Side::Plain)];
        both.contains(&Found::Less) && both.contains(&Found::More)
    }

    /// How many times less processor time a side needs than plain: above 1 is a gain.
    pub fn cpu_gain(&self, side: Side) -> f64 {
        quotient(self.plain[0].median, median(self.cpu[side as usize].iter().copied()))
    }

    /// How many times shorter it takes: above 1 is a gain.
    pub fn time_gain(&self, side: Side) -> f64 {
        quotient(self.plain[1].median, median(self.time[side as usize].iter().copied()))
    }

    /// Both in words.
    pub fn gains(&self, side: Side) -> String {
        format!(
            "{} in processor time, {} in time",
            gain(self.cpu_gain(side), self.cpu(side, Side::Plain)),
            gain(self.time_gain(side), self.time(side, Side::Plain))
        )
    }
}

/// A ratio with the word for it.
pub fn gain(ratio: f64, found: Found) -> String {
    match found {
        Found::Less => format!("{ratio:.2} (gain)"),
        Found::More => format!("{ratio:.2} (loss)"),
        Found::Same => format!("{ratio:.2} (noise)"),
    }
}

/// How a side compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It needs less.
    Less,
    /// It needs more.
    More,
    /// Nothing that counts.
    Same,
}

/// What the plain turns say.
#[derive(Clone, Debug)]
pub struct Plain {
    /// All of them, of both sides.
    pub turns: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// What the medians of the two sides differ by, as a part of that.
    pub differ: f64,
    /// What they spread over, as a part of that.
    pub spread: f64,
}

impl Plain {
    /// From the turns of the two sides.
    pub fn new(first: &[f64], second: &[f64]) -> Self {
        let turns = [first, second].concat();
        let all = median(turns.iter().copied());
        let medians = [first, second].map(|side| median(side.iter().copied()));
        let differ = (medians[0] - medians[1]).abs();
        let spread = differ.max(middle_half(&turns));
        Self { median: all, differ: part(differ, all), spread: part(spread, all), turns }
    }

    /// How `side` compares with `other`, by the rule.
    pub fn compare(&self, side: &[f64], other: &[f64]) -> Found {
        let difference = median(side.iter().copied()) - median(other.iter().copied());
        if apart(side, other) || difference < -2.0 * self.spread * self.median {
            Found::Less
        } else if apart(other, side) || difference > 2.0 * self.spread * self.median {
            Found::More
        } else {
            Found::Same
        }
    }
}

/// (Without CPU time to be seen nothing is a part of it.)
fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

/// Whether all of `low` lie below all of `high`.
fn apart(low: &[f64], high: &[f64]) -> bool {
    low.iter().copied().fold(f64::MIN, f64::max) < high.iter().copied().fold(f64::MAX, f64::min)
}

/// From the first quarter to the third.
fn middle_half(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = |share: f64| {
        let place = share * last as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    };
    at(0.75) - at(0.25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_forgets_what_lies_outside() {
        assert_eq!(middle_half(&[1.0, 2.0, 3.0, 4.0, 100.0]), 2.0);
        assert_eq!(middle_half(&[1.0, 2.0]), 0.5);
        assert_eq!(middle_half(&[]), 0.0);
    }

    #[test]
    fn turns_that_lie_apart_count_however_little_they_differ() {
        let plain = Plain::new(&[1.00, 1.01], &[1.00, 1.01]);
        assert_eq!(plain.compare(&[0.98, 0.99], &plain.turns), Found::Less);
        assert_eq!(plain.compare(&[1.02, 1.03], &plain.turns), Found::More);
        assert_eq!(plain.compare(&[0.99, 1.005], &plain.turns), Found::Same);
    }

    #[test]
    fn one_bad_turn_does_not_hide_a_large_difference() {
        let plain = Plain::new(&[1.00, 1.01, 1.02], &[1.01, 1.02, 1.03]);
        assert_eq!(plain.compare(&[0.5, 0.5, 1.2], &plain.turns), Found::Less);
        let noisy = Plain::new(&[1.0, 1.4, 1.2], &[0.8, 0.7, 1.0]);
        assert_eq!(noisy.compare(&[0.5, 0.5, 1.2], &noisy.turns), Found::Same);
    }
}
