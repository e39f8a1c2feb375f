//! The words between the two programs: what they are told, and what they tell.

use serde::{Deserialize, Serialize};

use crate::events::Base;
use crate::rpc::rows::Summarized;

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Many, the most popular most often (zipf, s = 0.9): keys of 32 bytes, values of 64
    Zipf,
    /// One: 4 bytes, as its value
    Hot,
}

impl Load {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zipf => "zipf",
            Self::Hot => "hot",
        }
    }

    /// Bytes of a key, and of a value.
    pub fn sizes(self) -> (usize, usize) {
        match self {
            Self::Zipf => (32, 64),
            Self::Hot => (4, 4),
        }
    }
}

/// The orders of both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The common part of all plans.
    pub base: Base,
    /// Which keys are asked for.
    pub load: Load,
    /// Pairs.
    pub keys: usize,
    /// Requests of a hundred that set a value.
    pub sets: u32,
}

impl AsMut<Base> for Plan {
    fn as_mut(&mut self) -> &mut Base {
        &mut self.base
    }
}

/// The result of all turns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KvSummary {
    /// Answers that were compared, those before the first turn too.
    pub verified: u64,
    /// The latencies that so many of a hundred do not exceed: [`PERCENTILES`], us.
    pub latency_us: Vec<f64>,
}

/// Of latencies: the points of their distribution. The last is the maximum.
pub const PERCENTILES: [f64; 15] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.9, 100.0];

impl KvSummary {
    /// One of [`PERCENTILES`].
    pub fn latency(&self, percentile: f64) -> f64 {
        let at = PERCENTILES.iter().position(|p| *p == percentile).expect("one of these");
        self.latency_us.get(at).copied().unwrap_or_default()
    }
}

impl Summarized for KvSummary {
    fn verified(&self) -> u64 {
        self.verified
    }

    fn p50_us(&self) -> f64 {
        self.latency(50.0)
    }

    fn p99_us(&self) -> f64 {
        self.latency(99.0)
    }
}
