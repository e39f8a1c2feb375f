//! The hidden command that serves the TCP connections of this user's programs within this host: a program under `--tcp` starts it where
//! none answers. It ends when the last program has gone.

use clap::{Arg, ArgMatches, Command};
use uncopy_tcp_service::{Options, Service, ServiceError};

use crate::Outcome;

/// The hidden subcommand.
pub const NAME: &str = "__tcp-service";

/// The subcommand: under which name it answers.
pub fn command() -> Command {
    Command::new(NAME).hide(true).arg(Arg::new("name").required(true))
}

/// Serves.
pub fn main(matches: &ArgMatches) -> Outcome {
    let name = matches.get_one::<String>("name").expect("clap demands it").clone();
    match Service::bind(Options { name, ..Options::of_this_user() }) {
        // Another program was faster.
        Err(ServiceError::Running(_)) => Ok(()),
        Err(why) => Err(why.to_string()),
        Ok(service) => service.run().map_err(|why| why.to_string()),
    }
}
