//! Options of `uncopy-bench echo`, which the paper's figures set too.

use std::path::PathBuf;
use std::time::Duration;

use super::plan::{Allocation, Checksum, Touched};
use crate::pace::TIMES;
use crate::side::Side;
use crate::values::{defaults, positive, seconds, size};

/// Options of `bench echo`.
#[derive(Clone, Debug, clap::Args)]
pub struct EchoArgs {
    /// Message sizes
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "512K",
        value_parser = size,
    )]
    pub sizes: Vec<usize>,
    /// Copies that the server makes of every message
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,1,4,12")]
    pub copies: Vec<usize>,
    /// Connections, each with one message under way
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "16",
        value_parser = positive,
    )]
    pub connections: Vec<usize>,
    /// Threads of the server
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1",
        value_parser = positive,
    )]
    pub threads: Vec<usize>,
    /// Pages of every message that the server reads and writes back
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0")]
    pub touch_pages: Vec<usize>,
    /// In which buffers it touches them
    #[arg(long, value_enum, default_value = "both")]
    pub touched: Touched,
    /// Touch other pages in each message, so that none is known beforehand
    #[arg(long)]
    pub touch_moving: bool,
    /// Copies whose every byte the server reads and sums up (without copies, the message's own);
    /// copies with different sums end it
    #[arg(long, value_enum, default_value = "none")]
    pub checksum: Checksum,
    /// How the server allocates its copies
    #[arg(long, value_enum, default_value = "malloc")]
    pub alloc: Allocation,
    /// Times that fresh servers, one of each side, are measured side by side; medians are shown
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    pub repeats: usize,
    /// Timed load on each of them, in short turns
    #[arg(long, value_name = "SECONDS", default_value = "1.5", value_parser = seconds)]
    pub seconds: Duration,
    /// Load on each of them before that: buffers grow, and uncopy's call sites learn; 0 shows what
    /// learning costs
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub warmup: Duration,
    /// Random messages on each connection that are compared byte by byte before each window, and
    /// as many after it
    #[arg(long, value_name = "N", default_value = "3")]
    pub verify: usize,
    /// Core of the server's first thread [default: the first one]
    #[arg(long, value_name = "CORE")]
    pub server_core: Option<usize>,
    /// Core of the load generator [default: the second one]
    #[arg(long, value_name = "CORE")]
    pub load_core: Option<usize>,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Options of the library, as environment variables of the uncopy side.
    #[arg(skip)]
    pub environment: Vec<(&'static str, &'static str)>,
    /// Whether to measure rows without copies where no listed one says the most that elision could
    /// gain.
    #[arg(skip = true)]
    pub most: bool,
    /// The sides that are compared; plain, plain again and uncopy are always among them.
    #[arg(skip = Side::ALL.to_vec())]
    pub sides: Vec<Side>,
    /// Time for all rows: repeats are dropped, and windows shortened, to stay within it.
    #[arg(skip)]
    pub allowed: Option<Duration>,
}

impl Default for EchoArgs {
    fn default() -> Self {
        defaults()
    }
}

impl EchoArgs {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        [&self.sizes, &self.connections, &self.threads, &self.touch_pages, &self.copies]
            .map(Vec::len)
            .into_iter()
            .product()
    }

    /// With no more load before the timing than half of a row's time, all sides' and repeats'
    /// together, where that is bounded.
    pub fn within_budget(&self) -> Self {
        let Some(allowed) = self.allowed else { return self.clone() };
        let most = allowed / (2 * TIMES * self.sides.len() * self.rows().max(1)) as u32;
        Self { warmup: self.warmup.min(most), ..self.clone() }
    }
}
