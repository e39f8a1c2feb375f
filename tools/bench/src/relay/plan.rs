//! The case that is measured of each side, and the orders of each program of a chain.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The bytes that the sink looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Touch {
    /// One message in 256.
    None,
    /// All.
    All,
}

impl Touch {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
        }
    }
}

/// A side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Linux' loopback.
    Linux,
    /// The same once more: what it differs by is noise.
    Again,
    /// `--tcp --elide=no`.
    Rings,
    /// `--tcp --tcp-references=no`.
    Copied,
    /// `--tcp --tcp-references=yes`.
    Uncopy,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Linux, Self::Rings, Self::Again, Self::Copied, Self::Uncopy];

    /// All in the order of round number `round`.
    pub fn in_turn(round: usize) -> [Self; 5] {
        let mut all = Self::ALL;
        all.rotate_left(round % Self::ALL.len());
        all
    }

    /// The library is in front.
    pub fn is_uncopys(self) -> bool {
        matches!(self, Self::Rings | Self::Copied | Self::Uncopy)
    }
}

/// The place of one program in the chain, and its orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes of a message.
    pub size: usize,
    /// The bytes that the sink looks at.
    pub touch: Touch,
    /// Copies that a relay makes of a message.
    pub copies: usize,
    /// Whether messages come to it from another one.
    pub listens: bool,
    /// The address that it sends them to.
    pub to: Option<SocketAddr>,
}
