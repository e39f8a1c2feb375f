//! Options of `uncopy-bench relay`.

use std::path::PathBuf;
use std::time::Duration;

use uncopy_measure::values::{positive, seconds, size};

use super::plan::Touch;

/// See above.
#[derive(Clone, Debug, clap::Args)]
pub struct RelayArgs {
    /// Relays between the source and the sink
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,1,3")]
    pub hops: Vec<usize>,
    /// Bytes of a message
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "64,64K,1M",
        value_parser = size,
    )]
    pub sizes: Vec<usize>,
    /// What the sink looks at: every byte, or those of one message in 256
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "none,all"
    )]
    pub touch: Vec<Touch>,
    /// Copies that each relay makes of a message before it sends the last one on
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0")]
    pub copies: Vec<usize>,
    /// Times that fresh chains of programs, one of each side, are measured side by side; medians
    /// are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    pub repeats: usize,
    /// Timed load on each of them, in short turns
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub seconds: Duration,
    /// Load on each before that, not timed
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = seconds)]
    pub warmup: Duration,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
