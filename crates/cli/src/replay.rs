//! `uncopy replay`, for those who work on uncopy: what other controllers would have made of what
//! `uncopy run --record` has recorded.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use uncopy_decide::{Choice, Costs};
use uncopy_measure::words::parsed;
use uncopy_measure::{Failure, failure, print, printable};
use uncopy_replay::{CHOICES, Stage, Unseen, table};
use uncopy_trace::Trace;

/// Its name.
pub const NAME: &str = "replay";

#[derive(Debug, Args)]
struct ReplayArgs {
    /// Recordings of 'uncopy run --record'
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Who decides: accounts, always, never, from=BYTES; as often as you like [default: all]
    #[arg(long = "controller", value_name = "NAME", value_parser = choice)]
    controllers: Vec<Choice>,

    /// Do the second half of each recording again until the program has used so much processor
    /// time: experiments take longer than a short recording
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 2000,
        value_parser = clap::value_parser!(u64).range(0..=1_000_000),
    )]
    cpu: u64,

    /// What things cost, instead of what is recorded: as UNCOPY_COSTS
    #[arg(long, value_name = "NAME=NS,...",
          value_parser = |text: &str| Costs::parse(text).map_err(Failure::new))]
    costs: Option<Costs>,

    /// Print the entries instead
    #[arg(long)]
    entries: bool,
}

fn choice(text: &str) -> Result<Choice, Failure> {
    Choice::parse(text).ok_or_else(|| {
        Failure::new("no controller is called so")
            .advise(format_args!("there are {}", Choice::NAMES))
    })
}

/// The subcommand.
pub fn command() -> Command {
    let about = "Show what other controllers would have made of recordings";
    ReplayArgs::augment_args(Command::new(NAME).hide(true)).about(about)
}

/// Prints a table for each recording.
pub fn main(matches: &clap::ArgMatches) -> Result<(), Failure> {
    let args: ReplayArgs = parsed(matches)?;
    let stage = Stage::new();
    let choices = if args.controllers.is_empty() { CHOICES } else { &args.controllers };
    for (i, file) in args.files.iter().enumerate() {
        let mut trace = read(file)?;
        if let Some(costs) = args.costs {
            trace.start.costs = costs;
        }
        let text = if args.entries {
            trace
                .entries
                .iter()
                .map(|e| format!("{:>12} {:>12} {:?}\n", e.at.wall, e.at.cpu, e.what))
                .collect()
        } else {
            // (The program's name is its own.)
            for name in [&mut trace.start.command, &mut trace.start.controller] {
                *name = printable::printable(&*name);
            }
            table(&trace, &stage, &[args.cpu * 1_000_000], Unseen::default(), choices)
        };
        print(&format!("{}{text}", if i > 0 { "\n" } else { "" }))?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Trace, Failure> {
    let bytes =
        std::fs::read(file).map_err(|e| failure!("cannot read {}", file.display()).because(e))?;
    Trace::read(&bytes).map_err(|why| failure!("{}: {why}", file.display()))
}
