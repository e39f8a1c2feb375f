//! Which differences count. Sides are compared within the rounds: what the sides of a round have in
//! common, a machine that is slower for a while, is nobody's.
//!
//! The rest is noise, and it is not the same for all: a plain process may take a quarter more than
//! the next one for as long as it lives (Django's: 305 or 535 page faults for a request, by what
//! memory it happens to have), where no process under uncopy does. So each pair of sides is judged
//! by what it itself differs by from round to round; and since that is known badly from four
//! rounds, by what sides like these do in general, as if there had been some rounds more: those
//! with glibc's allocator like each other, those with uncopy's like each other.

use uncopy_measure::medians::{median, quotient};
use uncopy_measure::side::Side;

use super::chance;

const SIDES: usize = Side::ALL.len();
/// Rounds that the spread of all sides is worth beside those that a pair has itself.
const PRIOR: f64 = 3.0;
/// Chance shows a difference that counts no more often than this, in one pair at one look. (Four
/// sides are looked at, by two measures, up to nine times: in all it is 2 to 3%.)
const SURE: f64 = 0.0008;
/// The same for which of two sides that gain both is called the better one: neither answer is a
/// false gain.
const CHOICE: f64 = 0.005;
/// And no more often than this in the first rounds: where processes are of two kinds, four of one
/// side may all be of the dear one (in a sixteenth of the trials), and look as if nothing varied.
const EARLY: f64 = 0.001;
/// Rounds after which they are no first ones.
const SETTLED: usize = 6;
/// A difference that chance shows no more often may become sure with more rounds.
const PERHAPS: f64 = 0.07;
/// Of two sides that gain both one may be better by the part `WORTH` unless chance hides that no
/// more often than this.
const MAYBE: f64 = 0.1;
/// The worth of further rounds.
const WORTH: f64 = 0.05;
/// A side that is ahead by what chance shows no more often is named first.
const LIKELY: f64 = 0.2;
/// A range leaves out so much at each end.
const OUTSIDE: f64 = 0.025;
/// A difference below this part is none: nobody changes how a program is started for it.
const LEAST: f64 = 0.01;

/// The rule, for people.
pub const RULE: &str = "Ratios are plain's need over the side's, round by round (their geometric \
mean; plain is the mean of its two sides): above 1 is a gain. A difference of 1% and more is \
called a gain or a loss where noise like that of these rounds would show one in 3 of 100 trials at \
most, whenever they end (a paired t test, p < 0.0008 at each look). Of sides that gain the \
simplest is recommended, or one that is better by the same test with p < 0.005 (0.001 in the first \
5 rounds). Where that one may be better and the test does not tell, both are named, with what \
noise leaves of their gains in 95 of 100 trials.";

/// All sides, by processor time and by time.
#[derive(Clone, Debug)]
pub struct Standing {
    measures: [Measure; 2],
}

impl Standing {
    /// From the turns of each side, in the order of [`Side::ALL`]; those of one round have the same
    /// place. (The last rounds may be without some sides.)
    pub fn new(cpu: [Vec<f64>; SIDES], time: [Vec<f64>; SIDES]) -> Self {
        Self { measures: [Measure::new(cpu), Measure::new(time)] }
    }

    /// The plain turns' processor time.
    pub fn plain(&self) -> &Plain {
        &self.measures[0].plain
    }

    /// How two sides compare by processor time.
    pub fn cpu(&self, side: Side, other: Side) -> Pair {
        self.measures[0].pair(side, other)
    }

    /// How they compare by time.
    pub fn time(&self, side: Side, other: Side) -> Pair {
        self.measures[1].pair(side, other)
    }

    fn both(&self, side: Side, other: Side) -> [Pair; 2] {
        [self.cpu(side, other), self.time(side, other)]
    }

    /// Whether a side gains: needs less than plain of one of the two, and no more of the other.
    pub fn gains(&self, side: Side) -> bool {
        let both = self.both(side, Side::Plain).map(|pair| pair.found());
        both.contains(&Difference::Less) && !both.contains(&Difference::More)
    }

    /// Whether a side is to be taken rather than a simpler one that gains, too.
    pub fn is_rather_taken(&self, side: Side, than: Side) -> bool {
        let both = self.both(side, than);
        both.iter().any(Pair::is_better) && !both.iter().any(Pair::is_worse)
    }

    /// Whether a side needs less than another on the average, and is not worse.
    pub fn seems_better(&self, side: Side, than: Side) -> bool {
        let both = self.both(side, than);
        both[0].ahead > LEAST && !both.iter().any(Pair::is_worse)
    }

