//! Figures 3.11 and 3.12 of Stamler's dissertation (3.3.5): what it says of its simulations, and
//! what it leaves open and we chose.

use crate::port::Link;
use crate::results::{PACKET, Series};
use crate::sender::Sender;
use crate::simulation::{Impossible, Setup, run};
use crate::topology::{FatTree, One, Topology};
use crate::traffic::{Pareto, across, on_off};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use uncopy_tcp_proto::Algorithm;

const GBIT: u64 = 1_000_000_000;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

/// Pareto's distribution, bounded: nine of ten flows have less than 67 KB, and the largest tenth
/// has more than half of all bytes.
const SIZES: Pareto = Pareto { shape: 1.2, least: 10e3, most: 10e6 };
/// DCTCP's threshold at 10 Gbit/s (Alizadeh et al., SIGCOMM 2010, 3.5), and the dissertation's
/// switch's (3.3).
const MARK: u64 = 65 * PACKET;
/// Room of a port at 10 Gbit/s.
const ROOM: u64 = 1000 * PACKET;
/// Bytes on a link for a byte of payload.
const OVERHEAD: f64 = PACKET as f64 / 1448.0;

/// Which figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A single link: completion times and queue over the control interval.
    SingleLink,
    /// A large cluster: completion times by size.
    Cluster,
}

/// A parameter that it was run with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
    /// The dissertation says so; else it is our choice.
    pub given: bool,
}

/// All results of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Its number.
    pub figure: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// A parameter that it was run with.
    pub parameters: Vec<Parameter>,
    /// Its series.
    pub series: Vec<Series>,
}

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// Nanoseconds in which flows that count begin.
    pub time: u64,
    /// Pods of the fat tree.
    pub pods: u32,
}

impl Figure {
    /// All of it: as much as one core simulates in a few minutes.
    pub fn whole(self) -> Extent {
        match self {
            Figure::SingleLink => Extent { time: 2000 * MILLISECOND, pods: 0 },
            Figure::Cluster => Extent { time: 20 * MILLISECOND, pods: 8 },
        }
    }

    /// Its number.
    pub fn number(self) -> &'static str {
        match self {
            Figure::SingleLink => "3.11",
            Figure::Cluster => "3.12",
        }
    }

    /// How many runs it consists of.
    pub fn runs(self) -> usize {
        self.senders().len()
    }

    /// The senders that are compared, by name.
    fn senders(self) -> Vec<(String, Sender)> {
        let core = |us: u64| Sender::Core {
            algorithm: Algorithm::Dctcp,
            interval: Some(us * MICROSECOND),
        };
        let mut senders = vec![("DCTCP".to_owned(), Sender::Vanilla)];
        match self {
            Figure::SingleLink => {
                for us in [25, 50, 75, 100, 150, 200, 400, 700, 1000] {
                    senders.push((format!("TAS, {us} us"), core(us)));
                }
            }
            Figure::Cluster => senders.push(("TAS, 100 us".to_owned(), core(100))),
        }
        senders.push(("TAS, 2 round trips".to_owned(), Sender::CORE));
        senders
    }

    fn setup(self, seed: u64, extent: Extent, sender: Sender) -> Setup {
        match self {
            Figure::SingleLink => single_link(seed, extent, sender),
            Figure::Cluster => cluster(seed, extent, sender),
        }
    }

    fn parameters(self, extent: Extent) -> Vec<Parameter> {
        let given = |name: &str, value: &str| Parameter {
            name: name.to_owned(),
            value: value.to_owned(),
            given: true,
        };
        let ours = |name: &str, value: &str| Parameter { given: false, ..given(name, value) };
        let mut all = match self {
            Figure::SingleLink => vec![
                given("link", "10 Gbit/s"),
                given("round trip", "100 us without queues"),
                given("load", "75% of the link, framing included"),
                given("sizes of flows", "Pareto"),
                given("control interval", "varies; nothing else differs between the runs of TAS"),
                ours(
                    "hosts",
                    "16 senders and 16 receivers at 40 Gbit/s, chosen at random for each flow",
                ),
                ours("arrivals", "Poisson"),
                ours("queue", "seen each 10 us, in packets of 1,538 bytes"),
            ],
            Figure::Cluster => {
                let tree = fat_tree(extent.pods);
                vec![
                    given(
                        "network",
                        &format!(
                            "fat tree of {} servers and {} switches in 3 levels, 1:4 \
                             oversubscribed",
                            tree.pods * tree.edges * tree.hosts,
                            tree.switches()
                        ),
                    ),
                    given(
                        "traffic",
                        "on and off: each server to random others, one flow at a time",
                    ),
                    given("load", "30% of the links to the core"),
                    given("control interval", "100 us"),
                    ours(
                        "switches",
                        &format!(
                            "{} pods of 8 edge and 4 middle switches, 16 cores; 40 servers on an \
                             edge switch; 1:4 between edge and middle, 1:1 above; ways by a hash \
                             of the connection",
                            tree.pods
                        ),
                    ),
                    ours(
                        "links",
                        "10 Gbit/s and 20 us to a server (its own time included), 25 Gbit/s and 1 \
                         us from edge to middle, 50 Gbit/s and 1 us from middle to core: round \
                         trips of 86 to 95 us without queues",
                    ),
                    ours("beginnings of flows", "Poisson for each server"),
                ]
            }
        };
        all.extend([
            ours("sizes of flows, in numbers", "shape 1.2, from 10 KB to 10 MB, 45 KB in the mean"),
            ours(
                "queues of switches",
                "first in, first out; 1,000 packets, marked above 65, both in proportion to a rate \
                 above 10 Gbit/s; what may not be marked (acknowledgements, SYN) passes",
            ),
            ours("queues of senders", "without bounds or marks"),
            ours(
                "segments",
                "1,448 bytes, each acknowledged; timestamps, SACK; a connection for each flow; \
                 retransmission timeout 10 ms at the least",
            ),
            ours("completion", "from connect to the last byte at the receiver"),
            ours(
                "time",
                &format!(
                    "flows that begin within {} ms count, after {} ms of the same load",
                    extent.time / MILLISECOND,
                    warm_up(extent) / MILLISECOND
                ),
            ),
        ]);
        all
    }

    /// Runs it, on all cores; `done` hears of each run that is complete.
    ///
    /// # Errors
    /// See [`Impossible`].
    pub fn run(
        self,
        seed: u64,
        extent: Extent,
        done: impl Fn(&Series) + Sync,
    ) -> Result<Results, Impossible> {
        let senders = self.senders();
        let next = AtomicUsize::new(0);
        let found = Mutex::new(vec![None; senders.len()]);
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        std::thread::scope(|scope| {
            for _ in 0..cores.min(senders.len()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some((name, sender)) = senders.get(at) else { return };
                        let result = run(name, &self.setup(seed, extent, *sender));
                        if let Ok(series) = &result {
                            done(series);
                        }
                        found.lock().expect("no run panics")[at] = Some(result);
                    }
                });
            }
        });
        let series = found.into_inner().expect("no run panics").into_iter().flatten();
        Ok(Results {
            figure: self.number().to_owned(),
            seed,
            parameters: self.parameters(extent),
            series: series.collect::<Result<_, _>>()?,
        })
    }
}

