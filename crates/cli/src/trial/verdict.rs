//! The meaning of the differences, and advice.

use uncopy_measure::side::{KEEP, Side, TUNABLES};

use super::compare::{Difference, Standing};

/// From the simplest on: a way that is no better than a simpler one is not worth its price.
const SIMPLEST_FIRST: [Side; 5] =
    [Side::Plain, Side::Kept, Side::Placed, Side::NoElision, Side::Uncopy];

/// Runs of less processor time, in seconds, are mostly their start.
const SEEN: f64 = 0.05;

/// The facts that tell cases apart.
#[derive(Clone, Debug)]
pub struct Facts {
    /// All sides against each other.
    pub standing: Standing,
    /// Bytes that uncopy did not copy.
    pub saved: u64,
    /// CPU time in which uncopy learnt and worked in a turn, in seconds.
    pub worked: f64,
    /// Whether what it learnt in is measured with the rest.
    pub learning_counts: bool,
    /// How long each of the loads took, in seconds, if all took as long though nobody counts their
    /// work.
    pub fixed_time: Option<f64>,
}

/// The side to take, as far as is told from chance: from the simplest that gains on.
fn leader(standing: &Standing) -> Side {
    let gains = SIMPLEST_FIRST[1..].iter().copied().find(|side| standing.gains(*side));
    let better = |best, side| if standing.is_rather_taken(side, best) { side } else { best };
    gains.map_or(Side::Plain, |first| SIMPLEST_FIRST[1..].iter().copied().fold(first, better))
}

/// A less simple side that gains, too, and may be better than the leader. (Of several uncopy as it
/// is, if no other one seems better than that.)
fn rival(standing: &Standing, leader: Side) -> Option<Side> {
    let later = SIMPLEST_FIRST.iter().rev().copied().take_while(|side| *side != leader);
    let may_be_better =
        |side: &Side| standing.seems_better(*side, leader) || standing.may_be_taken(*side, leader);
    let rivals = later.filter(|side| standing.gains(*side)).filter(may_be_better);
    rivals.reduce(|best, side| if standing.seems_better(side, best) { side } else { best })
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This side of uncopy's gains most.
    Pays(Side),
    /// Its gain can be had without it.
    Memory,
    /// Both gain, and which of them gains more is not told from chance. The first is recommended:
    /// the simpler one, or the other one where that is likely to be better.
    Either(Side, Side),
    /// It gains nothing, for there is nothing to elide.
    NoCopies,
    /// It costs.
    Loses,
    /// Too noisy, or too little.
    Unknown,
    /// Runs are over before anything can be seen.
    TooShort,
    /// All loads took as long as each other: they may have done more or less work in it.
    FixedTime,
}

impl Verdict {
    /// The verdict that follows from the facts.
    pub fn of(facts: &Facts) -> Self {
        let standing = &facts.standing;
        if facts.learning_counts && standing.plain().median < SEEN {
            return Self::TooShort;
        }
        if facts.fixed_time.is_some() {
            return Self::FixedTime;
        }
        let leader = leader(standing);
        if let Some(rival) = rival(standing, leader) {
            return if standing.is_likely_better(rival, leader) {
                Self::Either(rival, leader)
            } else {
                Self::Either(leader, rival)
            };
        }
        match leader {
            Side::Kept => Self::Memory,
            side @ (Side::Placed | Side::NoElision | Side::Uncopy) => Self::Pays(side),
            _ if standing.cpu(Side::Uncopy, Side::Plain).found() == Difference::More => Self::Loses,
            _ if facts.saved == 0 => Self::NoCopies,
            _ => Self::Unknown,
        }
    }

    /// Of the sides `running` those that one more round is to be of, because it may well change the
    /// answer; none: it stands. Where sides gain, plain is not asked any more: a round of the two
    /// that are close takes a third of the time.
    pub fn open_between(self, facts: &Facts, running: &[Side]) -> Vec<Side> {
        let standing = &facts.standing;
        let any = |is: &dyn Fn(Side) -> bool| {
            running.iter().any(|side| SIMPLEST_FIRST[1..].contains(side) && is(*side))
        };
        match self {
            Self::TooShort | Self::FixedTime | Self::Loses => Vec::new(),
            Self::NoCopies | Self::Unknown => {
                let open = any(&|side| standing.may_differ(side));
                if open { running.to_vec() } else { Vec::new() }
            }
            Self::Memory | Self::Pays(_) | Self::Either(..) => {
                let leader = leader(standing);
                let close = |side| standing.may_be_taken(side, leader);
                if !running.contains(&leader) || !any(&close) {
                    return Vec::new();
                }
                running.iter().copied().filter(|side| *side == leader || close(*side)).collect()
            }
        }
    }

