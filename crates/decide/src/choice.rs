//! Which controller decides: for those who work on uncopy. Everybody else has the default.

use crate::control::Control;
use crate::costs::Costs;
use crate::fixed::Fixed;
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
}

impl Choice {
    /// Their names.
    pub const NAMES: &str = "accounts, always, never, from=BYTES";

    /// From its name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "accounts" => Some(Self::Accounts),
            "always" => Some(Self::From(0)),
            "never" => Some(Self::Never),
            _ => text.strip_prefix("from=")?.parse().ok().map(Self::From),
        }
    }

    /// Makes it.
    pub fn control(self, basis: Basis) -> Control {
        let Basis { threshold, backoff, costs, pauses, records } = basis;
        let fixed = |from| Control::new(Box::new(Fixed::new(from, costs)), threshold);
        match self {
            Self::Accounts => {
                Policy::new(threshold, backoff, costs, pauses).recording(records).into()
            }
            Self::From(from) => fixed(from.max(threshold)),
            Self::Never => fixed(usize::MAX),
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own() {
        for choice in [Choice::Accounts, Choice::From(0), Choice::From(65536), Choice::Never] {
            assert_eq!(Choice::parse(&choice.to_string()), Some(choice));
        }
        for text in ["", "nobody", "from=", "from=-1", "from=64K"] {
            assert_eq!(Choice::parse(text), None, "{text}");
        }
    }
}
