//! `uncopy-bench relay`: what a message costs all programs that it goes through, from a source by
//! relays to a sink, over Linux' loopback and over rings, with and without elision.
//!
//! | file | one idea |
//! | --- | --- |
//! | `args`, `plan` | its options; what each program is told |
//! | `program` | the programs |
//! | `chain` | a chain of processes, seen from outside |
//! | `rows` | medians; what people read |

mod args;
mod chain;
mod plan;
pub mod program;
pub mod rows;

use std::time::Duration;

use uncopy_measure::{Failure, cores, library, progress, units};

pub use self::args::RelayArgs;
use self::chain::{Chain, Of};
use self::plan::Way;
use self::rows::{Row, Samples};
use super::results::show;
use super::rpc::wired::Wired;

/// About how long a turn is: what else a shared machine does comes in bursts that are longer.
const TURN: Duration = Duration::from_millis(150);

/// Measures and prints.
pub fn main(args: &RelayArgs) -> Result<(), Failure> {
    let rows = measure(args)?;
    show("relay", rows, args.json, |rows| {
        format!("{}\n{}", rows::table(rows), rows::notes(args, rows))
    })
}

fn measure(args: &RelayArgs) -> Result<Vec<Row>, Failure> {
    let library = library::find(args.library.as_deref())?;
    let (cores, service) = (cores::all()?, Wired::new()?);
    let mut all = vec![];
    for &size in &args.sizes {
        for &touch in &args.touch {
            for &copies in &args.copies {
                all.extend(args.hops.iter().map(|&hops| Of { hops, size, touch, copies }));
            }
        }
    }
    let bar = progress::bar(all.len() * args.repeats);
    let mut rows = vec![];
    for of in all {
        let mut samples = Samples::default();
        for repeat in 0..args.repeats {
            bar.set_message(format!("{} hops, {}", of.hops, units::size(of.size as u64)));
            let mut chains = vec![];
            for way in Way::in_turn(repeat) {
                let mut chain = Chain::start(&of, way, &library, &service.service, &cores)?;
                chain.turn(args.warmup)?;
                chain.forget();
                chains.push(chain);
            }
            let turns = (args.seconds.as_secs_f64() / TURN.as_secs_f64()).round().max(1.0) as u32;
            for turn in 0..turns as usize {
                for i in 0..chains.len() {
                    // (Each goes first in turn.)
                    let next = (i + turn) % chains.len();
                    chains[next].turn(args.seconds / turns)?;
                }
            }
            for chain in chains {
                if chain.way.is_uncopys() {
                    chain
                        .pids()
                        .windows(2)
                        .try_for_each(|two| service.check([two[0], two[1]], 1))?;
                }
                samples.add(chain.end()?);
            }
            bar.inc(1);
        }
        rows.push(samples.row(&of));
    }
    bar.finish_and_clear();
    Ok(rows)
}