    /// The verdict's name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pays(_) => "pays",
            Self::Memory => "memory",
            Self::Either(..) => "either",
            Self::NoCopies => "no_copies",
            Self::Loses => "loses",
            Self::Unknown => "unknown",
            Self::TooShort => "too_short",
            Self::FixedTime => "fixed_time",
        }
    }

    /// The side to be used.
    pub fn side(self) -> Side {
        match self {
            Self::Pays(side) | Self::Either(side, _) => side,
            Self::Memory => Side::Kept,
            _ => Side::Plain,
        }
    }

    /// The other one that may be used as well.
    pub fn other(self) -> Option<Side> {
        match self {
            Self::Either(_, other) => Some(other),
            _ => None,
        }
    }

    /// For people; `start`: the words that start the program on a side.
    pub fn advice(self, facts: &Facts, start: &dyn Fn(Side) -> String) -> String {
        let standing = &facts.standing;
        let gains = |side| standing.gains_in_words(side);
        let mut text = match self {
            Self::Pays(side) => {
                let why = match side {
                    Side::NoElision => "; with elision it gains no more",
                    Side::Placed => "; neither elision nor faster copies gain more",
                    _ => "",
                };
                format!(
                    "pays: {}{why}. Start it with '{}'. Its price: {PRICE}.{}",
                    gains(side),
                    start(side),
                    simpler(standing, side)
                )
            }
            Self::Either(first, other) => either(standing, first, other, start),
            Self::Memory => format!(
                "only memory recycling pays: {TUNABLES}={KEEP} has {}, without uncopy, which has \
                 {}, no gain beyond that which counts: {}. Its price: {KEPT_PRICE}.",
                gains(Side::Kept),
                gains(Side::Uncopy),
                against(standing, Side::Uncopy, Side::Kept)
            ),
            Self::NoCopies => {
                "does not pay: nothing was elided. Your program makes no large copies of its \
                 input, or none that pay; 'uncopy profile -- CMD' shows which copies it makes."
                    .to_owned()
            }
            Self::Loses => {
                let none = if facts.saved == 0 { "nothing was elided, and " } else { "" };
                format!("does not pay: {none}under uncopy there is {}.", gains(Side::Uncopy))
            }
            Self::TooShort => format!(
                "cannot tell: a run takes {:.1} ms of processor time, which is mostly its start.",
                standing.plain().median * 1e3
            ),
            Self::FixedTime => format!(
                "cannot tell: each load took {:.2} s, whatever the side, as one that runs for a \
                 fixed time does; then more work in that time looks like a loss. Have its work \
                 counted: --count REGEX. If it does the same work each time, at a rate of its own, \
                 the ratios of processor time below hold: uncopy has {}.",
                facts.fixed_time.unwrap_or_default(),
                gains(Side::Uncopy)
            ),
            Self::Unknown => {
                let uncopy = standing.cpu(Side::Uncopy, Side::Plain);
                let seen = uncopy.seen_from().map_or_else(
                    || "one round tells nothing of noise".to_owned(),
                    |part| {
                        let percent = part * 100.0;
                        format!("with this noise a difference below {percent:.1}% is not seen")
                    },
                );
                format!(
                    "cannot tell: uncopy and plain differ by {:.1}% in processor time; {seen}. \
                     More rounds, longer turns or a quieter machine tell more.",
                    (uncopy.ratio() - 1.0).abs() * 100.0,
                )
            }
        };
        if standing.trades(Side::Uncopy) {
            text += " uncopy gains in one of processor time and time, and loses in the other: \
                which counts is yours to say.";
        }
        text + &self.too_short(facts)
    }

    /// The sentence about runs that end before uncopy has learnt.
    fn too_short(self, facts: &Facts) -> String {
        use super::turn::LEARNS;

        let worked = facts.worked;
        match facts.learning_counts {
            true if worked < 2.0 * LEARNS => format!(
                " A run takes {worked:.1} s of processor time, and uncopy learns in the first \
                 {LEARNS:.0} s: what it gains after that, runs of {:.0} s and more would show.",
                3.0 * LEARNS
            ),
            false if worked < LEARNS => format!(
                " The server took {worked:.1} s of processor time before it was measured, and \
                 uncopy learns for {LEARNS:.0} s: a load that keeps it busy for longer tells more.",
            ),
            _ => String::new(),
        }
    }
}

/// The other costs of uncopy.
const PRICE: &str = "a library in the program, which needs userfaultfd there, and memory for what \
                     it keeps (docs/users/memory.md)";
/// The cost of memory that is kept.
const KEPT_PRICE: &str = "glibc gives nothing back, so the program holds what memory it ever had";

