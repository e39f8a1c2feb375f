//! Rows, one after the other, each with pairs of all sides in turns.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use uncopy_measure::{Failure, cores, library, progress};

use super::args::PairArgs;
use super::program::Base;
use crate::rpc::carried::Carried;
use crate::rpc::choices::{Api, Wait, Wire};
use crate::rpc::pair::Programs;
use crate::rpc::rows::{Samples, Summarized};
use crate::rpc::turns::Turns;

/// Measures each of `plans` by the programs `server` and `client`, hidden subcommands of ours;
/// `connections` says how many have to be on rings, `name` what is being measured.
pub fn measure<P: Serialize + Clone + AsMut<Base>, T: DeserializeOwned + Summarized>(
    args: &PairArgs,
    [server, client]: [&'static str; 2],
    plans: &[P],
    connections: impl Fn(&P) -> Option<usize>,
    name: impl Fn(&P) -> String,
) -> Result<Vec<Samples<T>>, Failure> {
    // (The low-level API needs none in front.)
    let library = match args.api {
        Api::Sockets => library::find(args.library.as_deref())?,
        Api::Rings | Api::Lanes => PathBuf::new(),
    };
    let cores = cores::all()?;
    if args.wait.contains(&Wait::Spin) && cores.len() < 2 {
        return Err(
            Failure::new("both ends spin, and there is one core").advise("add --wait sleep")
        );
    }
    let carried = Carried::new(Wire::Shared)?;
    let turns = Turns {
        library: &library,
        cores: &cores,
        carried: &carried,
        warmup: args.warmup,
        seconds: args.seconds,
        only_uncopy: false,
        leave_full_rings: false,
    };
    let bar = progress::bar(plans.len() * args.repeats);
    let mut rows = Vec::new();
    for plan in plans {
        let mut samples = Samples::default();
        for repeat in 0..args.repeats {
            bar.set_message(name(plan));
            let programs = |service| {
                let mut plan = plan.clone();
                let wait = plan.as_mut().wait;
                plan.as_mut().service = service;
                let plan = serde_json::to_string(&plan).expect("a plan can be written");
                Programs { server, client, plan, wait }
            };
            for (side, sample) in turns.once(repeat, args.api, connections(plan), programs)? {
                samples.add(side, sample);
            }
            bar.inc(1);
        }
        rows.push(samples);
    }
    bar.finish_and_clear();
    Ok(rows)
}
