//! `uncopy bench`: measurements of this machine, plain and under uncopy in turns.
//!
//! | file | one idea |
//! | --- | --- |
//! | `echo`, `echo_table` | the rows of the echo server of `uncopy_measure`, as people read them |
//! | `rpc/` | small requests between two programs, within this host or over a device |
//! | `short/`, `kv/`, `events/` | connections that end soon; a key-value store; what these share |
//! | `link/` | many flows over one link that loses, from several hosts to one, and between Linux and uncopy |
//! | `proportional/` | cores in use while clients come and go |
//! | `figures` | the paper's figures, as rows of the echo server |
//! | `views`, `views_books`, `views_loop` | elided copies among many live views |
//! | `send`, `send_plan`, `sender`, `sender_ways`, `receiver` | what sending costs |
//! | `file/`, `memcpy` | copies of files; copies of ordinary memory |
//! | `report/`, `plot/` | all of it as a page, and pictures |
//! | `simulate` | the TCP service's congestion control at scale, simulated |
//! | `content`, `warm` | what several of them need |

mod content;
pub mod echo;
mod echo_table;
mod events;
mod figures;
pub mod file;
pub mod kv;
mod link;
pub mod memcpy;
mod plot;
pub mod proportional;
mod receiver;
mod report;
mod results;
pub mod rpc;
mod send;
mod send_plan;
pub mod sender;
mod sender_ways;
pub mod short;
mod simulate;
mod views;
mod views_books;
pub mod views_loop;
mod warm;

use clap::{ArgMatches, Command};
use uncopy_measure::echo::EchoArgs;
use uncopy_measure::{Outcome, variables};

use self::figures::Figure;
use crate::parsed;

/// The subcommand.
pub fn command() -> Command {
    Command::new("bench")
        .about("Measure plain against uncopy on this machine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(crate::with_args::<EchoArgs>(
            Command::new("echo").about(
                "An echo server that copies every message before it sends the last copy back",
            ),
        ))
        .subcommands(Figure::ALL.map(Figure::command))
        .subcommand(crate::with_args::<views::ViewsArgs>(
            Command::new("views")
                .about("What an elided copy costs over its size, among up to 100,000 live views"),
        ))
        .subcommand(crate::with_args::<rpc::RpcArgs>(Command::new("rpc").about(
            "Small requests between two programs: Linux' TCP against uncopy's, within this host or over a device",
        )))
        .subcommand(crate::with_args::<short::ShortArgs>(Command::new("short").about(
            "Connections that end after a few requests: Linux' loopback against uncopy's rings (TAS, 3.3.1)",
        )))
        .subcommand(crate::with_args::<kv::KvArgs>(Command::new("kv").about(
            "A key-value store: Linux' loopback against uncopy's rings (TAS, 3.3.3)",
        )))
        .subcommand(crate::with_args::<link::loss::LossArgs>(Command::new("loss").about(
            "What is left of a link's rate where frames are lost: Linux' TCP and uncopy's (TAS, 3.3.2)",
        )))
        .subcommand(crate::with_args::<link::incast::IncastArgs>(Command::new("incast").about(
            "How evenly flows from several hosts share a link: Linux' TCP and uncopy's (TAS, 3.3.5)",
        )))
        .subcommand(crate::with_args::<link::bulk::BulkArgs>(Command::new("bulk").about(
            "Bulk over one link, from and to Linux' TCP and uncopy's, in all combinations",
        )))
        .subcommand(crate::with_args::<proportional::ProportionalArgs>(
            Command::new("proportional").about(
                "Cores in use, rate and latency while clients come and go: Linux' TCP and uncopy's (TAS, 3.3.6)",
            ),
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
        .subcommand(crate::with_args::<simulate::SimulateArgs>(
            Command::new("simulate")
                .about("Congestion control of the TCP service at scale, simulated (TAS, 3.3.5)"),
        ))
}

/// Runs the bench that was asked for.
pub fn main(matches: &ArgMatches) -> Outcome {
    variables::report(|_| false);
    match matches.subcommand().expect("clap demands a subcommand") {
        ("echo", matches) => echo::main(&parsed(matches)?),
        ("views", matches) => views::main(&parsed(matches)?),
        ("report", matches) => report::main(&parsed(matches)?),
        ("rpc", matches) => rpc::main(&parsed(matches)?),
        ("short", matches) => short::main(&parsed(matches)?),
        ("kv", matches) => kv::main(&parsed(matches)?),
        ("loss", matches) => link::loss::main(&parsed(matches)?),
        ("incast", matches) => link::incast::main(&parsed(matches)?),
        ("bulk", matches) => link::bulk::main(&parsed(matches)?),
        ("proportional", matches) => proportional::main(&parsed(matches)?),
        ("send", matches) => send::main(&parsed(matches)?),
        ("file", matches) => file::main(&parsed(matches)?),
        ("memcpy", matches) => memcpy::main(&parsed(matches)?),
        ("simulate", matches) => simulate::main(&parsed(matches)?),
        (name, matches) => {
            let figure = Figure::ALL.into_iter().find(|figure| figure.name() == name);
            figures::main(figure.expect("clap knows only these"), &parsed(matches)?)
        }
    }
}
