//! `uncopy-bench short`: connections that end after a few requests and are made anew (TAS, Figure
//! 3.5), over Linux' loopback and over rings.
//!
//! | file | one idea |
//! | --- | --- |
//! | `args`, `plan` | its options; what the two programs are told and tell |
//! | `server`, `client` | the two programs |
//! | `rows`, `table` | medians; what people read |

mod args;
pub mod client;
mod plan;
mod rows;
pub mod server;
pub mod table;

use uncopy_measure::Failure;

pub use self::args::ShortArgs;
pub use self::plan::Plan;
use self::plan::ShortSummary;
use self::rows::Row;
use super::events::{Base, measure};
use super::results::show;

/// Measures and prints.
pub fn main(args: &ShortArgs) -> Result<(), Failure> {
    let plans = plans(args);
    let name = |plan: &Plan| {
        format!("{} RPCs, {} x, {}", plan.rpcs, plan.base.connections, plan.base.wait.name())
    };
    // (Whether a connection comes to its ring is what is measured.)
    let on_rings = |_: &Plan| None;
    let samples = measure::<_, ShortSummary>(
        &args.pairs,
        [server::NAME, client::NAME],
        &plans,
        on_rings,
        name,
    )?;
    let rows: Vec<Row> =
        plans.iter().zip(&samples).map(|(plan, samples)| rows::row(plan, args, samples)).collect();
    show("short", rows, args.pairs.json, |rows| {
        format!("{}\n{}", table::table(rows), table::notes(args, rows))
    })
}

fn plans(args: &ShortArgs) -> Vec<Plan> {
    let mut plans = Vec::new();
    for &wait in &args.pairs.wait {
        for &connections in &args.connections {
            for &rpcs in &args.rpcs {
                let base = Base { connections, wait, service: None };
                plans.push(Plan { base, rpcs, size: args.size });
            }
        }
    }
    plans
}
