//! The server: the key-value store of `uncopy-tcp-kv`.

use std::io;

use uncopy_measure::Outcome;
use uncopy_tcp_kv::{Server, Store};

use super::plan::Plan;
use crate::events::{ServerArgs, begin, context};

/// The hidden subcommand that is the server.
pub const NAME: &str = "__kv-server";

/// Serves until standard input ends.
pub fn main(args: &ServerArgs<Plan>) -> Outcome {
    let plan = &args.plan;
    let run = || -> io::Result<()> {
        let mut context = context(&plan.base)?;
        begin(&mut context, 1)?;
        Server::new(&Store::default()).serve(&mut context, None)
    };
    run().map_err(|e| format!("key-value server: {e}"))
}
