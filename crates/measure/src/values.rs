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

/// Bits a second.
pub fn rate(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let rate = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times));
    rate.filter(|rate| *rate > 0)
        .ok_or_else(|| "it must be a number of bits a second: 500M, 10G".to_owned())
}

/// A length of time.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .filter(|d| *d <= Duration::from_secs(3600))
        .ok_or_else(|| "it must be a number of seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal_and_above_nothing() {
        assert_eq!(
            ["8", "64k", "500M", "10G"].map(rate),
            [8, 64_000, 500_000_000, 10_000_000_000].map(Ok)
        );
        for wrong in ["", "0", "M", "-1", "1.5M", "99999999999G", "1T"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
