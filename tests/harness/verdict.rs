//! How a test ends: well, badly, or not at all, with the reason.

use libtest_mimic::{Completion, Failed, Trial};

/// Why a test does not end well.
#[derive(Clone, Debug)]
pub enum Stop {
    /// It cannot run here: what is missing.
    Skip(String),
    /// The failure.
    Fail(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Fail(why)
    }
}

/// A test. A test that cannot run here is counted as ignored; where everything has to be there
/// (`NO_SKIPS=1`, as `make test` sets it), it has failed.
pub fn test(
    name: impl Into<String>,
    body: impl FnOnce() -> Result<(), Stop> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match body() {
        Ok(()) => Ok(Completion::Completed),
        Err(Stop::Skip(reason)) if set("NO_SKIPS") => {
            Err(Failed::from(format!("NO_SKIPS is set, and it cannot run here: {reason}")))
        }
        Err(Stop::Skip(reason)) => Ok(Completion::ignored_with(reason)),
        Err(Stop::Fail(why)) => Err(why.into()),
    })
}

/// Says that a test of Rust's own harness cannot run here: "left out: REASON", which `make check`
/// counts.
pub fn leave_out(reason: impl std::fmt::Display) {
    assert!(!set("NO_SKIPS"), "NO_SKIPS is set, and this cannot run here: {reason}");
    eprintln!("left out: {reason}");
}

/// Whether a switch is set in the environment.
pub fn set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// A number from the environment.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a whole number")))
}
