//! The server: sends back what comes, until the client ends the connection.

use std::io;

use uncopy_measure::{Failure, failure};

use super::plan::Plan;
use crate::events::{ServerArgs, begin, context};

/// The hidden subcommand that is the server.
pub const NAME: &str = "__short-server";

/// It listens at so many addresses: the ports of connections that have ended rest for a while, and
/// an address has 28,000.
const ADDRESSES: usize = 16;

/// Serves until standard input ends.
pub fn main(args: &ServerArgs<Plan>) -> Result<(), Failure> {
    let plan = &args.plan;
    run(plan).map_err(|e| failure!("echo server: {e}"))
}

fn run(plan: &Plan) -> io::Result<()> {
    let mut context = context(&plan.base)?;
    begin(&mut context, ADDRESSES)?;
    loop {
        for i in 0..context.poll(None)? {
            let connection = context.event(i).connection;
            let Ok(sent) = context.send_bytes_of(i) else {
                context.close(connection);
                continue;
            };
            context.take(i, sent);
            if context.is_over(connection) && context.bytes(i).is_empty() {
                context.close(connection);
            }
        }
    }
}