    /// Whether that is likely.
    pub fn is_likely_better(&self, side: Side, than: Side) -> bool {
        self.seems_better(side, than) && self.cpu(side, than).is_ahead(LIKELY)
    }

    /// Whether a side may be better than another, by so much that more rounds are worth their time,
    /// and these do not tell.
    pub fn may_be_taken(&self, side: Side, than: Side) -> bool {
        let both = self.both(side, than);
        let told = both.iter().any(Pair::is_worse) || self.is_rather_taken(side, than);
        !told && both[0].may_be_ahead_by(WORTH)
    }

    /// Whether more rounds may tell a side from plain that they do not tell yet.
    pub fn may_differ(&self, side: Side) -> bool {
        self.both(side, Side::Plain).iter().any(|pair| {
            let close = pair.is_ahead(PERHAPS) || pair.is_behind(PERHAPS);
            close && pair.found() == Difference::Same
        })
    }

    /// Whether a side gains in one of the two and loses in the other, against plain.
    pub fn trades(&self, side: Side) -> bool {
        let both = self.both(side, Side::Plain).map(|pair| pair.found());
        both.contains(&Difference::Less) && both.contains(&Difference::More)
    }

    /// How many times less processor time a side needs than plain: above 1 is a gain.
    pub fn cpu_gain(&self, side: Side) -> f64 {
        self.cpu(side, Side::Plain).ratio()
    }

    /// How many times shorter it takes: above 1 is a gain.
    pub fn time_gain(&self, side: Side) -> f64 {
        self.time(side, Side::Plain).ratio()
    }

    /// Both in words.
    pub fn gains_in_words(&self, side: Side) -> String {
        let [cpu, time] = self.both(side, Side::Plain).map(|pair| pair.words());
        format!("{cpu} in processor time, {time} in time")
    }

    /// The same, with what noise leaves of them.
    pub fn ranges_in_words(&self, side: Side) -> String {
        let [cpu, time] = self.both(side, Side::Plain).map(|pair| pair.words_and_range());
        format!("{cpu} in processor time, {time} in time")
    }
}

/// One of processor time and time.
#[derive(Clone, Debug)]
struct Measure {
    /// Logarithms of what each side needs, round by round; of both plain sides their mean.
    logs: [Vec<f64>; SIDES],
    /// Variance of one turn once its round and its side are known, of the sides with glibc's
    /// allocator, in whole rounds.
    glibcs: f64,
    /// And of those with uncopy's.
    ours: f64,
    plain: Plain,
}

impl Measure {
    fn new(turns: [Vec<f64>; SIDES]) -> Self {
        let plain = Plain::new(&turns[Side::Plain as usize], &turns[Side::Again as usize]);
        // (A clock may have seen nothing.)
        let log = |side: &Vec<f64>| side.iter().map(|n| n.max(1e-9).ln()).collect();
        let mut logs: [Vec<f64>; SIDES] = std::array::from_fn(|side| log(&turns[side]));
        let rounds = logs.iter().map(Vec::len).min().unwrap_or(0);
        let whole: [&[f64]; SIDES] = std::array::from_fn(|side| &logs[side][..rounds]);
        let (glibcs, ours) = whole.split_at(Side::Placed as usize);
        let (glibcs, ours) = (residual(glibcs), residual(ours));
        let means = logs[0].iter().zip(&logs[1]).map(|(a, b)| f64::midpoint(*a, *b)).collect();
        logs[Side::Plain as usize] = means;
        logs[Side::Again as usize] = logs[Side::Plain as usize].clone();
        Self { logs, glibcs, ours, plain }
    }

    /// From the rounds that both were in.
    fn pair(&self, side: Side, other: Side) -> Pair {
        let both = self.logs[side as usize].iter().zip(&self.logs[other as usize]);
        let ahead: Vec<f64> = both.map(|(side, other)| other - side).collect();
        let general = |side| match side {
            // (A mean of two gets half of it.)
            Side::Plain | Side::Again => 0.5 * self.glibcs,
            Side::Kept => self.glibcs,
            Side::Placed | Side::NoElision | Side::Uncopy => self.ours,
        };
        Pair::new(&ahead, general(side) + general(other))
    }
}

/// Variance of what is left of each turn once the means of its round and of its side are taken
/// away.
fn residual(logs: &[&[f64]]) -> f64 {
    let (sides, rounds) = (logs.len(), logs[0].len());
    if rounds < 2 {
        return 0.0;
    }
    let mean = |of: &mut dyn Iterator<Item = f64>, n: usize| of.sum::<f64>() / n as f64;
    let of_round: Vec<f64> =
        (0..rounds).map(|r| mean(&mut logs.iter().map(|side| side[r]), sides)).collect();
    let whole = mean(&mut of_round.iter().copied(), rounds);
    let squares = logs.iter().map(|side| {
        let of_side = mean(&mut side.iter().copied(), rounds);
        let left = side.iter().zip(&of_round).map(|(n, round)| n - round - of_side + whole);
        left.map(|n| n * n).sum::<f64>()
    });
    squares.sum::<f64>() / ((rounds - 1) * (sides - 1)) as f64
}

