//! The hidden command that serves the TCP connections of this user's programs within this host: a
//! program under `--tcp` starts it where none answers. It ends when the last program has gone.

use clap::{Arg, ArgMatches, Command};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use uncopy_measure::Failure;
use uncopy_tcp_service::{Options, Service, ServiceError};

/// The hidden subcommand.
pub const NAME: &str = "__tcp-service";

/// The subcommand: under which name it answers.
pub fn command() -> Command {
    Command::new(NAME).hide(true).arg(Arg::new("name").required(true))
}

/// Has as many descriptors as this process may have: each program takes eight or so, and programs
/// come with soft limits of 1,024.
pub fn take_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // (Where that is refused, programs that find no room stay with Linux.)
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Serves.
pub fn main(matches: &ArgMatches) -> Result<(), Failure> {
    take_descriptors();
    let name = matches.get_one::<String>("name").expect("clap demands it").clone();
    match Service::bind(Options { name, ..Options::of_this_user() }) {
        // Another program was faster.
        Err(ServiceError::Running(_)) => Ok(()),
        Err(why) => Err(Failure::new(why)),
        Ok(service) => service.run().map_err(Failure::new),
    }
}
