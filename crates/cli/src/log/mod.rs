//! `uncopy log`: the log of this user's programs, seen from outside, recovered, or served in the
//! foreground.
//!
//! | file | one idea |
//! | --- | --- |
//! | `directory` | where the log is |
//! | `owner` | root recovers a user's log with that user's rights |
//! | `start` | a service is started where none answers |

pub mod directory;
mod owner;
pub mod start;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args, Command, ValueEnum};
use uncopy_log_service::place::NoPlace;
use uncopy_log_service::verify::{drop_logs, verify};
use uncopy_log_service::{Client, Options, Place, Report, Service, keeper};
use uncopy_log_store::Kind;
use uncopy_measure::printable::printable;
use uncopy_measure::words::{parsed, with_args};
use uncopy_measure::{Failure, failure, values};

/// How often it is looked whether a service has ended.
const SOON: Duration = Duration::from_millis(200);

/// Where the log is.
#[derive(Args, Clone, Debug)]
struct Where {
    /// The log's directory [default: $XDG_STATE_HOME/uncopy/log, ~/.local/state/uncopy/log; of root
    /// without a home /var/lib/uncopy/log]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Where its bytes lie.
#[derive(Args, Clone, Debug)]
struct Stored {
    /// Where the log's bytes lie
    #[arg(long, value_name = "HOW", default_value = "direct")]
    store: Stores,
}

/// Stores, as they are named.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Stores {
    /// A preallocated file, written past the page cache
    Direct,
    /// Persistent memory, mapped with MAP_SYNC
    Dax,
    /// A file that is never flushed: outlives programs, not a loss of power
    Memory,
}

impl Stores {
    fn kind(self) -> Kind {
        match self {
            Self::Direct => Kind::Direct,
            Self::Dax => Kind::Dax,
            Self::Memory => Kind::Memory,
        }
    }
}

/// The options of `uncopy log serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    stored: Stored,
    /// Length of a program's log
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = values::size)]
    log_size: usize,
    /// End when no program has been there for so long; without it, only when interrupted
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    until_idle: Option<Duration>,
}

/// The options of commands that look at a log.
#[derive(Args, Clone, Debug)]
struct LookArgs {
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    stored: Stored,
}

/// The options of `uncopy log recover`.
#[derive(Args, Clone, Debug)]
struct RecoverArgs {
    #[command(flatten)]
    look: LookArgs,
    /// As root, with the rights of the directory's owner only; nothing is done where it is not
    /// there (for a unit that runs at boot: uncopy-log@.service)
    #[arg(long, requires = "directory")]
    as_owner: bool,
}

/// The options of commands that ask the service.
#[derive(Args, Clone, Debug)]
struct AskArgs {
    #[command(flatten)]
    at: Where,
}

/// The subcommand.
pub fn command() -> Command {
    let of = |name: &'static str, about: &'static str| Command::new(name).about(about);
    Command::new("log")
        .about("The log that takes programs' appends before their files do")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(with_args::<AskArgs>(of("status", "What is held, and why other files are not")))
        .subcommand(with_args::<RecoverArgs>(of(
            "recover",
            "Bring home what a crash left; status 1 if some of it had to be put aside",
        )))
        .subcommand(with_args::<LookArgs>(of(
            "digest",
            "Bring all home that is held, durably: before a snapshot or a backup",
        )))
        .subcommand(with_args::<LookArgs>(of("verify", "Check the logs, and change nothing")))
        .subcommand(with_args::<LookArgs>(of(
            "drop",
            "Bring home what is left, and remove the logs",
        )))
        .subcommand(with_args::<ServeArgs>(of("serve", "Run the service in the foreground")))
}

/// Runs what was asked for.
pub fn main(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand().expect("clap demands a subcommand") {
        ("status", matches) => status(&parsed(matches)?),
        ("recover", matches) => recovered(&parsed(matches)?),
        ("digest", matches) => digest(&parsed(matches)?),
        ("verify", matches) => verified(&parsed(matches)?),
        ("drop", matches) => dropped(&parsed(matches)?),
        ("serve", matches) => serve(&parsed(matches)?),
        _ => unreachable!("clap knows only the subcommands above"),
    }
}

impl Where {
    fn place(&self) -> Result<Place, Failure> {
        let path = directory::chosen(self.directory.as_deref())?;
        Place::open(&path).map_err(Failure::new)
    }
}

