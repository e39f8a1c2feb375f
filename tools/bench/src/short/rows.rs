//! Rows of `uncopy-bench short`.

use serde::{Deserialize, Serialize};
use uncopy_measure::medians::{median, round};
use uncopy_measure::side::Side;

use super::args::ShortArgs;
use super::plan::{Plan, ShortSummary};
use crate::rpc::choices::{Api, Wait};
use crate::rpc::rows::{self, Samples};

/// See there.
pub type Row = rows::Row<Parameters, Connections>;

/// One combination of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Requests of a connection.
    pub rpcs: usize,
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of a request, and of its answer.
    pub size: usize,
    /// How both wait.
    pub wait: Wait,
    /// The API that is called.
    pub api: Api,
}

/// The other figures of a side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Connections {
    /// Median time until a connection is there. None: none was made while time was taken.
    pub connect_p50_us: Option<f64>,
    /// Connections that were made and ended.
    pub connections: u64,
}

/// Medians.
pub fn row(plan: &Plan, args: &ShortArgs, samples: &Samples<ShortSummary>) -> Row {
    let of = Parameters {
        rpcs: plan.rpcs,
        connections: plan.base.connections,
        size: plan.size,
        wait: plan.base.wait,
        api: args.pairs.api,
    };
    samples.row(of, plan.base.connections, |side: Side| {
        let all: Vec<f64> = samples.of(side).iter().filter_map(|s| s.told.connect_p50_us).collect();
        Connections {
            connect_p50_us: (!all.is_empty()).then(|| round(median(all), 2)),
            connections: samples.of(side).iter().map(|s| s.told.connections).sum(),
        }
    })
}
