//! Rows of `uncopy-bench rpc`: from single measurements to medians and JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uncopy_measure::facts::Facts;
use uncopy_measure::medians::{median, quotient, round, spread};
use uncopy_measure::side::Side;

use super::choices::{Api, Wait, Way, Wire};
use super::pair::Sample;
use super::plan::{Plan, RpcSummary};

/// One combination of parameters, and what is measured of each side besides what always is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row<P = Parameters, B = Limit> {
    /// The parameters.
    #[serde(flatten)]
    pub of: P,
    /// Medians over Linux' loopback.
    pub linux: Measured<B>,
    /// The same once more: what it differs by is noise.
    pub again: Compared,
    /// Medians under uncopy.
    pub uncopy: Measured<B>,
    /// Both.
    #[serde(flatten)]
    pub ratios: Ratios,
    /// Answers that were compared, on all sides: all there were.
    pub verified: u64,
    /// The facts of each side.
    pub sides: BTreeMap<String, Facts>,
}

/// The figures of a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured<B> {
    /// The figures of every mode.
    #[serde(flatten)]
    pub numbers: RpcFigures,
    /// The figures of this mode.
    #[serde(flatten)]
    pub besides: B,
}

/// Besides: where nobody answers, who is the limit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// The share of the time in which the client waited for the server: where it is near 0, the
    /// client is what limits, and not the server that receives.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waited_share: Option<f64>,
}

/// Those of `uncopy-bench rpc`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// The wire between the two programs.
    pub wire: Wire,
    /// Connections.
    pub connections: usize,
    /// Bytes of a request, and of its answer.
    pub size: usize,
    /// How both wait.
    pub wait: Wait,
    /// Requests that are sent at once.
    pub pipeline: usize,
    /// Which way they go.
    pub way: Way,
    /// Cycles of work for each.
    pub work: u64,
    /// The API that is called.
    pub api: Api,
}

/// uncopy beside Linux.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ratios {
    /// RPCs a second, uncopy over Linux.
    pub ratio: f64,
    /// Smallest and largest of the single times.
    pub ratio_spread: [f64; 2],
    /// Processor time of both ends for an RPC, Linux over uncopy.
    pub cpu_ratio: f64,
    /// Smallest and largest of the single times.
    pub cpu_ratio_spread: [f64; 2],
}

/// Figures that are measured on every side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RpcFigures {
    /// RPCs a second.
    pub rpc_per_s: f64,
    /// Processor time of both ends for one, and of uncopy's service.
    pub cpu_us_per_rpc: f64,
    /// Of it, the service's.
    pub service_us_per_rpc: f64,
    /// Median latency.
    pub p50_us: f64,
    /// Latency that one in a hundred exceeds.
    pub p99_us: f64,
    /// Memory of both programs, for each connection: of what they are for so few connections,
    /// mostly their own. The kernel's is not in it.
    pub memory_per_connection: f64,
}

/// A side beside Linux.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// The figures.
    #[serde(flatten)]
    pub numbers: RpcFigures,
    /// Its RPCs a second over the first's.
    pub ratio: f64,
    /// The first's processor time of an RPC over its own.
    pub cpu_ratio: f64,
}

impl Compared {
    /// Beside this.
    fn with(linux: &RpcFigures, numbers: RpcFigures) -> Self {
        Self {
            ratio: round(quotient(numbers.rpc_per_s, linux.rpc_per_s), 3),
            cpu_ratio: round(quotient(linux.cpu_us_per_rpc, numbers.cpu_us_per_rpc), 3),
            numbers,
        }
    }
}

/// A pair's report of itself.
pub trait Summarized {
    /// Answers that were compared.
    fn verified(&self) -> u64;
    /// Median latency, us.
    fn p50_us(&self) -> f64;
    /// Latency that one in a hundred exceeds.
    fn p99_us(&self) -> f64;
}

impl Summarized for RpcSummary {
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

/// The measurements of one row.
pub struct Samples<T = RpcSummary>(BTreeMap<Side, Vec<Sample<T>>>);

impl<T> Default for Samples<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Summarized> Samples<T> {
    /// Another one of `side`.
    pub fn add(&mut self, side: Side, sample: Sample<T>) {
        self.0.entry(side).or_default().push(sample);
    }

    /// Those of `side`.
    pub fn of(&self, side: Side) -> &[Sample<T>] {
        self.0.get(&side).map_or(&[], Vec::as_slice)
    }

    /// The median of what `pick` says of a side's.
    pub fn median(&self, side: Side, digits: i32, pick: impl Fn(&Sample<T>) -> f64) -> f64 {
        round(median(self.of(side).iter().map(pick)), digits)
    }

    fn sides(&self) -> BTreeMap<String, Facts> {
        let names = [("linux", Side::Plain), ("again", Side::Again), ("uncopy", Side::Uncopy)];
        let of = |(name, side): (&str, Side)| {
            let sample = self.of(side).first()?;
            let mut facts = sample.facts.clone();
            facts.insert("answers compared".into(), (sample.told.verified() > 0).to_string());
            Some((name.to_owned(), facts))
        };
        names.into_iter().filter_map(of).collect()
    }

