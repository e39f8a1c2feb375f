//! Values of options that several modes have, and the options as they are when none is given.

use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use serde::{Deserialize, Serialize};

use crate::units;

/// How long and how often a mode measures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Whether it was only a look.
    pub quick: bool,
    /// Turns.
    pub repeats: usize,
    /// Length of a timed window.
    pub seconds: f64,
}

/// Options of a mode as they are when none is given.
pub fn defaults<T: Args + FromArgMatches>() -> T {
    let command = T::augment_args(Command::new("bench"));
    T::from_arg_matches(&command.get_matches_from(["bench"])).expect("the defaults are valid")
}

/// A size above 0.
pub fn size(text: &str) -> Result<usize, String> {
    units::parse_size(text)
        .and_then(|n| if n == 0 { Err("it must be at least 1".into()) } else { Ok(n) })
}

/// A number above 0.
pub fn positive(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| "it must be a whole number above 0".to_owned())
}

/// A length of time.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .filter(|d| *d <= Duration::from_secs(3600))
        .ok_or_else(|| "it must be a number of seconds".to_owned())
}
