//! Options of `uncopy-bench short`.

use uncopy_measure::values::{positive, size};

use crate::events::PairArgs;

/// Options of `uncopy-bench short`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShortArgs {
    /// Requests, one after the other, after which a connection is closed and made anew
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,64,256",
        value_parser = positive,
    )]
    pub rpcs: Vec<usize>,
    /// Connections at a time, each with one request under way
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1024",
        value_parser = positive,
    )]
    pub connections: Vec<usize>,
    /// Bytes of a request, and of its answer
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = size)]
    pub size: usize,
    #[command(flatten)]
    pub pairs: PairArgs,
}
