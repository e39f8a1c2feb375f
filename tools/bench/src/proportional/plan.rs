//! The words between the two programs, and the plan of who is there when.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::args::ProportionalArgs;
use crate::rpc::choices::{Api, Wait, Way};
use crate::rpc::plan;

/// The orders of both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Clients at most.
    pub clients: usize,
    /// Connections of each.
    pub connections: usize,
    /// Requests of each in a second.
    pub rate: usize,
    /// Bytes of a request, and of its answer.
    pub size: usize,
    /// Cycles of work of the server for each.
    pub work: u64,
    /// Lanes, or threads.
    pub lanes: usize,
    /// Between two changes.
    pub step: Duration,
    /// Between two samples.
    pub interval: Duration,
}

impl Plan {
    /// The plan that the options ask for.
    pub fn new(args: &ProportionalArgs, lanes: usize) -> Self {
        Self {
            clients: args.clients,
            connections: args.connections,
            rate: args.rate,
            size: args.size,
            work: args.work,
            lanes,
            // (Samples do not straddle a change.)
            step: args.step.max(args.interval),
            interval: args.interval.max(Duration::from_millis(10)),
        }
    }

    /// Steps: none is there, one, and so on, and back.
    pub fn steps(&self) -> usize {
        2 * self.clients + 1
    }

    /// Samples in a step.
    pub fn each(&self) -> usize {
        (self.step.as_secs_f64() / self.interval.as_secs_f64()).round().max(1.0) as usize
    }

    /// All samples.
    pub fn intervals(&self) -> usize {
        self.steps() * self.each()
    }

    /// Clients that are there in sample number `interval`.
    pub fn there(&self, interval: usize) -> usize {
        let step = interval / self.each();
        self.clients - self.clients.abs_diff(step)
    }

    /// The same for the servers of `uncopy-bench rpc`.
    pub fn of_rpc(&self) -> plan::Plan {
        plan::Plan {
            size: self.size,
            // (Those that are going are there for a moment while others come.)
            connections: (self.clients + 1) * self.connections,
            wait: Wait::Sleep,
            pipeline: 1,
            way: Way::Both,
            work: self.work,
            api: Api::Lanes,
            service: None,
        }
    }
}

/// The server's answer when it is asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Served {
    /// Lanes that run. None: it has threads.
    pub lanes: Option<usize>,
    /// How often lanes have gone to sleep so far.
    pub naps: u64,
}

/// The client's report after each interval.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Length of the interval.
    pub seconds: f64,
    /// Requests that were due.
    pub due: u64,
    /// Answers that came, and were right.
    pub answered: u64,
    /// Latency, from when a request was due: the median, us. 0: nothing was answered.
    pub p50_us: f64,
    /// The time that one in a hundred exceeds.
    pub p99_us: f64,
    /// Answers that were due and have not come yet, when it ended.
    pub waiting: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_come_one_after_the_other_and_go_again() {
        let plan = Plan {
            clients: 3,
            connections: 1,
            rate: 1,
            size: 64,
            work: 0,
            lanes: 1,
            step: Duration::from_secs(1),
            interval: Duration::from_millis(500),
        };
        let there: Vec<usize> = (0..plan.intervals()).map(|i| plan.there(i)).collect();
        assert_eq!(there, [0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 1, 1, 0, 0]);
    }
}
