//! The service that a program starts where none answers: it ends when no program has been there for
//! a while. It recovers first what a crash has left.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgMatches, value_parser};
use uncopy_log_service::{Options, Place, Service};
use uncopy_log_store::Kind;
use uncopy_measure::Outcome;

/// The hidden subcommand.
pub const NAME: &str = "__log-service";
/// So long an idle service waits for programs.
const IDLE: Duration = Duration::from_secs(10);

/// The subcommand: where it serves, and the length of logs.
pub fn command() -> clap::Command {
    clap::Command::new(NAME)
        .hide(true)
        .arg(Arg::new("directory").required(true).value_parser(value_parser!(OsString)))
        .arg(Arg::new("size").required(true).value_parser(value_parser!(u64)))
        .arg(Arg::new("store").required(true))
}

/// Serves.
pub fn main(matches: &ArgMatches) -> Outcome {
    let directory = matches.get_one::<OsString>("directory").expect("clap demands it");
    let log_size = *matches.get_one::<u64>("size").expect("clap demands it");
    let kind = matches.get_one::<String>("store").and_then(|name| Kind::of(name));
    let kind = kind.ok_or("no such store")?;
    let place = Place::open(Path::new(directory)).map_err(|why| why.to_string())?;
    let options = Options { log_size, kind, until_idle: Some(IDLE) };
    let (service, _) = Service::begin(place, options).map_err(|why| why.to_string())?;
    service.run().map_err(|why| why.to_string())
}
