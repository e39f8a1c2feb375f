//! The words between the two programs and the bench: what they are told, and what they tell.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::choices::{Api, Wait, Way};

/// The orders of both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes of a request.
    pub size: usize,
    /// Connections.
    pub connections: usize,
    /// How to wait.
    pub wait: Wait,
    /// Requests that are sent at once.
    pub pipeline: usize,
    /// Which way they go.
    pub way: Way,
    /// Cycles of work for each.
    pub work: u64,
    /// The API that is called.
    pub api: Api,
    /// The service whose rings are used, where the program itself uses them. None: Linux.
    pub service: Option<String>,
}

impl Plan {
    /// Bytes that are sent at once.
    pub fn message(&self) -> usize {
        self.size * self.pipeline
    }

    /// One connection whose messages surely fit into whatever carries them is served by calls that
    /// wait for just it. More, and larger ones, are served from an epoll set.
    pub fn is_alone(&self) -> bool {
        self.way == Way::Both && self.connections == 1 && self.message() <= 64 << 10
    }
}

/// Connections to one address: far fewer than there are ports to come from. (Once half of them are
/// in use, Linux tries thousands for each connection: 2.6 ms at 15,000.)
pub const EACH_ADDRESS: usize = 4096;

/// The server's first line: where it listens. Every address takes so many connections
/// ([`EACH_ADDRESS`]).
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The addresses.
    pub addresses: Vec<SocketAddr>,
}

/// The client's first line, when all connections are open; and the server's second.
#[derive(Serialize, Deserialize)]
pub struct Ready {
    /// Connections.
    pub connections: usize,
}

/// The orders to the client, a line each.
#[derive(Serialize, Deserialize)]
pub enum Order {
    /// Load for so many seconds; forget what was measured before, if so.
    Turn {
        /// How long.
        seconds: f64,
        /// A new beginning.
        anew: bool,
    },
    /// Tell what came of all turns.
    Tell,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Turned {
    /// Answers that were complete and right.
    pub rpcs: u64,
    /// Seconds.
    pub seconds: f64,
}

/// The result of all turns.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RpcSummary {
    /// Answers that were compared, those before the first turn too.
    pub verified: u64,
    /// Median latency.
    pub p50_us: f64,
    /// Latency that one in a hundred exceeds.
    pub p99_us: f64,
    /// Of the time of who sends what nobody answers, the share in which it waited for who receives.
    #[serde(default)]
    pub waited_share: Option<f64>,
}
