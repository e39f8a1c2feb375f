//! Rows of `bench short`.

use serde::{Deserialize, Serialize};

use super::args::ShortArgs;
use super::plan::{Plan, Told};
use crate::bench::rpc::args::{Api, Wait};
use crate::bench::rpc::rows::{Common, Compared, Numbers, Ratios, Samples};
use crate::bench::side::Side;
use crate::bench::stats::{median, round};

/// What `--json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The mode's name.
    pub bench: String,
    /// One for each combination of parameters.
    pub rows: Vec<Row>,
}

/// One combination of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Requests of a connection.
    pub rpcs: usize,
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of a request, and of its answer.
    pub size: usize,
    /// How both wait.
    pub wait: Wait,
    /// What is called.
    pub api: Api,
    /// Over Linux' loopback.
    pub linux: Measured,
    /// The same once more: what it differs by is noise.
    pub again: Compared,
    /// Under uncopy.
    pub uncopy: Measured,
    /// Both.
    #[serde(flatten)]
    pub ratios: Ratios,
    /// Answers that were compared, on all sides: all there were.
    pub verified: u64,
}

/// What is measured on a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Medians.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// Median time until a connection is there. None: none was made while time was taken.
    pub connect_p50_us: Option<f64>,
    /// Connections that were made and ended.
    pub connections: u64,
}

impl Row {
    /// Medians.
    pub fn of(plan: &Plan, args: &ShortArgs, samples: &Samples<Told>) -> Self {
        let Common { linux, again, uncopy, ratios, verified } =
            samples.common(plan.base.connections);
        let with = |side: Side, numbers: Numbers| Measured {
            numbers,
            connect_p50_us: {
                let all: Vec<f64> =
                    samples.of(side).iter().filter_map(|s| s.told.connect_p50_us).collect();
                (!all.is_empty()).then(|| round(median(all), 2))
            },
            connections: samples.of(side).iter().map(|s| s.told.connections).sum(),
        };
        Self {
            rpcs: plan.rpcs,
            connections: plan.base.connections,
            size: plan.size,
            wait: plan.base.wait,
            api: args.events.api,
            linux: with(Side::Plain, linux),
            again,
            uncopy: with(Side::Uncopy, uncopy),
            ratios,
            verified,
        }
    }
}