/// How a side compares with another by one of processor time and time.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// By how much it is ahead on the average: the logarithm of the other's need over its own.
    ahead: f64,
    /// How far chance takes that, and from how many rounds that is known.
    error: f64,
    freedom: u32,
    rounds: usize,
    /// In how many rounds it needs less.
    won: usize,
}

impl Pair {
    /// From what it was ahead by in each round. `general`: the variance of that, if it is as that
    /// of other sides.
    fn new(ahead: &[f64], general: f64) -> Self {
        let rounds = ahead.len();
        let mean = ahead.iter().sum::<f64>() / rounds.max(1) as f64;
        let won = ahead.iter().filter(|by| **by > 0.0).count();
        let own: f64 = ahead.iter().map(|by| (by - mean) * (by - mean)).sum();
        let freedom = rounds.saturating_sub(1) as f64 + PRIOR;
        let variance = (own + PRIOR * general) / freedom;
        let error = (variance / rounds.max(1) as f64).sqrt();
        Self { ahead: mean, error, freedom: freedom as u32, rounds, won }
    }

    /// The other's need over its own: above 1 is a gain.
    pub fn ratio(&self) -> f64 {
        if self.rounds == 0 { 0.0 } else { self.ahead.exp() }
    }

    /// How many rounds there were, and in how many of them it needed less.
    pub fn won(&self) -> (usize, usize) {
        (self.rounds, self.won)
    }

    /// How often chance alone would have it that far ahead.
    fn by_chance(&self, ahead: f64) -> f64 {
        if self.rounds < 2 {
            0.5
        } else {
            chance::beyond(ahead / self.error.max(1e-12), self.freedom)
        }
    }

    fn is_ahead(&self, chance: f64) -> bool {
        self.ahead > LEAST && self.by_chance(self.ahead) < chance
    }

    fn is_behind(&self, chance: f64) -> bool {
        self.ahead < -LEAST && self.by_chance(-self.ahead) < chance
    }

    /// How often chance may show which of two sides that gain is better.
    fn choice(&self) -> f64 {
        if self.rounds < SETTLED { EARLY } else { CHOICE }
    }

    fn is_better(&self) -> bool {
        self.is_ahead(self.choice())
    }

    fn is_worse(&self) -> bool {
        self.is_behind(self.choice())
    }

    /// Whether it may be ahead by that part, for all that is known.
    fn may_be_ahead_by(&self, part: f64) -> bool {
        self.ahead + chance::limit(MAYBE, self.freedom) * self.error > part
    }

    /// The result.
    pub fn found(&self) -> Difference {
        if self.is_ahead(SURE) {
            Difference::Less
        } else if self.is_behind(SURE) {
            Difference::More
        } else {
            Difference::Same
        }
    }

    /// The smallest difference that would count with such noise, as a part; `None`: none would.
    pub fn seen_from(&self) -> Option<f64> {
        (self.rounds >= 2)
            .then(|| (chance::limit(SURE, self.freedom) * self.error).max(LEAST).exp_m1())
    }

    /// The range that noise leaves of the ratio in 95 of 100 trials, the least first; `None`: one
    /// round tells nothing.
    pub fn range(&self) -> Option<[f64; 2]> {
        (self.rounds >= 2).then(|| {
            let off = chance::limit(OUTSIDE, self.freedom) * self.error;
            [self.ahead - off, self.ahead + off].map(f64::exp)
        })
    }

    fn word(&self) -> &'static str {
        match self.found() {
            Difference::Less => "gain",
            Difference::More => "loss",
            Difference::Same => "noise",
        }
    }

    /// The ratio with the word for it.
    pub fn words(&self) -> String {
        format!("{:.2} ({})", self.ratio(), self.word())
    }

    /// The same, and its range.
    fn words_and_range(&self) -> String {
        match self.range() {
            Some([least, most]) => {
                format!("{:.2} ({}, {least:.2} to {most:.2})", self.ratio(), self.word())
            }
            None => self.words(),
        }
    }
}

/// How a side compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It needs less.
    Less,
    /// It needs more.
    More,
    /// Nothing that counts.
    Same,
}

