//! Options of `uncopy-bench kv`.

use uncopy_measure::values::positive;

use super::plan::Load;
use crate::events::PairArgs;

/// Options of `uncopy-bench kv`.
#[derive(Clone, Debug, clap::Args)]
pub struct KvArgs {
    /// Which keys are asked for
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "zipf,hot"
    )]
    pub load: Vec<Load>,
    /// Connections, each with one request under way
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "64",
        value_parser = positive,
    )]
    pub connections: Vec<usize>,
    /// Pairs in the store (not for a hot key)
    #[arg(long, value_name = "N", default_value = "100000", value_parser = positive)]
    pub keys: usize,
    /// Requests of a hundred that set a value; the others get one
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "10",
        value_parser = clap::value_parser!(u32).range(0..=100),
    )]
    pub sets: u32,
    #[command(flatten)]
    pub pairs: PairArgs,
}
