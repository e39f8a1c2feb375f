//! Values of options that several modes have, and the options as they are when none is given.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use serde::{Deserialize, Serialize};

pub use crate::bad_value::BadValue;
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
///
/// # Errors
/// [`BadValue`]: it is none.
pub fn size(text: &str) -> Result<usize, BadValue> {
    match units::parse_size(text)? {
        0 => Err(BadValue::Kind("at least 1")),
        size => Ok(size),
    }
}

/// A number above 0.
///
/// # Errors
/// [`BadValue`]: it is none.
pub fn positive(text: &str) -> Result<usize, BadValue> {
    text.parse().ok().filter(|n| *n > 0).ok_or(BadValue::Kind("a whole number above 0"))
}

/// Bits a second.
///
/// # Errors
/// [`BadValue`]: it is no such rate.
pub fn rate(text: &str) -> Result<u64, BadValue> {
    let (digits, times) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let rate = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times));
    rate.filter(|rate| *rate > 0).ok_or(BadValue::Kind("a number of bits a second: 500M, 10G"))
}

/// A length of time.
///
/// # Errors
/// [`BadValue`]: it is none, or more than an hour.
pub fn seconds(text: &str) -> Result<Duration, BadValue> {
    text.parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .filter(|d| *d <= Duration::from_secs(3600))
        .ok_or(BadValue::Kind("a number of seconds"))
}

/// A number of seconds between two screens of a `top`.
///
/// # Errors
/// [`BadValue`]: it is none, or not in 0.1 to 3600.
pub fn refresh(text: &str) -> Result<f64, BadValue> {
    within(text, 0.1..=3600.0, "0.1 to 3600")
}

/// A number of seconds in a range, which is named as it is said to the user.
///
/// # Errors
/// [`BadValue`]: it is none, or not in there.
pub fn within(
    text: &str,
    range: RangeInclusive<f64>,
    named: &'static str,
) -> Result<f64, BadValue> {
    let value: f64 = text.parse().map_err(|_| BadValue::Kind("a number of seconds"))?;
    if range.contains(&value) { Ok(value) } else { Err(BadValue::Range(named)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_outside_of_their_range_are_refused_with_the_range() {
        assert_eq!(refresh("0.1"), Ok(0.1));
        assert_eq!(refresh("0").unwrap_err().to_string(), "it must be in 0.1 to 3600");
        assert_eq!(refresh("soon").unwrap_err().to_string(), "it must be a number of seconds");
    }

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