/// The figures of the plain turns.
#[derive(Clone, Debug)]
pub struct Plain {
    /// Their median.
    pub median: f64,
    /// The difference between the medians of the two sides, as a part of that.
    pub differ: f64,
    /// The spread of the turns (their middle half, or the former if that is more), as a part of the
    /// median.
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
        // (Without CPU time to be seen nothing is a part of it.)
        Self { median: all, differ: quotient(differ, all), spread: quotient(spread, all) }
    }
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

    /// Rounds in which plain needs `plain`, the side `side`, and all others as much as plain.
    fn pair(plain: [f64; 4], side: [f64; 4]) -> Pair {
        let turns = |of: Side| if of == Side::Uncopy { side.to_vec() } else { plain.to_vec() };
        Measure::new(Side::ALL.map(turns)).pair(Side::Uncopy, Side::Plain)
    }

    #[test]
    fn an_effect_of_a_round_on_all_its_sides_is_no_noise() {
        // (The machine is half as fast in the third round.)
        let plain = [1.00, 1.05, 2.00, 0.98];
        assert_eq!(pair(plain, plain.map(|n| 0.95 * n)).found(), Difference::Less);
        assert_eq!(pair(plain, plain.map(|n| 1.05 * n)).found(), Difference::More);
        assert_eq!(pair(plain, plain).found(), Difference::Same);
    }

    #[test]
    fn one_bad_turn_does_not_become_a_gain_nor_does_a_difference_that_nobody_would_act_on() {
        assert_eq!(pair([1.0, 1.0, 1.0, 2.0], [1.0; 4]).found(), Difference::Same);
        assert_eq!(pair([1.0; 4], [0.995; 4]).found(), Difference::Same);
    }

    #[test]
    fn a_single_round_tells_nothing_of_noise() {
        let turns = |of: Side| vec![if of == Side::Uncopy { 0.1 } else { 1.0 }];
        let pair = Measure::new(Side::ALL.map(turns)).pair(Side::Uncopy, Side::Plain);
        assert_eq!((pair.found(), pair.seen_from()), (Difference::Same, None));
    }

    #[test]
    fn rounds_without_some_sides_tell_those_apart_that_were_in_them() {
        let turns = Side::ALL.map(|side| match side {
            Side::Kept => vec![0.80, 0.90, 0.82, 0.88, 0.81, 0.89, 0.83, 0.87],
            Side::Uncopy => vec![0.76, 0.75, 0.77, 0.74, 0.76, 0.75, 0.76, 0.75],
            _ => vec![1.0, 1.01, 0.99],
        });
        let standing = Standing::new(turns, Side::ALL.map(|_| vec![1.0; 3]));
        assert_eq!(standing.cpu(Side::Uncopy, Side::Kept).won(), (8, 8));
        assert_eq!(standing.cpu(Side::Uncopy, Side::Plain).won(), (3, 3));
        assert!(standing.is_rather_taken(Side::Uncopy, Side::Kept));
    }

    #[test]
    fn the_range_is_what_students_distribution_leaves_of_the_ratio() {
        // (Four rounds with an error of 0.1, known as from six: 2.447 errors to each side.)
        let pair = Pair { ahead: 2.0_f64.ln(), error: 0.1, freedom: 6, rounds: 4, won: 4 };
        let [least, most] = pair.range().unwrap();
        assert!((least - 2.0 * (-0.2447_f64).exp()).abs() < 1e-3, "{least}");
        assert!((most - 2.0 * 0.2447_f64.exp()).abs() < 1e-3, "{most}");
        assert_eq!(pair.words_and_range(), "2.00 (gain, 1.57 to 2.55)");
        assert_eq!(Pair { rounds: 1, ..pair }.range(), None);
    }

    #[test]
    fn plain_processes_that_differ_do_not_hide_what_tells_two_other_sides_apart() {
        // (Plain: 2.0 or 1.5, by what memory a process happens to have.)
        let turns = Side::ALL.map(|side| match side {
            Side::Plain => vec![2.0, 1.5, 2.0, 1.5],
            Side::Again => vec![1.5, 1.5, 2.0, 2.0],
            Side::Uncopy => vec![0.75, 0.76, 0.76, 0.74],
            _ => vec![0.80, 0.81, 0.80, 0.82],
        });
        let standing = Standing::new(turns, Side::ALL.map(|_| vec![1.0; 4]));
        assert!(standing.is_rather_taken(Side::Uncopy, Side::NoElision));
        assert!(!standing.is_rather_taken(Side::NoElision, Side::Uncopy));
        // Of those that keep memory there may be two kinds, too: four rounds do not tell.
        assert!(!standing.is_rather_taken(Side::Uncopy, Side::Kept));
        assert!(standing.may_be_taken(Side::Uncopy, Side::Kept));
    }
}