    /// Medians and ratios, over so many connections; `besides` picks what else there is of a side.
    pub fn row<P, B>(&self, of: P, connections: usize, besides: impl Fn(Side) -> B) -> Row<P, B> {
        let numbers = |side: Side| RpcFigures {
            rpc_per_s: self.median(side, 1, |s| s.rpc_per_s),
            cpu_us_per_rpc: self.median(side, 4, |s| s.cpu_us_per_rpc),
            service_us_per_rpc: self.median(side, 4, |s| s.service_us_per_rpc),
            p50_us: self.median(side, 2, |s| s.told.p50_us()),
            p99_us: self.median(side, 2, |s| s.told.p99_us()),
            memory_per_connection: self
                .median(side, 0, |s| quotient(s.memory as f64, connections as f64)),
        };
        let pairs = |of: fn(&Sample<T>, &Sample<T>) -> f64| {
            let plain = self.of(Side::Plain).iter();
            spread(plain.zip(self.of(Side::Uncopy)).map(|(plain, uncopy)| of(plain, uncopy)), 3)
        };
        let [linux, again, uncopy] = [Side::Plain, Side::Again, Side::Uncopy].map(numbers);
        let compared = Compared::with(&linux, uncopy);
        Row {
            of,
            again: Compared::with(&linux, again),
            ratios: Ratios {
                ratio: compared.ratio,
                ratio_spread: pairs(|plain, uncopy| quotient(uncopy.rpc_per_s, plain.rpc_per_s)),
                cpu_ratio: compared.cpu_ratio,
                cpu_ratio_spread: pairs(|plain, uncopy| {
                    quotient(plain.cpu_us_per_rpc, uncopy.cpu_us_per_rpc)
                }),
            },
            sides: self.sides(),
            verified: self.0.values().flatten().map(|s| s.told.verified()).sum(),
            linux: Measured { numbers: linux, besides: besides(Side::Plain) },
            uncopy: Measured { numbers: uncopy, besides: besides(Side::Uncopy) },
        }
    }
}

impl Parameters {
    /// The parameters of a plan over this wire.
    pub fn of(plan: &Plan, wire: Wire) -> Self {
        Self {
            wire,
            connections: plan.connections,
            size: plan.size,
            wait: plan.wait,
            pipeline: plan.pipeline,
            way: plan.way,
            work: plan.work,
            api: plan.api,
        }
    }
}

/// For screens: numbers of which each is another one.
#[cfg(test)]
pub fn fixed<P, B: Clone>(of: P, besides: B, factor: f64) -> Row<P, B> {
    let numbers = |rpc_per_s: f64| RpcFigures {
        rpc_per_s,
        cpu_us_per_rpc: 1e6 / rpc_per_s,
        service_us_per_rpc: 0.0,
        p50_us: 2e6 / rpc_per_s,
        p99_us: 7e6 / rpc_per_s,
        memory_per_connection: 12_345.0,
    };
    let (linux, uncopy) = (numbers(70_000.0), numbers(70_000.0 * factor));
    let compared = Compared::with(&linux, uncopy);
    Row {
        of,
        again: Compared::with(&linux, numbers(71_000.0)),
        ratios: Ratios {
            ratio: compared.ratio,
            ratio_spread: [0.9 * factor, 1.1 * factor],
            cpu_ratio: compared.cpu_ratio,
            cpu_ratio_spread: [0.9 * factor, 1.1 * factor],
        },
        verified: 123_456,
        sides: BTreeMap::new(),
        linux: Measured { numbers: linux, besides: besides.clone() },
        uncopy: Measured { numbers: uncopy, besides },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_above_one_are_gains() {
        let mut samples = Samples::default();
        for (side, rpc_per_s, cpu_us_per_rpc) in
            [(Side::Plain, 100.0, 10.0), (Side::Again, 110.0, 9.0), (Side::Uncopy, 400.0, 2.0)]
        {
            for i in 0..3 {
                let told = RpcSummary { verified: 5, p50_us: 1.0, p99_us: 2.0, waited_share: None };
                let (service_us_per_rpc, facts) = (0.0, Facts::new());
                let rpc_per_s = rpc_per_s * (1.0 + f64::from(i) / 10.0);
                samples.add(
                    side,
                    Sample {
                        rpc_per_s,
                        cpu_us_per_rpc,
                        service_us_per_rpc,
                        facts,
                        memory: 1 << 20,
                        told,
                    },
                );
            }
        }
        let plan = Plan {
            size: 64,
            connections: 1,
            wait: Wait::Spin,
            pipeline: 1,
            way: Way::Both,
            work: 0,
            api: Api::Rings,
            service: None,
        };
        let row =
            samples.row(Parameters::of(&plan, Wire::Shared), 1, |_| Limit { waited_share: None });
        assert_eq!((row.ratios.ratio, row.ratios.cpu_ratio, row.verified), (4.0, 5.0, 45));
        assert_eq!((row.again.ratio, row.again.cpu_ratio), (1.1, 1.111));
        assert_eq!((row.linux.numbers.rpc_per_s, row.ratios.ratio_spread), (110.0, [4.0, 4.0]));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(
            (&json["wire"], &json["wait"], &json["api"]),
            (&"shared".into(), &"spin".into(), &"rings".into())
        );
    }
}
