//! A connection over the wire, as `ss -ti` tells of Linux' ones.

use std::net::SocketAddr;

/// Its states, as `ss` calls them, by number.
pub const STATES: [&str; 10] = [
    "CLOSED",
    "SYN-SENT",
    "SYN-RECV",
    "ESTAB",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "CLOSE-WAIT",
    "CLOSING",
    "LAST-ACK",
    "TIME-WAIT",
];

/// How it slows down, by number.
pub const CONTROLS: [&str; 6] = ["dctcp", "timely", "reno", "cubic", "caller", "bbr"];

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wired {
    /// This host's address, and the peer's.
    pub addresses: [SocketAddr; 2],
    /// Of [`STATES`].
    pub state: u8,
    /// Of [`CONTROLS`].
    pub control: u8,
    /// The lane that moves its bytes.
    pub lane: u16,
    /// The round trip and its variation, in microseconds.
    pub rtt: (u32, u32),
    /// The payload of a full segment, in bytes.
    pub mss: u16,
    /// Bytes that may be on the way.
    pub window: u32,
    /// Bytes a second that may be sent, where it slows down by rate; else 0.
    pub rate: u64,
    /// Bytes on the way.
    pub in_flight: u32,
    /// Bytes that the peer has room for.
    pub peer_window: u32,
    /// Bytes that have come and that the program has no room for.
    pub unread: u32,
    /// Bytes that the program has sent and that are not acknowledged.
    pub unacked: u32,
    /// Bytes that were acknowledged since the beginning.
    pub delivered: u64,
    /// Of these, those whose acknowledgement echoed congestion.
    pub marked: u64,
    /// Losses that duplicates or SACK showed; timeouts; questions to a silent peer or a closed
    /// window.
    pub again: [u32; 3],
    /// Agreed on: timestamps, SACK, ECN.
    pub agreed: [bool; 3],
}

/// The report of a wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wires {
    /// Its connections.
    pub flows: Vec<Wired>,
    /// Programs, and how many connections each did not get because of its limits.
    pub refused: Vec<(u64, u64)>,
}

impl Wired {
    /// Its state's name.
    pub fn state(&self) -> &'static str {
        STATES.get(usize::from(self.state)).copied().unwrap_or("?")
    }

    /// The name of how it slows down.
    pub fn control(&self) -> &'static str {
        CONTROLS.get(usize::from(self.control)).copied().unwrap_or("?")
    }
}
