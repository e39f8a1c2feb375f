//! Why a text is no value of its option.

use std::error::Error;
use std::fmt::{self, Display};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadValue {
    /// It is no size in bytes.
    NoSize(String),
    /// It is more than an address can say.
    TooLarge(String),
    /// It is no number of the kind that is wanted.
    Kind(&'static str),
    /// It is a number outside of its range, which is named.
    Range(&'static str),
}

impl Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSize(text) => write!(f, "'{text}' is not a size; write 65536, 64K or 1M"),
            Self::TooLarge(text) => write!(f, "'{text}' is too large"),
            Self::Kind(wanted) => write!(f, "it must be {wanted}"),
            Self::Range(wanted) => write!(f, "it must be in {wanted}"),
        }
    }
}

impl Error for BadValue {}
