//! `uncopy bench rpc`: closed loops of small requests between two programs, over Linux and over uncopy's wires, in turns.
//!
//! | file | one idea |
//! | --- | --- |
//! | `args`, `plan` | its options; what the two programs are told and tell |
//! | `ends` | a connection's end by libc's calls, or by the socket library's |
//! | `server`, `client` | the two programs |
//! | `pair` | both as processes, seen from outside |
//! | `wired` | whether the connections are where they should be |
//! | `over/` | network namespaces, and both programs over a wire |
//! | `rows`, `table` | medians; what people read |

mod args;
pub mod client;
mod ends;
mod over;
mod pair;
mod plan;
mod rows;
pub mod server;
mod table;
mod wired;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use self::args::RpcArgs;
use self::args::{Api, Wait, Wire};
use self::over::network::Network;
use self::pair::{Pair, Sample};
use self::plan::Plan;
use self::rows::{Results, Row, Samples};
use self::wired::Wired;
use super::side::Side;
use super::{cores, progress};
use crate::{Outcome, library, units};

/// About how long a turn is: what else a shared machine does comes in bursts that are longer.
const TURN: Duration = Duration::from_millis(150);

/// So long all connections may take to come to their rings: 64k of them, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures and prints.
pub fn main(args: &RpcArgs) -> Outcome {
    // (The socket library needs none in front.)
    let library = match (args.wire, args.api) {
        (Wire::Shared, Api::Sockets) => library::find(args.library.as_deref())?,
        (Wire::Shared, Api::Lanes) => return Err("--api lanes is for --wire xdp and tap".into()),
        _ => PathBuf::new(),
    };
    let rows = measure(args, &library)?;
    if args.json {
        let results = Results { bench: "rpc".to_owned(), rows };
        let json = serde_json::to_string(&results).expect("results can be written");
        return crate::print(&format!("{json}\n"));
    }
    crate::print(&format!("{}\n{}", table::table(&rows), table::notes(args, &rows)))
}

fn plans(args: &RpcArgs) -> Vec<Plan> {
    let mut plans = Vec::new();
    for &wait in &args.wait {
        for &size in &args.size {
            for &connections in &args.connections {
                let api = if args.wire == Wire::Shared { args.api } else { Api::Lanes };
                let (pipeline, work) = (args.pipeline, args.work);
                plans.push(Plan { size, connections, wait, pipeline, work, api, service: None });
            }
        }
    }
    plans
}

fn measure(args: &RpcArgs, library: &Path) -> Outcome<Vec<Row>> {
    let carried = Carried::new(args.wire)?;
    let cores = cores::all()?;
    if args.wait.contains(&Wait::Spin) && cores.len() < 2 {
        return Err("both ends spin, and there is one core: add --wait sleep".into());
    }
    let plans = plans(args);
    let bar = progress::bar(plans.len() * args.repeats);
    let mut rows = Vec::new();
    for plan in &plans {
        let mut samples = Samples::default();
        for repeat in 0..args.repeats {
            let size = units::size(plan.size as u64);
            bar.set_message(format!("{} x {size}, {}", plan.connections, plan.wait.name()));
            for (side, sample) in once(args, plan, repeat, library, &cores, &carried)? {
                samples.add(side, sample);
            }
            bar.inc(1);
        }
        rows.push(samples.row(plan, args.wire)?);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// What carries the connections of uncopy's side.
enum Carried {
    Shared(Wired),
    Wire(Network),
}

impl Carried {
    fn new(wire: Wire) -> Outcome<Self> {
        Ok(match wire {
            Wire::Shared => Self::Shared(Wired::new()?),
            Wire::Xdp | Wire::Tap => Self::Wire(Network::new(wire)?),
        })
    }

    /// A pair of programs, all of whose connections are there.
    fn start(
        &self,
        args: &RpcArgs,
        plan: &Plan,
        side: Side,
        library: &Path,
        cores: &[usize],
    ) -> Outcome<Pair> {
        let wired = match self {
            Self::Wire(network) => {
                network.prepare(plan.wait)?;
                let ends = network.ends(side == Side::Uncopy);
                // (None has a library in front.)
                let mut pair =
                    Pair::start_over(plan, Side::Plain, library, &[], cores, Some(&ends))?;
                pair.turn(args.warmup, true)?;
                return Ok(pair);
            }
            Self::Shared(wired) => wired,
        };
        let environment = [
            ("UNCOPY_TCP", "yes"),
            // Asleep is asleep. (Who spins does so itself, by calls that do not wait.)
            ("UNCOPY_TCP_SPIN", "no"),
            (uncopy_options::TCP_SERVICE, wired.service.as_str()),
        ];
        let uses_rings = side == Side::Uncopy && plan.api == Api::Rings;
        let plan = Plan { service: uses_rings.then(|| wired.service.clone()), ..plan.clone() };
        let started_as = if uses_rings { Side::Plain } else { side };
        let mut pair = Pair::start(&plan, started_as, library, &environment, cores)?;
        pair.turn(args.warmup, true)?;
        // (Connections that are used little come to their rings late.)
        let begun = Instant::now();
        while side == Side::Uncopy
            && begun.elapsed() < PATIENCE
            && wired.check(pair.pids(), plan.connections).is_err()
        {
            pair.turn(TURN, true)?;
        }
        Ok(pair)
    }

    /// They still are.
    fn check(&self, pair: &Pair, connections: usize) -> Outcome {
        match self {
            Self::Shared(wired) => wired.check(pair.pids(), connections),
            // They have no other way.
            Self::Wire(_) => Ok(()),
        }
    }
}

/// One pair of each side, in turns.
fn once(
    args: &RpcArgs,
    plan: &Plan,
    repeat: usize,
    library: &Path,
    cores: &[usize],
    carried: &Carried,
) -> Outcome<Vec<(Side, Sample)>> {
    let mut pairs = Vec::new();
    for side in Side::three_in_turn(repeat) {
        pairs.push((side, carried.start(args, plan, side, library, cores)?));
    }
    let turns = (args.seconds.as_secs_f64() / TURN.as_secs_f64()).round().max(1.0) as u32;
    for turn in 0..turns {
        for i in 0..pairs.len() {
            // (Each goes first in turn.)
            let next = (i + turn as usize) % pairs.len();
            pairs[next].1.turn(args.seconds / turns, turn == 0)?;
        }
    }
    for (_, pair) in pairs.iter().filter(|(side, _)| *side == Side::Uncopy) {
        carried.check(pair, plan.connections)?;
    }
    pairs.into_iter().map(|(side, pair)| Ok((side, pair.end()?))).collect()
}
