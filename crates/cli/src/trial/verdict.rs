//! What the differences mean, and what to do.

use uncopy_measure::side::{KEEP, TUNABLES};

use super::compare::Found;

/// What there is to be told apart.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// uncopy and plain.
    pub uncopy: Found,
    /// Kept memory and plain.
    pub kept: Found,
    /// uncopy and kept memory.
    pub beyond: Found,
    /// Medians of uncopy and kept memory as parts of plain's.
    pub parts: [f64; 2],
    /// Bytes that uncopy did not copy.
    pub saved: u64,
    /// What plain turns spread over, as a part of their median.
    pub spread: f64,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It gains.
    Pays,
    /// What it gains can be had without it.
    Memory,
    /// It gains nothing, for there is nothing to elide.
    NoCopies,
    /// It costs.
    Loses,
    /// Too noisy, or too little.
    Unknown,
}

impl Verdict {
    /// From the facts.
    pub fn of(facts: &Facts) -> Self {
        let memory = facts.kept == Found::Less;
        match facts.uncopy {
            Found::Less if !memory || facts.beyond == Found::Less => Self::Pays,
            _ if memory => Self::Memory,
            Found::More => Self::Loses,
            _ if facts.saved == 0 => Self::NoCopies,
            _ => Self::Unknown,
        }
    }

    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pays => "pays",
            Self::Memory => "memory",
            Self::NoCopies => "no_copies",
            Self::Loses => "loses",
            Self::Unknown => "unknown",
        }
    }

    /// For people; `start`: the words that start the program under uncopy.
    pub fn advice(self, facts: &Facts, start: &str) -> String {
        let [uncopy, kept] = facts.parts;
        let none = "nothing was elided: your program makes no large copies of its input, or none that pay, or has ended before that was found \
                    out (half a second of processor time); 'uncopy profile -- CMD' shows which copies it makes";
        match self {
            Self::Pays => format!("pays: start it with '{start}'."),
            Self::Memory => format!(
                "only memory recycling pays: {TUNABLES}={KEEP} needs {kept:.2} of plain's CPU, without uncopy \
                 (which needs {uncopy:.2}: no gain beyond that counts). glibc then keeps what memory the program ever had."
            ),
            Self::NoCopies => format!("does not pay: {none}."),
            Self::Loses if facts.saved == 0 => {
                format!(
                    "does not pay: {none}, and under uncopy it needs {uncopy:.2} of plain's CPU."
                )
            }
            Self::Loses => {
                format!("does not pay: under uncopy it needs {uncopy:.2} of plain's CPU.")
            }
            Self::Unknown => format!(
                "cannot tell: uncopy and plain differ by {:.1}%, and the plain turns among themselves by {:.1}%; \
                 a difference below {:.1}% is not seen; more rounds, longer turns or a quieter machine tell more.",
                (uncopy - 1.0).abs() * 100.0,
                facts.spread * 100.0,
                facts.spread * 200.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Found::{Less, More, Same};

    fn verdict(uncopy: Found, kept: Found, beyond: Found, saved: u64) -> Verdict {
        Verdict::of(&Facts { uncopy, kept, beyond, parts: [1.0, 1.0], saved, spread: 0.01 })
    }

    #[test]
    fn what_can_be_had_without_uncopy_is_not_uncopys_gain() {
        assert_eq!(verdict(Less, Same, Same, 1), Verdict::Pays);
        assert_eq!(verdict(Less, Less, Less, 1), Verdict::Pays);
        assert_eq!(verdict(Less, Less, Same, 1), Verdict::Memory);
        assert_eq!(verdict(Less, Less, More, 1), Verdict::Memory);
        assert_eq!(verdict(Same, Less, More, 0), Verdict::Memory);
        assert_eq!(verdict(More, Less, More, 0), Verdict::Memory);
    }

    #[test]
    fn without_a_gain_the_reason_is_told_as_far_as_it_is_known() {
        assert_eq!(verdict(Same, Same, Same, 0), Verdict::NoCopies);
        assert_eq!(verdict(Same, Same, Same, 1), Verdict::Unknown);
        assert_eq!(verdict(More, Same, Same, 1), Verdict::Loses);
    }
}