/// Load goes on until all flows that count are complete, so long at most.
const TIMEOUT: u64 = 200 * MILLISECOND;

/// The load before flows count.
fn warm_up(extent: Extent) -> u64 {
    extent.time / 4
}

fn single_link(seed: u64, extent: Extent, sender: Sender) -> Setup {
    let each = 16;
    let room = Link { rate: 40 * GBIT, delay: 10 * MICROSECOND, mark: 4 * MARK, room: 4 * ROOM };
    let middle = Link { rate: 10 * GBIT, delay: 30 * MICROSECOND, mark: MARK, room: ROOM };
    let bytes_a_second = 0.75 * middle.rate as f64 / 8.0 / OVERHEAD;
    let mean = SIZES.mean() / bytes_a_second * 1e9;
    let warm = warm_up(extent);
    let end = warm + extent.time + TIMEOUT;
    Setup {
        topology: Topology::One(One { each, host: room, middle }),
        sender,
        flows: vec![across(seed, each, mean, SIZES, end)],
        in_turn: false,
        measured: warm..warm + extent.time,
        end,
        connections: 1 << 15,
        sample: 10 * MICROSECOND,
        shares: None,
        seed,
    }
}

/// 1:4 between edge and middle: 40 servers at 10 Gbit/s, four links of 25. Nothing is lost above:
/// eight links of 25, four of 50.
fn fat_tree(pods: u32) -> FatTree {
    let link = |gbit: u64, delay: u64| Link {
        rate: gbit * GBIT,
        delay: delay * MICROSECOND,
        mark: MARK * gbit / 10,
        room: ROOM * gbit / 10,
    };
    FatTree {
        pods,
        edges: 8,
        middles: 4,
        cores: 4,
        hosts: 40,
        host: link(10, 20),
        edge: link(25, 1),
        core: link(50, 1),
    }
}

fn cluster(seed: u64, extent: Extent, sender: Sender) -> Setup {
    let tree = fat_tree(extent.pods);
    let hosts = f64::from(tree.pods * tree.edges * tree.hosts);
    // The rate that all links to the core carry, and what share of all flows goes there.
    let links = f64::from(tree.pods * tree.middles * tree.cores);
    let core = 0.30 * links * tree.core.rate as f64 / 8.0 / OVERHEAD;
    let beyond = (hosts - hosts / f64::from(tree.pods)) / (hosts - 1.0);
    let mean = SIZES.mean() / (core / beyond / hosts) * 1e9;
    let warm = warm_up(extent);
    let end = warm + extent.time + TIMEOUT;
    Setup {
        flows: on_off(seed, hosts as u32, mean, SIZES, end),
        topology: Topology::FatTree(tree),
        sender,
        in_turn: true,
        measured: warm..warm + extent.time,
        end,
        connections: 1 << 17,
        sample: 100 * MICROSECOND,
        shares: None,
        seed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_the_dissertations() {
        let tree = fat_tree(8);
        assert_eq!((tree.pods * tree.edges * tree.hosts, tree.switches()), (2560, 112));
        let down = u64::from(tree.hosts) * tree.host.rate;
        assert_eq!(down, 4 * u64::from(tree.middles) * tree.edge.rate);
        assert_eq!(u64::from(tree.edges) * tree.edge.rate, u64::from(tree.cores) * tree.core.rate);
    }

    #[test]
    fn the_sizes_are_as_documented() {
        assert!((SIZES.quantile(0.9) / 67e3 - 1.0).abs() < 0.02, "{}", SIZES.quantile(0.9));
        assert!((SIZES.mean() / 45e3 - 1.0).abs() < 0.01, "{}", SIZES.mean());
        let steps = 100_000;
        let size = |n: i32| SIZES.quantile((f64::from(n) + 0.5) / f64::from(steps));
        let largest: f64 = (steps / 10 * 9..steps).map(size).sum();
        let share = largest / f64::from(steps) / SIZES.mean();
        assert!((0.5..0.6).contains(&share), "{share}");
    }
}
