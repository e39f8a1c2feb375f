//! The orders of an echo server, and its reports: the words between it and the bench.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the copy buffers are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// malloc, once for a connection.
    #[default]
    Malloc,
    /// posix_memalign on a page's boundary, once for a connection.
    Aligned,
    /// malloc and free for every message (the receive buffer stays).
    Fresh,
}

/// Which buffers of a message are touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Touched {
    /// The one received into, before it is copied, and the last copy.
    #[default]
    Both,
    /// The last copy (without copies, the one received into).
    Last,
}

/// Which copies are read as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    /// None.
    #[default]
    None,
    /// The one that is sent back.
    Last,
    /// Each, when it has been made.
    Every,
}

/// The work of the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes in a message.
    pub size: usize,
    /// Copies made of every message.
    pub copies: usize,
    /// Connections that will be opened.
    pub connections: usize,
    /// Pages of every message that are read and written back.
    pub touch_pages: usize,
    /// The buffers whose pages are touched.
    pub touched: Touched,
    /// Whether other ones in each message.
    pub touch_moving: bool,
    /// Copies of which every byte is read.
    pub checksum: Checksum,
    /// How the copy buffers are allocated.
    pub allocation: Allocation,
    /// Core of each thread.
    pub cores: Vec<usize>,
}

/// First line of the server's output.
#[derive(Serialize, Deserialize)]
pub struct Hello {
    /// The port of 127.0.0.1 on which it listens.
    pub port: u16,
}

/// Where buffers lie within the page: it decides what copying and receiving cost on some
/// processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Places {
    /// The offset of the buffer that is received into.
    pub received_at: usize,
    /// From each source to its destination, modulo the page, in the order of the copies. (None
    /// where copies are allocated anew for each message.)
    pub distances: Vec<usize>,
}

/// Answer to each line on the server's input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// User and system time of the process so far.
    pub cpu_ns: u64,
    /// Resident memory now.
    pub rss_kb: u64,
    /// Where the first connection's buffers lie.
    pub places: Places,
    /// The library's counters; none if it is not loaded.
    pub counters: Option<BTreeMap<String, u64>>,
}
