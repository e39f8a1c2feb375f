//! `uncopy-bench rpc`: closed loops of small requests between two programs, over Linux and over
//! uncopy's wires, in turns.
//!
//! | file | one idea |
//! | --- | --- |
//! | `args`, `choices`, `plan` | its options; what the two programs are told and tell |
//! | `requests` | what requests consist of: made, and compared |
//! | `ends` | a connection's end by libc's calls, or by the socket library's |
//! | `server`, `client` | the two programs |
//! | `work` | cycles that the server spends on a request |
//! | `one_way` | requests that nobody answers |
//! | `pair` | both as processes, seen from outside |
//! | `turns` | pairs of each side, in turns |
//! | `carried` | what carries the connections of uncopy's side |
//! | `wired` | whether the connections are where they should be |
//! | `smc` | whether this kernel has SMC |
//! | `over/` | network namespaces, and both programs over a wire |
//! | `rows`, `table` | medians; what people read |

pub mod args;
pub mod carried;
pub mod choices;
pub mod client;
pub mod ends;
mod one_way;
pub mod over;
pub mod pair;
pub mod plan;
pub mod requests;
pub mod rows;
pub mod server;
mod smc;
pub mod table;
pub mod turns;
pub mod wired;
mod work;

use std::path::{Path, PathBuf};

use uncopy_measure::medians::{median, round};
use uncopy_measure::{Failure, cores, failure, library, progress, units};

pub use self::args::RpcArgs;
use self::carried::Carried;
use self::choices::{Api, Wait, Way, Wire};
use self::pair::Programs;
use self::plan::Plan;
use self::rows::{Limit, Parameters, Row, Samples};
use self::turns::Turns;
use super::results::show;

/// Measures and prints.
pub fn main(args: &RpcArgs) -> Result<(), Failure> {
    if let Some(size) = args.size.iter().find(|&&size| size < one_way::SMALLEST)
        && args.way != Way::Both
    {
        return Err(failure!(
            "requests that nobody answers have {} bytes at least, and not {size}",
            one_way::SMALLEST
        ));
    }
    if args.wire != Wire::Shared && args.way != Way::Both {
        return Err(
            Failure::new("over AF_XDP and TAP each request is answered").advise("leave --way out")
        );
    }
    // (The socket library needs none in front.)
    let library = match (args.wire, args.pairs.api) {
        (Wire::Shared, Api::Sockets) => library::find(args.pairs.library.as_deref())?,
        _ => PathBuf::new(),
    };
    let rows = measure(args, &library)?;
    show("rpc", rows, args.pairs.json, |rows| {
        format!("{}\n{}", table::table(rows), table::notes(args, rows))
    })
}

fn plans(args: &RpcArgs) -> Vec<Plan> {
    let mut plans = Vec::new();
    for &wait in &args.pairs.wait {
        for &work in &args.work {
            for &size in &args.size {
                for &connections in &args.connections {
                    plans.push(Plan {
                        size,
                        connections,
                        wait,
                        pipeline: args.pipeline,
                        way: args.way,
                        work,
                        api: if args.wire == Wire::Shared { args.pairs.api } else { Api::Lanes },
                        service: None,
                    });
                }
            }
        }
    }
    plans
}

fn measure(args: &RpcArgs, library: &Path) -> Result<Vec<Row>, Failure> {
    let carried = Carried::new(args.wire)?;
    let cores = cores::all()?;
    if args.pairs.wait.contains(&Wait::Spin) && cores.len() < 2 {
        return Err(
            Failure::new("both ends spin, and there is one core").advise("add --wait sleep")
        );
    }
    let plans = plans(args);
    let turns = Turns {
        library,
        cores: &cores,
        carried: &carried,
        warmup: args.pairs.warmup,
        seconds: args.pairs.seconds,
        only_uncopy: args.only_uncopy,
        leave_full_rings: args.way == Way::In,
    };
    let bar = progress::bar(plans.len() * args.pairs.repeats);
    let mut rows = Vec::new();
    for plan in &plans {
        let mut samples: Samples = Samples::default();
        for repeat in 0..args.pairs.repeats {
            let size = units::size(plan.size as u64);
            bar.set_message(format!("{} x {size}, {}", plan.connections, plan.wait.name()));
            let programs = |service| programs(&Plan { service, ..plan.clone() });
            for (side, sample) in turns.once(repeat, plan.api, Some(plan.connections), programs)? {
                samples.add(side, sample);
            }
            bar.inc(1);
        }
        let of = Parameters::of(plan, args.wire);
        let limit = |side| {
            let shares = samples.of(side).iter().filter_map(|s| s.told.waited_share);
            let shares: Vec<f64> = shares.collect();
            Limit { waited_share: (!shares.is_empty()).then(|| round(median(shares), 3)) }
        };
        rows.push(samples.row(of, plan.connections, limit));
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn programs(plan: &Plan) -> Programs {
    let text = serde_json::to_string(plan).expect("a plan can be written");
    Programs { server: server::NAME, client: client::NAME, plan: text, wait: plan.wait }
}
