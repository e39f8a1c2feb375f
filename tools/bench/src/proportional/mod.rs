//! `uncopy-bench proportional`: cores in use, throughput and latency while clients come and go
//! (TAS, figures 3.14 and 3.15), Linux beside it on the same wire.
//!
//! The clients are Linux' on both sides, in a network namespace of their own; the server is at the
//! other end of a veth pair: threads over Linux' sockets, or lanes of uncopy's TCP over AF_XDP.
//!
//! | file | one idea |
//! | --- | --- |
//! | `args`, `plan` | its options; what the two programs are told and tell; who is there when |
//! | `server` | the two servers |
//! | `client`, `caller` | all clients, as one program; one of them |
//! | `watch` | the programs seen from outside, from interval to interval |
//! | `rows`, `pictures` | medians and what people read; pictures |

mod args;
mod caller;
pub mod client;
mod pictures;
mod plan;
mod rows;
pub mod server;
mod watch;

use std::fs;

use uncopy_measure::{Failure, cores, failure, progress};

pub use self::args::ProportionalArgs;
use self::plan::Plan;
use self::rows::{Contender, Row};
use super::results::show;
use super::rpc::choices::Wire;
use super::rpc::over::network::Network;

/// Measures, draws and prints.
pub fn main(args: &ProportionalArgs) -> Result<(), Failure> {
    // Before a minute is spent.
    let out = &args.out;
    fs::create_dir_all(out).map_err(|e| failure!("cannot make {}", out.display()).because(e))?;
    let lanes = args.lanes.unwrap_or(cores::all()?.len());
    let plan = Plan::new(args, lanes);
    let bar = progress::bar(Contender::ALL.len() * args.repeats * plan.intervals());
    // (A device of its own for each side; both are there all the time.)
    let network = Network::new(Wire::Xdp, lanes)?;
    let mut rows: Vec<Row> = Vec::new();
    for repeat in 0..args.repeats {
        let mut sides = Contender::ALL;
        // (Each is the first in its turn.)
        sides.rotate_left(repeat % Contender::ALL.len());
        for side in sides {
            watch::watch(&plan, &network, side, repeat, |row| {
                bar.set_message(format!("{}, {} clients", row.side.name(), row.clients));
                bar.inc(1);
                rows.push(row);
            })?;
        }
    }
    rows.sort_by_key(|row| (row.side, row.repeat));
    bar.finish_and_clear();
    let mut written = Vec::new();
    for plot in pictures::plots(&rows) {
        let path = out.join(format!("{}.svg", plot.name));
        fs::write(&path, plot.standalone())
            .map_err(|e| failure!("cannot write {}", path.display()).because(e))?;
        written.push(path.display().to_string());
    }
    show("proportional", rows, args.json, |rows| {
        format!(
            "{}\n{}\n{}\n",
            rows::table(rows),
            rows::notes(args, &plan, rows),
            written.join("\n")
        )
    })
}
