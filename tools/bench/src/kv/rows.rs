//! Rows of `uncopy-bench kv`.

use serde::{Deserialize, Serialize};
use uncopy_measure::side::Side;

use super::args::KvArgs;
use super::plan::{KvSummary, Load, PERCENTILES, Plan};
use crate::rpc::choices::{Api, Wait};
use crate::rpc::rows::{self, Samples};

/// See there.
pub type Row = rows::Row<Parameters, Latencies>;

/// One combination of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
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
    /// The API that is called.
    pub api: Api,
}

/// The other figures of a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latencies {
    /// Latency that one in ten exceeds.
    pub p90_us: f64,
    /// Latency that one in a thousand exceeds.
    pub p999_us: f64,
    /// The distribution of latencies: so many of a hundred are no longer than so many us.
    pub cdf: Vec<[f64; 2]>,
}

/// Medians.
pub fn row(plan: &Plan, args: &KvArgs, samples: &Samples<KvSummary>) -> Row {
    let of = Parameters {
        load: plan.load,
        keys: plan.keys,
        sets: plan.sets,
        connections: plan.base.connections,
        wait: plan.base.wait,
        api: args.pairs.api,
    };
    samples.row(of, plan.base.connections, |side: Side| {
        let latency = |p: f64| samples.median(side, 2, |s| s.told.latency(p));
        Latencies {
            p90_us: latency(90.0),
            p999_us: latency(99.9),
            cdf: PERCENTILES.map(|p| [p, latency(p)]).to_vec(),
        }
    })
}
