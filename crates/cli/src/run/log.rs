//! `uncopy run --log`: what a crash left is recovered before the program starts, and a service
//! answers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use uncopy_log_store::Kind;
use uncopy_measure::{Failure, values};
use uncopy_options as options;

use crate::log::{directory, start};

/// The values of `--log-sync`, and of [`options::LOG_SYNC`].
pub(super) const ANSWERS: &str = "answers";
pub(super) const CALL: &str = "call";

/// The settings that the program is told.
pub(super) struct Log {
    pub(super) directory: PathBuf,
    pub(super) files: Option<OsString>,
    /// Answers are to wait for syncs, and not the program. `None`: the command line does not say.
    pub(super) answers: Option<bool>,
}

/// The subcommand with the log's options.
pub(super) fn with_options(command: Command) -> Command {
    command
        .arg(
            Arg::new("log")
                .long("log")
                .value_name("DIR")
                // (Not a PathBuf: clap has no empty ones, and `--log` alone is one.)
                .value_parser(value_parser!(OsString))
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("")
                .help(
                    "Hold appends to files back, and make small syncs durable by a log in DIR, on \
                     the files' own file system; what a crash left there is recovered first \
                     [default DIR: $XDG_STATE_HOME/uncopy/log or ~/.local/state/uncopy/log]",
                ),
        )
        .arg(
            Arg::new("log-size")
                .long("log-size")
                .value_name("BYTES")
                .requires("log")
                .default_value("64M")
                .value_parser(values::size)
                .help("Length of a program's log, where it is made"),
        )
        .arg(
            Arg::new("log-files")
                .long("log-files")
                .value_name("GLOB")
                .requires("log")
                .value_parser(value_parser!(OsString))
                .help(
                    "Only files of these names, or with a slash these paths: patterns with * and \
                     ?, separated by colons",
                ),
        )
        .arg(
            Arg::new("log-sync")
                .long("log-sync")
                .value_name("HOW")
                .requires("log")
                .value_parser([CALL, ANSWERS])
                .help(format!(
                    "When a sync of a held file returns: once it is durable (call), or at once, \
                     and all that leaves the program waits until it is (answers) [env: {}] \
                     [default: {CALL}]",
                    options::LOG_SYNC
                )),
        )
        .arg(
            Arg::new("log-store")
                .long("log-store")
                .value_name("HOW")
                .requires("log")
                .default_value("direct")
                .value_parser(["direct", "dax", "memory"])
                .help(
                    "Where the log's bytes lie: a preallocated file, persistent memory, or a file \
                     that is never flushed (for tests)",
                ),
        )
}

/// A log is asked for.
pub(super) fn is_wanted(matches: &ArgMatches) -> bool {
    matches.contains_id("log")
}

/// What the command line says of answers: see [`Log::answers`].
fn answers(matches: &ArgMatches) -> Option<bool> {
    matches.get_one::<String>("log-sync").map(|how| how == ANSWERS)
}

/// The log that is asked for, once its service answers; or why there is none.
pub(super) fn wanted(matches: &ArgMatches) -> Option<Result<Log, Failure>> {
    is_wanted(matches).then(|| made(matches))
}

fn made(matches: &ArgMatches) -> Result<Log, Failure> {
    let named = matches.get_one::<OsString>("log").filter(|path| !path.is_empty());
    let directory = directory::chosen(named.map(Path::new))?;
    let size = *matches.get_one::<usize>("log-size").expect("it has a default") as u64;
    let kind = matches.get_one::<String>("log-store").and_then(|name| Kind::of(name));
    let kind = kind.ok_or_else(|| Failure::new("no such store"))?;
    if kind == Kind::Memory {
        uncopy_measure::complain(
            Failure::new("the log's store is `memory`: it does not outlive a loss of power")
                .advise("--log-store=direct does"),
        );
    }
    start::ensure(&directory, size, kind)?;
    let directory = directory.canonicalize();
    let directory =
        directory.map_err(|why| Failure::new("the log's directory cannot be used").because(why))?;
    Ok(Log {
        directory,
        files: matches.get_one::<OsString>("log-files").cloned(),
        answers: answers(matches),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_without_a_directory_is_this_users_own() {
        let of = |words: &[&str]| {
            let command = with_options(Command::new("run").arg(Arg::new("words").num_args(0..)));
            let matches = command.try_get_matches_from([&["run"], words].concat()).unwrap();
            (is_wanted(&matches), matches.get_one::<OsString>("log").cloned())
        };
        assert_eq!(of(&["--", "true"]), (false, None));
        assert_eq!(of(&["--log", "--", "true"]), (true, Some("".into())));
        assert_eq!(of(&["--log=/srv/log", "--", "true"]), (true, Some("/srv/log".into())));
    }
}
