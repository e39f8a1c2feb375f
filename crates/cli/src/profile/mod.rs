//! `uncopy profile`: runs a program as it is, follows its data, and says where it is copied.

pub mod html;
pub mod json;
mod model;
mod picture;
pub mod prices;
mod process;
#[cfg(test)]
pub mod screens;
pub mod text;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tempfile::TempDir;
use uncopy_flow::layout::WORDS;
use uncopy_flow::part::Part;
use uncopy_measure::printable::printable;
use uncopy_measure::values::BadValue;
use uncopy_measure::{Failure, failure, library, units};
use uncopy_options::{self as options, OPTIONS, index_of};

use self::prices::Prices;
use crate::run::environment::Environment;
use crate::run::{checks, program};

/// Exit status when the program cannot be followed.
const REFUSED: u8 = 125;

/// The subcommand.
pub fn command() -> Command {
    Command::new("profile")
        .about("Show where a program copies its I/O data, and what uncopy would save")
        .override_usage("uncopy profile [OPTIONS] -- CMD [ARGS]...")
        .after_help(
            "The program runs as it is: no copy is elided. The report goes to standard error, or \
             where -o says. Exit status: the program's own; 127 and 126 if CMD cannot be executed, \
             125 if it cannot be followed.",
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write the report to FILE"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Report as JSON: an object a line, one for each program"),
        )
        .arg(
            Arg::new("html")
                .long("html")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Also write a page with a picture of the flow"),
        )
        .arg(
            Arg::new("duration")
                .long("duration")
                .value_name("SECONDS")
                .value_parser(value_parser!(f64))
                .help("End the program (SIGTERM) after so long, with all that it started"),
        )
        .arg(
            Arg::new("min")
                .long("min")
                .value_name("BYTES")
                .default_value("512")
                .value_parser(|text: &str| units::parse_size(text).and_then(in_range))
                .help("Follow inputs and copies of at least so many bytes (16..64K)"),
        )
        .arg(
            Arg::new("touch")
                .long("touch")
                .value_name("yes|no")
                .default_value("yes")
                .value_parser(["yes", "no"])
                .help("Take pages of some inputs away to see which the program touches"),
        )
        .arg(crate::run::command_words())
}

fn in_range(least: usize) -> Result<usize, BadValue> {
    if (16..=64 << 10).contains(&least) { Ok(least) } else { Err(BadValue::Range("16..64K")) }
}

/// Runs the program, reports, and ends as it did.
pub fn main(matches: &ArgMatches) -> ExitCode {
    let words = match crate::run::program_words(&command(), matches, std::env::args_os()) {
        Ok(words) => words,
        Err(why) => {
            uncopy_measure::complain(&why);
            return ExitCode::from(uncopy_measure::words::MISUSED);
        }
    };
    let mut environment = Environment::own();
    let name = printable(&words[0]);
    let found = program::find(&words[0], environment.get("PATH"));
    let found = found.and_then(|file| program::loaded(&file).map(|loaded| (file, loaded)));
    let (file, loaded) = match found {
        Ok(files) => files,
        Err(why) => {
            uncopy_measure::complain(why.text.within(&name));
            return ExitCode::from(why.status);
        }
    };
    let prepared = checks::obstacle(&loaded).map_or_else(library::find_profiler, Err);
    let prepared = prepared.and_then(|library| Ok((library, directory()?)));
    let (library, parts) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            uncopy_measure::complain(why.within("cannot profile"));
            return ExitCode::from(REFUSED);
        }
    };
    let preload = library::preload_value(&library, environment.get(library::PRELOAD));
    environment.set(library::PRELOAD, preload);
    environment.set(options::PROFILE, parts.path());
    let least = matches.get_one::<usize>("min").copied().unwrap_or(512);
    environment.set(options::PROFILE_LEAST, least.to_string());
    let touch = matches.get_one::<String>("touch").is_none_or(|t| t == "yes");
    environment.set(options::PROFILE_TOUCH, if touch { "1" } else { "0" });

    // (Before the program takes any of the processor.)
    let prices = Prices::find();
    let seconds = matches.get_one::<f64>("duration").copied();
    let duration =
        seconds.map(|s| Duration::try_from_secs_f64(s).unwrap_or(Duration::from_secs(0)));
    let ended = process::run(&file, &words, &environment, duration, || pids(parts.path()));
    let ended = match ended {
        Ok(ended) => ended,
        Err(why) => {
            uncopy_measure::complain(why.within(name));
            return ExitCode::from(126);
        }
    };
    if let Err(why) = report(matches, &read(parts.path()), &prices) {
        uncopy_measure::complain(&why);
    }
    drop(parts);
    ended.like_it()
}

fn report(matches: &ArgMatches, parts: &[Part], prices: &Prices) -> Result<(), Failure> {
    let threshold = OPTIONS[index_of("threshold")].default as usize;
    let programs = model::programs(parts, &prices.costs, threshold);
    let text = if matches.get_flag("json") {
        json::lines(&programs, prices)
    } else {
        text::report(&programs, prices)
    };
    match matches.get_one::<PathBuf>("output") {
        Some(path) => write(path, &text)?,
        None => eprint!("{text}"),
    }
    match matches.get_one::<PathBuf>("html") {
        Some(path) => write(path, &html::page(&programs, prices)),
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|e| failure!("{} cannot be written", path.display()).because(e))
}

/// Makes the directory for the parts, in memory where that is possible. Processes of root's may
/// change their user and start others, so then everybody may make files in it (but not list it, or
/// touch those of others).
fn directory() -> Result<TempDir, Failure> {
    // SAFETY: asks for a number.
    let mode = if unsafe { libc::geteuid() } == 0 { 0o1733 } else { 0o700 };
    let made = |base: &Path| {
        let made =
            tempfile::Builder::new().prefix("uncopy-profile-").rand_bytes(16).tempdir_in(base)?;
        std::fs::set_permissions(made.path(), std::fs::Permissions::from_mode(mode))?;
        Ok(made)
    };
    let made = made(Path::new("/dev/shm")).or_else(|_| made(&std::env::temp_dir()));
    made.map_err(|e: std::io::Error| {
        Failure::new("no directory for what is found can be made").because(e)
    })
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let regular = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_file()));
    let mut files: Vec<PathBuf> = regular.map(|e| e.path()).collect();
    files.sort();
    files
}

fn read(directory: &Path) -> Vec<Part> {
    files(directory).iter().filter_map(|path| Part::read(&content(path)?)).collect()
}

/// As much as a part has, and one byte more: what is longer is none (others may make files there).
fn content(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = (WORDS * size_of::<u64>()) as u64 + 1;
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The processes that have left parts so far.
fn pids(directory: &Path) -> Vec<i32> {
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse().ok();
    files(directory).iter().filter_map(number).collect()
}
