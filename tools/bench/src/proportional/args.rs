//! Options of `uncopy-bench proportional`.

use std::path::PathBuf;
use std::time::Duration;

use uncopy_measure::values::{positive, seconds, size};

/// Options of `uncopy-bench proportional`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProportionalArgs {
    /// Clients at most: they come one after the other, and go again
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    pub clients: usize,
    /// Connections of each
    #[arg(long, value_name = "N", default_value = "16", value_parser = positive)]
    pub connections: usize,
    /// Requests that each sends in a second, whether others are answered or not
    #[arg(long, value_name = "N", default_value = "6000", value_parser = positive)]
    pub rate: usize,
    /// Bytes of a request, and of its answer
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = size)]
    pub size: usize,
    /// Cycles that the server works for each request
    #[arg(long, value_name = "N", default_value = "60000")]
    pub work: u64,
    /// Lanes of uncopy's server, and threads of Linux', at most [default: as many as there are
    /// cores]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub lanes: Option<usize>,
    /// After so long one client comes, or goes
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub step: Duration,
    /// A row for each interval of this length
    #[arg(long, value_name = "SECONDS", default_value = "0.2", value_parser = seconds)]
    pub interval: Duration,
    /// Times that each server is measured, the servers in turns; medians are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    pub repeats: usize,
    /// Directory for pictures
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-proportional")]
    pub out: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
