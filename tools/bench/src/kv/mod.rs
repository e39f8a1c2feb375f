//! `uncopy-bench kv`: a key-value store under the dissertation's load (TAS, 3.3.3), and one hot key
//! (Table 3.7), over Linux' loopback and over rings.
//!
//! | file | one idea |
//! | --- | --- |
//! | `args`, `plan` | its options; what the two programs are told and tell |
//! | `server`, `client` | the two programs; the server is the crate `uncopy-tcp-kv` |
//! | `keys` | keys and values, and which is asked for next |
//! | `history` | which value a request may find |
//! | `rows`, `table` | medians; what people read |

mod args;
pub mod client;
mod history;
mod keys;
mod plan;
mod rows;
pub mod server;
pub mod table;

use uncopy_measure::Failure;

pub use self::args::KvArgs;
pub use self::plan::Plan;
use self::plan::{KvSummary, Load};
use self::rows::Row;
use super::events::{Base, measure};
use super::results::show;

/// Measures and prints.
pub fn main(args: &KvArgs) -> Result<(), Failure> {
    let plans = plans(args);
    let name = |plan: &Plan| {
        format!("{}, {} x, {}", plan.load.name(), plan.base.connections, plan.base.wait.name())
    };
    let on_rings = |plan: &Plan| Some(plan.base.connections);
    let samples =
        measure::<_, KvSummary>(&args.pairs, [server::NAME, client::NAME], &plans, on_rings, name)?;
    let rows: Vec<Row> =
        plans.iter().zip(&samples).map(|(plan, samples)| rows::row(plan, args, samples)).collect();
    show("kv", rows, args.pairs.json, |rows| {
        format!("{}\n{}", table::table(rows), table::notes(args, rows))
    })
}

fn plans(args: &KvArgs) -> Vec<Plan> {
    let mut plans = Vec::new();
    for &load in &args.load {
        for &wait in &args.pairs.wait {
            for &connections in &args.connections {
                let base = Base { connections, wait, service: None };
                let (keys, sets) = (if load == Load::Hot { 1 } else { args.keys }, args.sets);
                plans.push(Plan { base, load, keys, sets });
            }
        }
    }
    plans
}
