//! Rows of `bench kv`.

use serde::{Deserialize, Serialize};

use super::args::KvArgs;
use super::plan::{Load, PERCENTILES, Plan, Told};
use crate::bench::rpc::args::{Api, Wait};
use crate::bench::rpc::rows::{Common, Compared, Numbers, Ratios, Samples};
use crate::bench::side::Side;

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
    /// Which keys are asked for.
    pub load: Load,
    /// Pairs.
    pub keys: usize,
    /// Requests of a hundred that set a value.
    pub sets: u32,
    /// Connections.
    pub connections: usize,
    /// How both wait.
    pub wait: Wait,
    /// What is called.
    pub api: Api,
    /// Over Linux' loopback.
    pub linux: Measured,
    /// The same once more: what it differs by is noise.
    pub again: Compared,
    /// Over rings.
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
    /// Latency that one in ten exceeds.
    pub p90_us: f64,
    /// Latency that one in a thousand exceeds.
    pub p999_us: f64,
    /// The distribution of latencies: so many of a hundred are no longer than so many us.
    pub cdf: Vec<[f64; 2]>,
}

impl Row {
    /// Medians.
    pub fn of(plan: &Plan, args: &KvArgs, samples: &Samples<Told>) -> Self {
        let Common { linux, again, uncopy, ratios, verified } =
            samples.common(plan.base.connections);
        let with = |side: Side, numbers: Numbers| {
            let latency = |p: f64| samples.median(side, 2, |s| s.told.latency(p));
            Measured {
                numbers,
                p90_us: latency(90.0),
                p999_us: latency(99.9),
                cdf: PERCENTILES.map(|p| [p, latency(p)]).to_vec(),
            }
        };
        Self {
            load: plan.load,
            keys: plan.keys,
            sets: plan.sets,
            connections: plan.base.connections,
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