/// Two sides that gain both, and what decides between them.
fn either(standing: &Standing, first: Side, other: Side, start: &dyn Fn(Side) -> String) -> String {
    let why = match (first, other) {
        (_, Side::Kept) => " where you want no library",
        (Side::Kept, _) => ", which may gain more",
        _ => "",
    };
    let price = if [first, other].contains(&Side::Kept) {
        format!("Its price decides: {PRICE}; with memory kept {KEPT_PRICE}.")
    } else {
        format!("The price of both: {PRICE}.")
    };
    let (rounds, _) = standing.cpu(first, other).won();
    let has = |side: Side| format!("{} has {}", side.name(), standing.ranges_in_words(side));
    format!(
        "pays: {}, or {}{why}. {}; {}. {rounds} rounds do not tell which gains more (a longer \
         --time-cap may). Start it with '{}', or with '{}'. {price}",
        first.name(),
        other.name(),
        has(first),
        has(other),
        start(first),
        start(other)
    )
}

/// The simpler means that there are without uncopy where uncopy is recommended.
fn simpler(standing: &Standing, side: Side) -> String {
    if !standing.gains(Side::Kept) {
        return String::new();
    }
    format!(
        " Simpler, without uncopy: {TUNABLES}={KEEP} has {}; {}. Its price: {KEPT_PRICE}.",
        standing.gains_in_words(Side::Kept),
        against(standing, side, Side::Kept)
    )
}

