//! The server: the key-value store of `uncopy-tcp-kv`.

use std::io;

use uncopy_measure::{Failure, failure};
use uncopy_tcp_kv::{Server, Store};

use super::plan::Plan;
use crate::events::{ServerArgs, begin, context};

/// The hidden subcommand that is the server.
pub const NAME: &str = "__kv-server";

/// Serves until standard input ends.
pub fn main(args: &ServerArgs<Plan>) -> Result<(), Failure> {
    let plan = &args.plan;
    let run = || -> io::Result<()> {
        let mut context = context(&plan.base)?;
        begin(&mut context, 1)?;
        Server::new(&Store::default()).serve(&mut context, None)
    };
    run().map_err(|e| failure!("key-value server: {e}"))
}