fn no_service(place: &Place, why: rustix_errno::Errno) -> Failure {
    failure!("{}: no service answers", place.path().display())
        .because(rustix_errno::text(why))
        .advise("a program under 'uncopy run --log' starts one")
}

fn status(args: &AskArgs) -> Result<(), Failure> {
    let place = args.at.place()?;
    let text = Client::status(place.path()).map_err(|why| no_service(&place, why))?;
    uncopy_measure::print(&text)
}

/// Says what a recovery did.
pub fn say(report: &Report) {
    report.said.iter().for_each(|line| eprintln!("uncopy log: {}", printable(line)));
}

fn recover_at(place: &Place, kind: Kind) -> Result<(), Failure> {
    let report = start::recovered(place, kind).map_err(|why| match why {
        NoPlace::Busy(_) if Client::is_served(place.path()) => failure!(
            "{}: its service runs, and has recovered what a crash had left",
            place.path().display()
        )
        .advise("'uncopy log digest' brings home what is held now"),
        why => Failure::new(why),
    })?;
    say(&report);
    let path = place.path().display();
    if report.kept.is_some() {
        return Err(
            failure!("{path}: not all could be recovered").advise("what is left is where it was")
        );
    }
    if report.lost {
        return Err(failure!("{path}: some bytes had to be put aside"));
    }
    Ok(())
}

fn recovered(args: &RecoverArgs) -> Result<(), Failure> {
    let RecoverArgs { look, as_owner } = args;
    if let Some(directory) = look.at.directory.as_deref().filter(|_| *as_owner)
        && !owner::becomes_owner_of(directory)?
    {
        eprintln!("uncopy log: {}: there is none, so there is nothing to do", directory.display());
        return Ok(());
    }
    recover_at(&look.at.place()?, look.stored.store.kind())
}

fn digest(args: &LookArgs) -> Result<(), Failure> {
    let place = args.at.place()?;
    if !Client::is_served(place.path()) {
        return recover_at(&place, args.stored.store.kind());
    }
    let path = place.path().display();
    Client::digest(place.path()).map_err(|why| {
        failure!("{path}: not all is home")
            .because(rustix_errno::text(why))
            .advise("'uncopy log status' says of what")
    })
}

fn verified(args: &LookArgs) -> Result<(), Failure> {
    let place = args.at.place()?;
    let (text, sound) = verify(&place, args.stored.store.kind());
    uncopy_measure::print(&text)?;
    if sound { Ok(()) } else { Err(failure!("{}: not all is sound", place.path().display())) }
}

/// Waits for the end of a service that has no programs any more.
fn await_end(place: &Place) -> Result<(), Failure> {
    let path = place.path().display();
    let begun = Instant::now();
    while Client::is_served(place.path()) {
        if begun.elapsed() > start::IDLE + Duration::from_secs(2) {
            return Err(failure!("{path}: its service runs, for programs that use it")
                .advise("'uncopy log status' says what is held"));
        }
        if begun.elapsed() < SOON {
            eprintln!(
                "uncopy log: {path}: waits for its service, which ends {} s after the last program",
                start::IDLE.as_secs()
            );
        }
        std::thread::sleep(SOON);
    }
    Ok(())
}

fn dropped(args: &LookArgs) -> Result<(), Failure> {
    let place = args.at.place()?;
    await_end(&place)?;
    recover_at(&place, args.stored.store.kind())?;
    let dropped = drop_logs(&place).map_err(Failure::new)?;
    uncopy_measure::print(&format!("{}: {dropped} logs removed\n", place.path().display()))
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let path = directory::chosen(args.at.directory.as_deref())?;
    let place = Place::make(&path).map_err(Failure::new)?;
    let kind = args.stored.store.kind();
    let log_size = args.log_size as u64;
    let options = Options { log_size, kind, until_idle: args.until_idle };
    // SAFETY: nothing has made a thread yet.
    let keeper = unsafe { keeper::start(place.path(), kind) };
    let (service, report) = Service::begin(place, options).map_err(Failure::new)?;
    say(&report);
    if kind == Kind::Memory {
        eprintln!("uncopy log: the store is `memory`: nothing outlives a loss of power");
    }
    let ran = service.run().map_err(Failure::new);
    drop(keeper);
    ran
}

/// Errors of the kernel's, as people read them.
mod rustix_errno {
    pub use uncopy_log_service::Errno;

    pub fn text(why: Errno) -> String {
        std::io::Error::from_raw_os_error(why.raw_os_error()).to_string()
    }
}
