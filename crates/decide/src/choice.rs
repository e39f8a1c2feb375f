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
    /// An account for each call site, once an experiment has shown that eliding pays: [`Policy`].
    #[default]
    Accounts,
    /// The same without experiments, and so from the first copy on.
    AccountsAlone,
    /// All copies of so many bytes and more are elided.
    From(usize),
    /// None is.
    Never,
}

/// The values that a controller is made with.
#[derive(Clone, Copy, Debug)]
pub struct Basis {
    /// Smallest copy that is considered, in bytes.
    pub threshold: usize,
    /// Whether call sites in debt are left alone.
    pub backoff: bool,
    /// The costs of operations.
    pub costs: Costs,
    /// Where it says, for those who hold no lock, who is left alone.
    pub pauses: &'static Pauses,
    /// Where it writes down what was done.
    pub records: &'static Records,
}

impl Choice {
    /// Their names.
    pub const NAMES: &str = "accounts, accounts-alone, always, never, from=BYTES";

    /// Whether none elides at first.
    pub fn begins_with_none(self, backoff: bool) -> bool {
        self == Self::Accounts && backoff
    }

    /// The choice of this name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "accounts" => Some(Self::Accounts),
            "accounts-alone" => Some(Self::AccountsAlone),
            "always" => Some(Self::From(0)),
            "never" => Some(Self::Never),
            _ => text.strip_prefix("from=")?.parse().ok().map(Self::From),
        }
    }

    /// Makes it.
    pub fn control(self, basis: Basis) -> Control {
        let Basis { threshold, backoff, costs, pauses, records } = basis;
        let fixed = |from| Control::new(Fixed::new(from, costs), threshold);
        let accounts = || Policy::new(backoff, costs, pauses).recording(records);
        match self {
            Self::Accounts => Control::new(accounts(), threshold),
            Self::AccountsAlone => Control::new(accounts().without_experiments(), threshold),
            Self::From(from) => fixed(from),
            Self::Never => fixed(usize::MAX),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accounts => f.write_str("accounts"),
            Self::AccountsAlone => f.write_str("accounts-alone"),
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
        use Choice::{Accounts, AccountsAlone, From, Never};
        for choice in [Accounts, AccountsAlone, From(0), From(65536), Never] {
            assert_eq!(Choice::parse(&choice.to_string()), Some(choice));
        }
        for text in ["", "nobody", "from=", "from=-1", "from=64K"] {
            assert_eq!(Choice::parse(text), None, "{text}");
        }
    }
}
