//! The words between the two programs: what they are told, and what they tell.

use serde::{Deserialize, Serialize};

use crate::events::Base;
use crate::rpc::rows::Summarized;

/// The orders of both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The common part of all plans.
    pub base: Base,
    /// Requests of a connection.
    pub rpcs: usize,
    /// Bytes of a request, and of its answer.
    pub size: usize,
}

impl AsMut<Base> for Plan {
    fn as_mut(&mut self) -> &mut Base {
        &mut self.base
    }
}

/// The result of all turns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShortSummary {
    /// Answers that were compared, those before the first turn too.
    pub verified: u64,
    /// Connections that were made and ended, likewise.
    pub connections: u64,
    /// The median time of a request.
    pub p50_us: f64,
    /// The time that one request in a hundred exceeds.
    pub p99_us: f64,
    /// Median of the time from the call that begins a connection until it is there. None: none was
    /// made.
    pub connect_p50_us: Option<f64>,
}

impl Summarized for ShortSummary {
    fn verified(&self) -> u64 {
        self.verified
    }

    fn p50_us(&self) -> f64 {
        self.p50_us
    }

    fn p99_us(&self) -> f64 {
        self.p99_us
    }
}
