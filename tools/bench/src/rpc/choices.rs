//! The choices of a row: what connects two programs, how they call, how they wait, and which way
//! requests go.

use serde::{Deserialize, Serialize};

/// The wire between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// Memory that both programs share, within one host
    Shared,
    /// A network device by AF_XDP
    Xdp,
    /// A TAP device
    Tap,
}

/// How an end waits for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// It asks again and again, on a core of its own
    Spin,
    /// It sleeps until there are some
    Sleep,
}

impl Wait {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Sleep => "sleep",
        }
    }
}

/// The API that the two ends call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// libc's sockets, with the preload library in front
    Sockets,
    /// The socket library itself
    Rings,
    /// Linux: sockets; uncopy: lanes of its TCP in the program itself: what is called over AF_XDP
    /// and TAP
    #[value(skip)]
    Lanes,
}

/// Which way requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Each is answered
    Both,
    /// The server only receives them
    In,
    /// The server only sends them
    Out,
}
