//! Rows of `bench rpc`: from single measurements to medians and JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::args::{Api, Wait, Wire};
use super::pair::Sample;
use super::plan::Plan;
use crate::Outcome;
use crate::bench::side::Side;
use crate::bench::stats::{median, quotient, round, spread};

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
    /// What connects the two programs.
    pub wire: Wire,
    /// Connections.
    pub connections: usize,
    /// Bytes of a request, and of its answer.
    pub size: usize,
    /// How both wait.
    pub wait: Wait,
    /// Requests that are sent at once.
    pub pipeline: usize,
    /// Cycles of work for each.
    pub work: u64,
    /// What is called.
    pub api: Api,
    /// Medians over Linux' loopback.
    pub linux: Numbers,
    /// The same once more: what it differs by is noise.
    pub again: Compared,
    /// Medians over the wire.
    pub uncopy: Numbers,
    /// RPCs a second, uncopy over Linux.
    pub ratio: f64,
    /// Smallest and largest of the single times.
    pub ratio_spread: [f64; 2],
    /// Processor time of both ends for an RPC, Linux over uncopy.
    pub cpu_ratio: f64,
    /// Smallest and largest of the single times.
    pub cpu_ratio_spread: [f64; 2],
    /// Answers that were compared, on all sides: all there were.
    pub verified: u64,
}

/// What is measured on every side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Numbers {
    /// RPCs a second.
    pub rpc_per_s: f64,
    /// Processor time of both ends for one.
    pub cpu_us_per_rpc: f64,
    /// Median latency.
    pub p50_us: f64,
    /// Latency that one in a hundred exceeds.
    pub p99_us: f64,
}

/// A side beside Linux.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// What was measured.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// Its RPCs a second over the first's.
    pub ratio: f64,
    /// The first's processor time of an RPC over its own.
    pub cpu_ratio: f64,
}

/// The measurements of one row.
#[derive(Default)]
pub struct Samples(BTreeMap<Side, Vec<Sample>>);

impl Samples {
    /// Another one of `side`.
    pub fn add(&mut self, side: Side, sample: Sample) {
        self.0.entry(side).or_default().push(sample);
    }

    fn of(&self, side: Side) -> &[Sample] {
        self.0.get(&side).map_or(&[], Vec::as_slice)
    }

    /// Medians.
    pub fn row(&self, plan: &Plan, wire: Wire) -> Outcome<Row> {
        let numbers = |side: Side| {
            let of = |pick: fn(&Sample) -> f64, digits| {
                round(median(self.of(side).iter().map(pick)), digits)
            };
            Numbers {
                rpc_per_s: of(|s| s.rpc_per_s, 1),
                cpu_us_per_rpc: of(|s| s.cpu_us_per_rpc, 4),
                p50_us: of(|s| s.told.p50_us, 2),
                p99_us: of(|s| s.told.p99_us, 2),
            }
        };
        let pairs = |of: fn(&Sample, &Sample) -> f64| {
            let plain = self.of(Side::Plain).iter();
            spread(plain.zip(self.of(Side::Uncopy)).map(|(plain, uncopy)| of(plain, uncopy)), 3)
        };
        let [linux, again, uncopy] = [Side::Plain, Side::Again, Side::Uncopy].map(numbers);
        let rate =
            |than: &Numbers, own: &Numbers| round(quotient(own.rpc_per_s, than.rpc_per_s), 3);
        let cpu = |than: &Numbers, own: &Numbers| {
            round(quotient(than.cpu_us_per_rpc, own.cpu_us_per_rpc), 3)
        };
        Ok(Row {
            wire,
            connections: plan.connections,
            size: plan.size,
            wait: plan.wait,
            pipeline: plan.pipeline,
            work: plan.work,
            api: plan.api,
            again: Compared {
                ratio: rate(&linux, &again),
                cpu_ratio: cpu(&linux, &again),
                numbers: again,
            },
            ratio: rate(&linux, &uncopy),
            ratio_spread: pairs(|plain, uncopy| quotient(uncopy.rpc_per_s, plain.rpc_per_s)),
            cpu_ratio: cpu(&linux, &uncopy),
            cpu_ratio_spread: pairs(|plain, uncopy| {
                quotient(plain.cpu_us_per_rpc, uncopy.cpu_us_per_rpc)
            }),
            verified: self.0.values().flatten().map(|s| s.told.verified).sum(),
            linux,
            uncopy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Told;
    use super::*;

    #[test]
    fn ratios_above_one_are_gains() {
        let mut samples = Samples::default();
        for (side, rpc_per_s, cpu_us_per_rpc) in
            [(Side::Plain, 100.0, 10.0), (Side::Again, 110.0, 9.0), (Side::Uncopy, 400.0, 2.0)]
        {
            for i in 0..3 {
                let told = Told { verified: 5, p50_us: 1.0, p99_us: 2.0 };
                let rpc_per_s = rpc_per_s * (1.0 + f64::from(i) / 10.0);
                samples.add(side, Sample { rpc_per_s, cpu_us_per_rpc, told });
            }
        }
        let plan = Plan {
            size: 64,
            connections: 1,
            wait: Wait::Spin,
            pipeline: 1,
            work: 0,
            api: Api::Rings,
            service: None,
        };
        let row = samples.row(&plan, Wire::Shared).unwrap();
        assert_eq!((row.ratio, row.cpu_ratio, row.verified), (4.0, 5.0, 45));
        assert_eq!((row.again.ratio, row.again.cpu_ratio), (1.1, 1.111));
        assert_eq!((row.linux.rpc_per_s, row.ratio_spread), (110.0, [4.0, 4.0]));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(
            (&json["wire"], &json["wait"], &json["api"]),
            (&"shared".into(), &"spin".into(), &"rings".into())
        );
    }
}
