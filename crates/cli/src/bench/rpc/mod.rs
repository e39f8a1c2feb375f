//! `uncopy bench rpc`: closed loops of small requests between two programs of this host, over Linux' loopback and over uncopy's wires, in turns.
//!
//! | file | one idea |
//! | --- | --- |
//! | `args`, `plan` | its options; what the two programs are told and tell |
//! | `ends` | a connection's end by libc's calls, or by the socket library's |
//! | `server`, `client` | the two programs |
//! | `one_way` | requests that nobody answers |
//! | `pair` | both as processes, seen from outside |
//! | `turns` | pairs of each side, in turns |
//! | `wired` | whether the connections are where they should be |
//! | `rows`, `table` | medians; what people read |

pub mod args;
pub mod client;
mod ends;
mod one_way;
pub mod pair;
pub mod plan;
pub mod rows;
pub mod server;
pub mod table;
pub mod turns;
pub mod wired;

use std::path::{Path, PathBuf};

pub use self::args::RpcArgs;
use self::args::{Api, Wait, Way, Wire};
pub use self::ends::make_room;
use self::pair::Programs;
use self::plan::Plan;
use self::rows::{Results, Row, Samples};
use self::turns::Turns;
use self::wired::Wired;
use super::{cores, progress};
use crate::{Outcome, library, units};

/// Measures and prints.
pub fn main(args: &RpcArgs) -> Outcome {
    match args.wire {
        Wire::Shared => {}
        Wire::Xdp | Wire::Tap => {
            return Err(
                "programs cannot be carried over AF_XDP or TAP yet: only --wire shared can be measured".into(),
            );
        }
    }
    if let Some(size) = args.size.iter().find(|&&size| size < one_way::SMALLEST)
        && args.way != Way::Both
    {
        return Err(format!(
            "requests that nobody answers have {} bytes at least, and not {size}",
            one_way::SMALLEST
        ));
    }
    // (The socket library needs none in front.)
    let library = match args.api {
        Api::Sockets => library::find(args.library.as_deref())?,
        Api::Rings => PathBuf::new(),
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
                        api: args.api,
                        service: None,
                    });
                }
            }
        }
    }
    plans
}

fn measure(args: &RpcArgs, library: &Path) -> Outcome<Vec<Row>> {
    let wired = Wired::new()?;
    let cores = cores::all()?;
    if args.wait.contains(&Wait::Spin) && cores.len() < 2 {
        return Err("both ends spin, and there is one core: add --wait sleep".into());
    }
    let plans = plans(args);
    let turns =
        Turns { library, cores: &cores, wired: &wired, warmup: args.warmup, seconds: args.seconds };
    let bar = progress::bar(plans.len() * args.repeats);
    let mut rows = Vec::new();
    for plan in &plans {
        let mut samples = Samples::default();
        for repeat in 0..args.repeats {
            let size = units::size(plan.size as u64);
            bar.set_message(format!("{} x {size}, {}", plan.connections, plan.wait.name()));
            let programs = |service| programs(&Plan { service, ..plan.clone() });
            for (side, sample) in turns.once(repeat, plan.api, Some(plan.connections), programs)? {
                samples.add(side, sample);
            }
            bar.inc(1);
        }
        rows.push(samples.row(plan, args.wire));
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn programs(plan: &Plan) -> Programs {
    let text = serde_json::to_string(plan).expect("a plan can be written");
    Programs { server: server::NAME, client: client::NAME, plan: text, wait: plan.wait }
}
