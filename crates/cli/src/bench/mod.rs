//! `uncopy bench`: measurements of this machine, plain and under uncopy in turns.

mod content;
pub mod cores;
pub mod echo;
mod echo_connection;
mod echo_load;
mod echo_rows;
pub mod echo_server;
mod echo_turns;
pub mod figures;
pub mod file;
pub mod memcpy;
pub mod plot;
pub mod progress;
mod receiver;
mod report;
pub mod send;
pub mod sender;
mod sender_ways;
mod server_process;
pub mod stats;
pub mod views;
mod views_books;
pub mod views_loop;
mod warm;

use std::fmt;
use std::path::Path;
use std::process::Command as Process;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde::{Deserialize, Serialize};
use uncopy_options::{self as options, OPTIONS};

use self::figures::Figure;
use crate::doctor::cache;
use crate::{Outcome, library, parsed, variables};

/// The subcommand.
pub fn command() -> Command {
    Command::new("bench")
        .about("Measure plain against uncopy on this machine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(crate::with_args::<echo::EchoArgs>(
            Command::new("echo").about(
                "An echo server that copies every message before it sends the last copy back",
            ),
        ))
        .subcommands(Figure::ALL.map(Figure::command))
        .subcommand(crate::with_args::<views::ViewsArgs>(
            Command::new("views")
                .about("What an elided copy costs over its size, among up to 100,000 live views"),
        ))
        .subcommand(crate::with_args::<send::SendArgs>(
            Command::new("send").about("What sending costs the sender: send, uncopy, zero copy"),
        ))
        .subcommand(crate::with_args::<file::FileArgs>(
            Command::new("file")
                .about("What copying a file costs: to a socket, to a file, in Java"),
        ))
        .subcommand(crate::with_args::<report::ReportArgs>(
            Command::new("report").about("All of these as a page with pictures, beside the paper"),
        ))
        .subcommand(crate::with_args::<memcpy::MemcpyArgs>(
            Command::new("memcpy")
                .about("What a copy of ordinary memory costs through the library"),
        ))
}

/// Runs the bench that was asked for.
pub fn main(matches: &ArgMatches) -> Outcome {
    variables::report(|_| false);
    match matches.subcommand().expect("clap demands a subcommand") {
        ("echo", matches) => echo::main(&parsed(matches)?),
        ("views", matches) => views::main(&parsed(matches)?),
        ("report", matches) => report::main(&parsed(matches)?),
        ("send", matches) => send::main(&parsed(matches)?),
        ("file", matches) => file::main(&parsed(matches)?),
        ("memcpy", matches) => memcpy::main(&parsed(matches)?),
        (name, matches) => {
            let figure = Figure::ALL.into_iter().find(|figure| figure.name() == name);
            figures::main(figure.expect("clap knows only these"), &parsed(matches)?)
        }
    }
}

/// How long and how often a mode measures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Whether it was only a look.
    pub quick: bool,
    /// Turns.
    pub repeats: usize,
    /// Length of a timed window.
    pub seconds: f64,
}

/// One of the two things that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Without the library.
    Plain,
    /// With it.
    Uncopy,
}

impl Side {
    /// Both, in the order of turn number `turn`: each goes first every other time.
    pub fn in_turn(turn: usize) -> [Self; 2] {
        if turn.is_multiple_of(2) {
            [Self::Plain, Self::Uncopy]
        } else {
            [Self::Uncopy, Self::Plain]
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Uncopy => "uncopy",
        })
    }
}

/// This program again with the hidden subcommand `name`, plainly or with `library` in front:
/// the environment is the only difference.
fn own_command(name: &str, side: Side, library: &Path) -> Outcome<Process> {
    let program =
        std::env::current_exe().map_err(|e| format!("cannot tell where uncopy itself is ({e})"))?;
    let mut command = Process::new(program);
    command.arg(name);
    on_side(&mut command, side, library);
    Ok(command)
}

/// Options of a mode as they are when none is given.
fn defaults<T: Args + FromArgMatches>() -> T {
    let command = T::augment_args(Command::new("bench"));
    T::from_arg_matches(&command.get_matches_from(["bench"])).expect("the defaults are valid")
}

/// Has `command` run plainly or with `library` in front.
pub fn on_side(command: &mut Process, side: Side, library: &Path) {
    let preloaded = std::env::var_os(library::PRELOAD);
    match side {
        Side::Uncopy => {
            command
                .env(library::PRELOAD, library::preload_value(library, preloaded.as_deref()))
                .env(library::VARIABLE, library);
            if std::env::var_os(options::COSTS).is_none()
                && let Some(costs) = cache::handed_on()
            {
                command.env(options::COSTS, costs);
            }
        }
        Side::Plain => {
            match library::without(library, preloaded.as_deref()) {
                Some(others) => command.env(library::PRELOAD, others),
                None => command.env_remove(library::PRELOAD),
            };
            for name in
                OPTIONS.iter().map(|spec| spec.env).chain([library::VARIABLE, options::COSTS])
            {
                command.env_remove(name);
            }
        }
    }
}
