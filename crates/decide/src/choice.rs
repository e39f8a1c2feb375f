//! Which controller decides: for those who work on uncopy. Everybody else has the default.

use crate::control::Control;
use crate::copy_prices::CopyPrices;
use crate::costs::Costs;
use crate::fixed::Fixed;
use crate::ladder::Ladder;
use crate::pauses::Pauses;
use crate::policy::Policy;
use crate::records::Records;
use core::fmt;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// An account for each call site: [`Policy`].
    #[default]
    Accounts,
    /// All copies of so many bytes and more are elided.
    From(usize),
    /// None is.
    Never,
    /// One experiment, and a brake for each call site: [`Ladder`].
    Ladder,
}

/// What a controller is made with.
#[derive(Clone, Copy, Debug)]
pub struct Basis {
    /// Smallest copy that is considered, in bytes.
    pub threshold: usize,
    /// Whether call sites in debt are left alone.
    pub backoff: bool,
    /// What things cost.
    pub costs: Costs,
    /// Where it says, for those who hold no lock, who is left alone.
    pub pauses: &'static Pauses,
    /// Where it writes down what was done.
    pub records: &'static Records,
    /// What copies cost in this program.
    pub copies: &'static CopyPrices,
}

impl Choice {
    /// Their names.
    pub const NAMES: &str = "accounts, always, never, from=BYTES, ladder";

    /// From its name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "accounts" => Some(Self::Accounts),
            "always" => Some(Self::From(0)),
            "never" => Some(Self::Never),
            "ladder" => Some(Self::Ladder),
            _ => text.strip_prefix("from=")?.parse().ok().map(Self::From),
        }
    }

    /// Makes it.
    pub fn control(self, basis: Basis) -> Control {
        let Basis { threshold, backoff, costs, pauses, records, copies } = basis;
        let fixed = |from| Control::new(Box::new(Fixed::new(from, costs)), threshold);
        match self {
            Self::Accounts => Policy::new(threshold, backoff, costs, pauses)
                .recording(records)
                .priced_by(copies)
                .into(),
            Self::From(from) => fixed(from.max(threshold)),
            Self::Never => fixed(usize::MAX),
            Self::Ladder => {
                Control::new(Box::new(Ladder::new(threshold, costs, pauses)), threshold)
            }
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accounts => f.write_str("accounts"),
            Self::From(0) => f.write_str("always"),
            Self::From(bytes) => write!(f, "from={bytes}"),
            Self::Never => f.write_str("never"),
            Self::Ladder => f.write_str("ladder"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own() {
        for choice in
            [Choice::Accounts, Choice::From(0), Choice::From(65536), Choice::Never, Choice::Ladder]
        {
            assert_eq!(Choice::parse(&choice.to_string()), Some(choice));
        }
        for text in ["", "nobody", "from=", "from=-1", "from=64K"] {
            assert_eq!(Choice::parse(text), None, "{text}");
        }
    }
}
