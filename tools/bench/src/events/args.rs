//! Options of all benches of pairs of programs.

use std::path::PathBuf;
use std::time::Duration;

use uncopy_measure::values::{positive, seconds};

use crate::rpc::choices::{Api, Wait};

/// See above.
#[derive(Clone, Debug, clap::Args)]
pub struct PairArgs {
    /// How both ends wait for bytes, with and without uncopy
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "spin,sleep"
    )]
    pub wait: Vec<Wait>,
    /// What both programs call
    #[arg(long, value_enum, default_value = "sockets")]
    pub api: Api,
    /// Times that fresh pairs of programs, one of each side, are measured side by side; medians are
    /// shown
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

impl PairArgs {
    /// How it was measured, and on what; so many answers were compared.
    pub fn notes(&self, verified: u64) -> String {
        let calls = match self.api {
            Api::Sockets => {
                "Both programs call sockets and epoll, with libuncopy.so in front and \
                 UNCOPY_TCP=yes on uncopy's side."
            }
            Api::Rings | Api::Lanes => {
                "On uncopy's side both programs use the low-level API over rings, on Linux' side \
                 over sockets and epoll."
            }
        };
        format!(
            "Medians of {} times fresh pairs of processes, {} s each in short turns after {} s of \
             load. {calls}\n\
             Ratios: above 1 is a gain. again: a second pair over Linux, whose difference is \
             noise. CPU: user and system time of\n\
             both processes, and of uncopy's service, us for an RPC. Where both spin, each has a \
             core of its own, and calls on Linux' side do not wait.\n\
             Processor: {}. All {} answers were compared, and right.\n",
            self.repeats,
            self.seconds.as_secs_f64(),
            self.warmup.as_secs_f64(),
            uncopy_measure::machine::Machine::own().cpu,
            uncopy_measure::units::grouped(verified),
        )
    }
}
