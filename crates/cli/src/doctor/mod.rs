//! `uncopy doctor`: what this machine permits and costs, and what each missing thing costs.
//!
//! | file | one idea |
//! | --- | --- |
//! | `checks` | the kernel's features and permissions |
//! | `measured` | what is measured, and what the reference machine took |
//! | `copies` | copies that stay, over the distance of their ends |
//! | `memory_costs`, `page_costs`, `send_costs`, `books` | the measuring |
//! | `sample` | medians of short samples |
//! | `mapping` | memory to measure on |
//! | `derive` | from measurements to the prices of the cost model |
//! | `quick` | some prices in some milliseconds, for `uncopy profile` |
//! | `report`, `cells` | tables and JSON; how the tables look |

pub mod books;
mod cells;
pub mod checks;
pub mod copies;
mod derive;
mod mapping;
pub mod measured;
mod memory_costs;
mod page_costs;
pub mod quick;
pub mod report;
mod sample;
mod send_costs;

use std::process::ExitCode;
use std::thread;

use clap::{ArgMatches, Command};
use uncopy_measure::cache::{self, Cached};
use uncopy_measure::machine::{self, Machine};
use uncopy_measure::printable::printable;
use uncopy_measure::words::parsed;
use uncopy_measure::{Failure, cores, library, progress, userfaultfd};

pub use self::derive::FURTHEST;
use self::measured::Measured;
use self::report::{Kept, Report};

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
struct DoctorArgs {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Only show: do not keep the costs for 'uncopy run'
    #[arg(long, conflicts_with_all = ["busy", "forget"])]
    no_cache: bool,
    /// Keep the costs although the machine is busy, so that they may be wrong
    #[arg(long, conflicts_with = "forget")]
    busy: bool,
    /// Remove the costs that were kept, and measure nothing
    #[arg(long, conflicts_with = "json")]
    forget: bool,
}

/// Above this share of the processors in use by others, times are those of a crowd.
const BUSY: f64 = 0.5;

/// The subcommand.
pub fn command() -> Command {
    uncopy_measure::words::with_args::<DoctorArgs>(
        Command::new("doctor")
            .about("Show what this machine permits and costs, and keep the costs for 'uncopy run'")
            .after_help("Exit status: 0 if copies can be elided here, 1 if not."),
    )
}

/// Looks, measures, prints.
pub fn main(matches: &ArgMatches) -> ExitCode {
    match parsed(matches).and_then(|args| doctor(&args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            uncopy_measure::complain(&message);
            ExitCode::FAILURE
        }
    }
}

/// Returns whether copies can be elided here.
fn doctor(args: &DoctorArgs) -> Result<bool, Failure> {
    let path = cache::path();
    if args.forget {
        let none = || "there are no costs".to_owned();
        let text = match &path {
            Some(path) if cache::forget(path)? => format!("removed {}", printable(path)),
            Some(path) => format!("{} in {}", none(), printable(path)),
            None => none(),
        };
        uncopy_measure::print(&format!("{text}\n"))?;
        return Ok(true);
    }
    let machine = Machine::own();
    let cores = cores::available()?.len();
    let busy_share = machine::busy_share();
    // (Before anything else asks for it: a filter might end this process for that.)
    let uffd = userfaultfd::check();
    let checks = checks::all(&machine.kernel, cores);
    let pages = uffd.is_ok();
    let obstacle = library::find(None).err().or(uffd.err()).map(String::from);
    // In a thread of its own: it binds itself to cores.
    let results = thread::scope(|scope| scope.spawn(|| measure(pages)).join());
    let (results, copies) = results.map_err(|_| Failure::new("the measuring failed"))??;
    let costs = derive::costs(&results);
    let busy = busy_share > BUSY;
    let kept = match (&costs, path) {
        (None, _) => Kept::Not("they could not all be measured".to_owned()),
        _ if args.no_cache => Kept::Not("as told".to_owned()),
        _ if busy && !args.busy => Kept::Not(format!(
            "the machine is busy (others use {:.0}% of the processors), so they may be \
             wrong; run 'uncopy doctor' again when it is idle, or with --busy",
            busy_share * 100.0
        )),
        (_, None) => Kept::Not("there is no home directory".to_owned()),
        (Some(costs), Some(path)) => match cache::write(&path, &machine, costs) {
            Ok(()) => Kept::In(path),
            Err(why) => Kept::Not(why.to_string()),
        },
    };
    let in_use = match cache::path().map(|path| cache::read(&path, || machine.clone())) {
        Some(Cached::Costs(costs)) => Some(costs),
        _ => None,
    };
    let report = Report {
        machine,
        cores,
        busy_share,
        checks,
        obstacle,
        results,
        copies,
        costs,
        kept,
        in_use,
    };
    uncopy_measure::print(&if args.json { report.json() } else { report.text() })?;
    Ok(report.obstacle.is_none())
}

/// Pieces of work, for the progress bar: without userfaultfd, and with it.
const STEPS: [usize; 2] = [26 + copies::SIZES.len(), 72 + copies::SIZES.len()];

fn measure(pages: bool) -> Result<(Vec<Measured>, copies::Grid), Failure> {
    let bar = progress::bar(STEPS[usize::from(pages)]);
    bar.set_message("measuring");
    let mut results = Vec::new();
    let done = || bar.inc(1);
    let available = cores::available()?;
    cores::pin(available[0])?;
    let copies = copies::measure(done)?;
    memory_costs::measure(&mut results, done)?;
    books::measure(&mut results, done)?;
    if pages {
        page_costs::measure(&available, &mut results, done)?;
        send_costs::measure(&available, &mut results, done)?;
    }
    bar.finish_and_clear();
    results.sort_by_key(|m| (m.work, m.bytes));
    Ok((results, copies))
}
