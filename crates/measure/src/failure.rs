//! Why something cannot be done, in the one form that a user reads: `WHAT (WHY); ADVICE`.

use std::error::Error;
use std::fmt::{self, Display};

/// Why something cannot be done. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    what: String,
    why: Option<String>,
    advice: Option<String>,
}

impl Failure {
    /// A failure: `what` cannot be done, or is not as it has to be.
    pub fn new(what: impl Display) -> Self {
        Self { what: what.to_string(), why: None, advice: None }
    }

    /// Adds where that is, or what the kernel says: it stands in parentheses.
    #[must_use]
    pub fn because(self, why: impl Display) -> Self {
        Self { why: Some(why.to_string()), ..self }
    }

    /// Adds what can be done about it: it stands at the end, behind what was advised before.
    #[must_use]
    pub fn advise(self, advice: impl Display) -> Self {
        let advice = match self.advice {
            Some(before) => format!("{before}; {advice}"),
            None => advice.to_string(),
        };
        Self { advice: Some(advice), ..self }
    }

    /// Says in front of it what cannot be done because of it, or whose failure it is.
    #[must_use]
    pub fn within(self, context: impl Display) -> Self {
        Self { what: format!("{context}: {}", self.what), ..self }
    }

    /// Puts what it is about in front, where its text begins with a verb.
    #[must_use]
    pub fn about(self, subject: impl Display) -> Self {
        Self { what: format!("{subject} {}", self.what), ..self }
    }

    /// The advice, where there is one.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, why, advice } = self;
        f.write_str(what)?;
        why.iter().try_for_each(|why| write!(f, " ({why})"))?;
        advice.iter().try_for_each(|advice| write!(f, "; {advice}"))
    }
}

impl Error for Failure {}

impl From<&Self> for Failure {
    fn from(failure: &Self) -> Self {
        failure.clone()
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}

/// Whether a line has the one form: no end of a sentence, no second advice, and what stands in
/// parentheses stands behind what cannot be done.
pub fn is_in_form(line: &str) -> bool {
    let (what, advice) = line.split_once("; ").unwrap_or((line, "-"));
    let ends = |text: &str| text.is_empty() || text.ends_with(['.', ':', ';', ' ']);
    !line.contains('\n') && !ends(what) && !ends(advice) && !what.starts_with([' ', '('])
}

/// A [`Failure`] from a text with values in it, as of `format!`.
#[macro_export]
macro_rules! failure {
    ($($text:tt)*) => { $crate::Failure::new(format_args!($($text)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_why_and_what_to_do_in_this_order() {
        let plain = failure!("cannot read {}", "x");
        assert_eq!(plain.to_string(), "cannot read x");
        let whole = plain.advise("name another").because("No such file").within("replay");
        assert_eq!(whole.to_string(), "replay: cannot read x (No such file); name another");
        assert!(is_in_form(&whole.to_string()));
        for other in ["", "cannot read x.", "cannot read x; ", "(why) cannot", "one\ntwo"] {
            assert!(!is_in_form(other), "{other}");
        }
    }
}