/// How a side's processor time compares with another's, in words.
fn against(standing: &Standing, side: Side, other: Side) -> String {
    let pair = standing.cpu(side, other);
    let (rounds, won) = pair.won();
    let less = 100.0 * (1.0 - 1.0 / pair.ratio().max(1e-9));
    let by = if less < 0.0 { "more" } else { "less" };
    format!(
        "{} needs less processor time than {} in {won} of {rounds} rounds, on the average {:.1}% \
         {by}",
        side.name(),
        other.name(),
        less.abs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::sides::by_side;

    /// Three turns of each side that take so long, give or take a hundredth.
    fn facts(seconds: impl Fn(Side) -> f64) -> Facts {
        let turns = |side: Side| [0.99, 1.0, 1.01].map(|part| part * seconds(side)).to_vec();
        let standing = Standing::new(by_side(turns), by_side(|_| vec![1.0; 3]));
        Facts { standing, saved: 1, worked: 100.0, learning_counts: false, fixed_time: None }
    }

    fn verdict(kept: f64, placed: f64, no_elision: f64, uncopy: f64) -> Verdict {
        Verdict::of(&facts(|side| match side {
            Side::Plain | Side::Again => 10.0,
            Side::Kept => kept,
            Side::Placed => placed,
            Side::NoElision => no_elision,
            Side::Uncopy => uncopy,
        }))
    }

    #[test]
    fn the_best_side_is_the_answer_and_of_sides_alike_the_simplest() {
        assert_eq!(verdict(10.0, 10.0, 10.0, 5.0), Verdict::Pays(Side::Uncopy));
        assert_eq!(verdict(8.0, 7.9, 7.0, 6.0), Verdict::Pays(Side::Uncopy));
        assert_eq!(verdict(10.0, 8.0, 6.0, 6.0), Verdict::Pays(Side::NoElision));
        assert_eq!(verdict(10.0, 8.0, 6.0, 7.0), Verdict::Pays(Side::NoElision));
        assert_eq!(verdict(10.0, 6.0, 6.0, 7.0), Verdict::Pays(Side::Placed));
        assert_eq!(verdict(6.0, 6.0, 6.0, 6.0), Verdict::Memory);
        assert_eq!(verdict(6.0, 6.0, 6.0, 12.0), Verdict::Memory);
    }

    /// Rounds of turns: plain's are 10, those of the allocator and without elision as plain's.
    fn of_rounds(kept: &[f64], uncopy: &[f64]) -> Facts {
        let turns = by_side(|side| match side {
            Side::Kept => kept.to_vec(),
            Side::Uncopy => uncopy.to_vec(),
            _ => [9.9, 10.1, 10.0, 10.0, 9.9, 10.1][..kept.len()].to_vec(),
        });
        let standing = Standing::new(turns, by_side(|_| vec![1.0; kept.len()]));
        Facts { standing, saved: 1, worked: 100.0, learning_counts: false, fixed_time: None }
    }

    #[test]
    fn of_two_gains_that_cannot_be_told_apart_both_are_named_with_ranges_and_prices() {
        // (Like Django's.)
        let facts = of_rounds(&[5.0, 5.9, 4.6, 5.8, 5.2], &[4.8, 4.9, 4.8, 4.7, 4.9]);
        let verdict = Verdict::of(&facts);
        assert_eq!(verdict, Verdict::Either(Side::Uncopy, Side::Kept));
        assert_eq!((verdict.side(), verdict.other()), (Side::Uncopy, Some(Side::Kept)));
        let said = verdict.advice(&facts, &|side| format!("<{}>", side.name()));
        for part in [
            "pays: uncopy, or memory kept where you want no library. uncopy has 2.07 (gain, ",
            "5 rounds do not tell which gains more (a longer --time-cap may). ",
            "Start it with '<uncopy>', or with '<memory kept>'. Its price decides: ",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn where_it_is_close_only_the_sides_that_gain_are_asked_once_more() {
        let close = of_rounds(&[5.0, 5.9, 4.6, 5.8, 5.2], &[4.8, 4.9, 4.8, 4.7, 4.9]);
        let open =
            |facts: &Facts, running: &[Side]| Verdict::of(facts).open_between(facts, running);
        let two = [Side::Kept, Side::Uncopy];
        assert_eq!(open(&close, &Side::ALL), two);
        assert_eq!(open(&close, &two), two);
        // A side that is not run any more cannot be asked.
        assert!(open(&close, &[Side::Uncopy]).is_empty());
        let told = of_rounds(&[5.0, 5.1, 5.0, 5.1, 5.0], &[4.0, 4.1, 4.0, 4.0, 4.1]);
        assert_eq!(Verdict::of(&told), Verdict::Pays(Side::Uncopy));
        assert!(open(&told, &Side::ALL).is_empty());
        // Where nothing gains as yet all are.
        let nothing = of_rounds(&[10.0, 10.1, 9.9, 10.0, 10.0], &[9.3, 10.0, 9.2, 9.9, 9.3]);
        assert_eq!(Verdict::of(&nothing), Verdict::Unknown);
        assert_eq!(open(&nothing, &Side::ALL), Side::ALL);
    }

    #[test]
    fn without_a_gain_the_reason_is_told_as_far_as_it_is_known() {
        assert_eq!(verdict(10.0, 10.0, 10.0, 10.0), Verdict::Unknown);
        assert_eq!(verdict(10.0, 10.0, 10.0, 12.0), Verdict::Loses);
        let same = facts(|_| 10.0);
        assert_eq!(Verdict::of(&Facts { saved: 0, ..same }), Verdict::NoCopies);
    }

    #[test]
    fn a_gain_in_time_alone_is_one_and_a_loss_of_time_for_processor_time_is_told() {
        let cpu = |_| vec![9.9, 10.0, 10.1];
        let time = |uncopy: f64| {
            by_side(move |side| match side {
                Side::Uncopy => vec![uncopy; 3],
                _ => vec![4.0; 3],
            })
        };
        let with = |cpu: [Vec<f64>; 6], time| Facts {
            standing: Standing::new(cpu, time),
            saved: 1,
            worked: 100.0,
            learning_counts: true,
            fixed_time: None,
        };
        assert_eq!(Verdict::of(&with(by_side(cpu), time(3.0))), Verdict::Pays(Side::Uncopy));
        let less = by_side(|side| if side == Side::Uncopy { vec![5.0; 3] } else { cpu(side) });
        let traded = with(less, time(6.0));
        assert_eq!(Verdict::of(&traded), Verdict::Unknown);
        let said = Verdict::of(&traded).advice(&traded, &|_| String::new());
        assert!(said.contains("yours to say"), "{said}");
    }

    #[test]
    fn a_program_that_is_over_at_once_gets_no_verdict_whatever_its_turns_say() {
        let short = facts(|side| if side == Side::Kept { 0.0007 } else { 0.0008 });
        let short = Facts { worked: 0.0008, learning_counts: true, ..short };
        assert_eq!(Verdict::of(&short), Verdict::TooShort);
        let said = Verdict::TooShort.advice(&short, &|_| String::new());
        assert!(said.contains("0.8 ms") && said.contains("runs of 9 s"), "{said}");
    }

    #[test]
    fn loads_that_all_take_as_long_get_no_verdict_unless_their_work_is_counted() {
        let facts = facts(|side| if side == Side::Uncopy { 12.0 } else { 10.0 });
        assert_eq!(Verdict::of(&facts), Verdict::Loses);
        let fixed = Facts { fixed_time: Some(2.05), ..facts };
        assert_eq!(Verdict::of(&fixed), Verdict::FixedTime);
        let said = Verdict::FixedTime.advice(&fixed, &|_| String::new());
        assert!(said.contains("2.05 s") && said.contains("--count"), "{said}");
    }

    #[test]
    fn a_program_that_ended_before_uncopy_had_learnt_is_told_so() {
        let short = Facts { worked: 0.4, learning_counts: true, ..facts(|_| 10.0) };
        let said = Verdict::Unknown.advice(&short, &|_| String::new());
        assert!(said.contains("takes 0.4 s") && said.contains("runs of 9 s"), "{said}");
    }
}
