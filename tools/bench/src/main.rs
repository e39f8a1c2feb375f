//! `uncopy-bench`: measurements of this machine, plain and under uncopy in turns. It is for those
//! who work on uncopy, and not installed.
//!
//! | file | one idea |
//! | --- | --- |
//! | `echo`, `echo_table` | the rows of the echo server of `uncopy_measure`, as people read them |
//! | `rpc/` | small requests between two programs, within this host or over a device |
//! | `short/`, `kv/`, `events/` | connections that end soon; a key-value store; what these share |
//! | `link/` | many flows over one link: with loss, from several hosts, between Linux and uncopy |
//! | `proportional/` | cores in use while clients come and go |
//! | `relay/` | large messages by a chain of programs |
//! | `figures` | the paper's figures, as rows of the echo server |
//! | `views`, `views_books`, `views_loop` | elided copies among many live views |
//! | `send`, `send_plan`, `sender`, `sender_ways`, `receiver` | what sending costs |
//! | `log`, `appender` | appends to a file that are to be durable |
//! | `file/`, `memcpy` | copies of files; copies of ordinary memory |
//! | `report/`, `plot/` | all of it as a page, and pictures |
//! | `simulate` | the TCP service's congestion control at scale, simulated |
//! | `processes` | the hidden subcommands: programs that are measured |
//! | `content`, `results`, `table`, `warm` | what several of them need |

mod appender;
mod content;
mod echo;
mod echo_table;
mod events;
mod figures;
mod file;
mod kv;
mod link;
mod log;
mod memcpy;
mod plot;
mod processes;
mod proportional;
mod receiver;
mod relay;
mod report;
mod results;
mod rpc;
#[cfg(test)]
mod screens;
mod send;
mod send_plan;
mod sender;
mod sender_ways;
mod short;
mod simulate;
mod table;
mod views;
mod views_books;
mod views_loop;
mod warm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use figures::{Figure, FigureArgs};
use processes::Process;
use uncopy_measure::echo::EchoArgs;
use uncopy_measure::{Failure, build, variables, words};

const EXAMPLES: &str = "\
Examples:
  uncopy-bench echo --sizes 64K,512K --copies 1,4
  uncopy-bench rpc --connections 1,1000 --size 64,2K --wait sleep
  uncopy-bench short --rpcs 1,16,256 --connections 64
  uncopy-bench kv --connections 256 --wait sleep --api rings";

/// Measures plain against uncopy on this machine
#[derive(Parser)]
#[command(
    name = "uncopy-bench",
    version = build::SHORT,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES
)]
struct Words {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    #[command(
        about = "An echo server that copies every message before it sends the last copy back"
    )]
    Echo(EchoArgs),
    #[command(about = Figure::Copies.about())]
    Copies(FigureArgs),
    #[command(about = Figure::Sizes.about())]
    Sizes(FigureArgs),
    #[command(about = Figure::Threads.about())]
    Threads(FigureArgs),
    #[command(about = Figure::Faults.about())]
    Faults(FigureArgs),
    #[command(about = Figure::Misspeculation.about())]
    Misspeculation(FigureArgs),
    #[command(about = Figure::Touch.about())]
    Touch(FigureArgs),
    #[command(about = "What an elided copy costs over its size, among up to 100,000 live views")]
    Views(views::ViewsArgs),
    #[command(
        about = "Small requests between two programs: Linux' TCP against uncopy's, within this \
            host or over a device"
    )]
    Rpc(rpc::RpcArgs),
    #[command(
        about = "Connections that end after a few requests: Linux' loopback against uncopy's rings \
            (TAS, 3.3.1)"
    )]
    Short(short::ShortArgs),
    #[command(about = "A key-value store: Linux' loopback against uncopy's rings (TAS, 3.3.3)")]
    Kv(kv::KvArgs),
    #[command(
        about = "What is left of a link's rate where frames are lost: Linux' TCP and uncopy's \
            (TAS, 3.3.2)"
    )]
    Loss(link::loss::LossArgs),
    #[command(
        about = "How evenly flows from several hosts share a link: Linux' TCP and uncopy's (TAS, \
            3.3.5)"
    )]
    Incast(link::incast::IncastArgs),
    #[command(
        about = "Bulk over one link, from and to Linux' TCP and uncopy's, in all combinations"
    )]
    Bulk(link::bulk::BulkArgs),
    #[command(
        about = "Cores in use, rate and latency while clients come and go: Linux' TCP and uncopy's \
            (TAS, 3.3.6)"
    )]
    Proportional(proportional::ProportionalArgs),
    #[command(about = "What a message costs a source, relays and a sink: Linux' loopback against \
            uncopy's rings")]
    Relay(relay::RelayArgs),
    #[command(about = "What sending costs the sender: send, uncopy, zero copy")]
    Send(send::SendArgs),
    #[command(about = "What copying a file costs: to a socket, to a file, in Java")]
    File(file::FileArgs),
    #[command(about = "Appends to a file that are to be durable, plain and under 'run --log'")]
    Log(log::LogArgs),
    #[command(about = "All of these as a page with pictures, beside the paper")]
    Report(report::ReportArgs),
    #[command(about = "What a copy of ordinary memory costs through the library")]
    Memcpy(memcpy::MemcpyArgs),
    #[command(about = "Congestion control of the TCP service at scale, simulated (TAS, 3.3.5)")]
    Simulate(simulate::SimulateArgs),
    #[command(flatten)]
    Process(Process),
}

impl Mode {
    fn run(&self) -> Result<(), Failure> {
        if !matches!(self, Self::Process(_)) {
            variables::report(|_| false);
        }
        match self {
            Self::Echo(args) => echo::main(args),
            Self::Copies(args) => figures::main(Figure::Copies, args),
            Self::Sizes(args) => figures::main(Figure::Sizes, args),
            Self::Threads(args) => figures::main(Figure::Threads, args),
            Self::Faults(args) => figures::main(Figure::Faults, args),
            Self::Misspeculation(args) => figures::main(Figure::Misspeculation, args),
            Self::Touch(args) => figures::main(Figure::Touch, args),
            Self::Views(args) => views::main(args),
            Self::Rpc(args) => rpc::main(args),
            Self::Short(args) => short::main(args),
            Self::Kv(args) => kv::main(args),
            Self::Loss(args) => link::loss::main(args),
            Self::Incast(args) => link::incast::main(args),
            Self::Bulk(args) => link::bulk::main(args),
            Self::Proportional(args) => proportional::main(args),
            Self::Relay(args) => relay::main(args),
            Self::Send(args) => send::main(args),
            Self::File(args) => file::main(args),
            Self::Log(args) => log::main(args),
            Self::Report(args) => report::main(args),
            Self::Memcpy(args) => memcpy::main(args),
            Self::Simulate(args) => simulate::main(args),
            Self::Process(process) => process.run(),
        }
    }
}

fn main() -> ExitCode {
    match words::understood::<Words>() {
        Ok(words) => words::status(words.mode.run()),
        Err(status) => status,
    }
}
