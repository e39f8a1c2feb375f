//! The frames that pass over a wire, in a file that Wireshark and tcpdump read (pcapng).
//!
//! | module | one idea |
//! | --- | --- |
//! | [`chosen`] | which flows |
//! | [`capture`] | frames in a file, with their time and direction |
//! | [`traced`] | a wire that is looked at, or not: then a load for each frame |
//!
//! Connections between two programs of one host are not here: their bytes are copied from one
//! program's memory into a ring and out of it, and there are no segments. A file of them would have
//! been made up.

#![forbid(unsafe_code)]

pub mod capture;
pub mod chosen;
pub mod traced;

pub use capture::{Capture, Passes};
pub use chosen::Chosen;
pub use traced::{Trace, Traced};
