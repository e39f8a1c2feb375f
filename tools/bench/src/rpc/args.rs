//! Options of `uncopy-bench rpc`.

use uncopy_measure::values::{positive, size};

use super::choices::{Way, Wire};
use crate::events::PairArgs;

/// Options of `uncopy-bench rpc`.
#[derive(Clone, Debug, clap::Args)]
pub struct RpcArgs {
    /// What connects the two programs
    #[arg(long, value_enum, default_value = "shared")]
    pub wire: Wire,
    /// Connections, each with one message (or --pipeline of them) under way
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,64,1000",
        value_parser = positive,
    )]
    pub connections: Vec<usize>,
    /// Bytes of a request, and of its answer
    #[arg(
        long,
        visible_alias = "sizes",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "64",
        value_parser = size,
    )]
    pub size: Vec<usize>,
    /// Requests that are sent at once, and answered before the next
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    pub pipeline: usize,
    /// Which way requests go. One way: as many as fit are under way on each connection
    #[arg(long, value_enum, default_value = "both")]
    pub way: Way,
    /// Cycles that the server works for each request
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0")]
    pub work: Vec<u64>,
    /// Leave Linux' side out, whose numbers are zeros then: it needs a descriptor for each
    /// connection, which lanes over AF_XDP and TAP do not
    #[arg(long)]
    pub only_uncopy: bool,
    #[command(flatten)]
    pub pairs: PairArgs,
}
