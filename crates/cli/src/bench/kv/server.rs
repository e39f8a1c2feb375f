//! The server: the key-value store of `uncopy-tcp-kv`.

use std::io;

use clap::{ArgMatches, Command};
use uncopy_measure::Outcome;
use uncopy_tcp_kv::{Server, Store};

use super::plan::Plan;
use crate::bench::events::{begin, context, read, serve};

/// The hidden subcommand that is the server.
pub const NAME: &str = "__kv-server";

/// The hidden subcommand.
pub fn command() -> Command {
    serve(NAME)
}

/// Serves until standard input ends.
pub fn main(matches: &ArgMatches) -> Outcome {
    let plan: Plan = read(matches, "plan")?;
    let run = || -> io::Result<()> {
        let mut context = context(&plan.base)?;
        begin(&mut context, 1)?;
        Server::new(&Store::default()).serve(&mut context, None)
    };
    run().map_err(|e| format!("key-value server: {e}"))
}
