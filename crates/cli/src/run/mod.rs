//! `uncopy run`: executes a program with the library in front, after checking that it can be.

pub mod checks;
pub mod environment;
pub mod exec;
mod log;
pub mod program;
mod record;
mod tcp;

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use uncopy_measure::printable::printable;
use uncopy_measure::{Failure, cache, failure, library, nearest, userfaultfd, variables};
use uncopy_options::{self as options, Kind, OPTIONS, Spec};
use uncopy_stats::family;

use self::environment::Environment;

/// The subcommand, with an option for every row of the table.
pub fn command() -> Command {
    let command = Command::new("run")
        .about("Run a program without its copies")
        .override_usage("uncopy run [OPTIONS] -- CMD [ARGS]...")
        .after_help(
            "Exit status: the program's own; 127 if CMD is not found, 126 if it cannot be \
             executed, 125 if --require refused.",
        )
        .arg(Arg::new("require").long("require").action(ArgAction::SetTrue).help(
            "Refuse with status 125 where the program could only be run plainly, and with --tcp \
             where there is no service and none can be started",
        ))
        .arg(
            Arg::new("record")
                .long("record")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help(
                    "Record what the program does that matters to uncopy, for those who work on \
                     it: 16 MB at most for each process",
                ),
        )
        .arg(command_words());
    log::with_options(with_options(command))
}

/// The subcommand with the library's options: its path, and every row of the table.
pub(crate) fn with_options(command: Command) -> Command {
    let library = Arg::new("library")
        .long("library")
        .value_name("PATH")
        .value_parser(value_parser!(PathBuf))
        .help(
            "The preload library [env: UNCOPY_LIBRARY] [default: next to uncopy, or \
             ../lib/uncopy/]",
        );
    OPTIONS.iter().fold(command.arg(library), |command, spec| {
        let arg = Arg::new(spec.name)
            .long(spec.name)
            .value_parser(move |text: &str| {
                options::parse(spec, text).map_err(|bad| variables::explain(spec, bad))
            })
            .help(format!(
                "{} [env: {}] [default: {}]",
                spec.help,
                spec.env,
                variables::default_text(spec)
            ));
        command.arg(match spec.kind {
            Kind::Flag | Kind::FlagOr(_) => arg
                .value_name(variables::range(spec).replace(", ", "|"))
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("yes"),
            Kind::Word(_) => arg.value_name(variables::range(spec).replace(", ", "|")),
            Kind::Bytes => arg.value_name("BYTES"),
            Kind::Count => arg.value_name("N"),
        })
    })
}

/// The rows of the table that have a value on the command line, with it.
pub(crate) fn given(matches: &ArgMatches) -> impl Iterator<Item = (&'static Spec, u64)> {
    OPTIONS.iter().filter_map(|spec| Some((spec, *matches.get_one::<u64>(spec.name)?)))
}

/// The program to be started and its arguments.
pub(crate) fn command_words() -> Arg {
    Arg::new("command")
        .value_name("CMD")
        .value_parser(value_parser!(OsString))
        .num_args(1..)
        .required(true)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .value_hint(ValueHint::CommandWithArguments)
        .help("The program and its arguments")
}

/// The program and its arguments, from `uncopy`'s own. A word that looks like an option and is none
/// would be taken for the program's name, unless `--` stands before it; the error says so.
pub(crate) fn program_words(
    command: &Command,
    matches: &ArgMatches,
    all: impl ExactSizeIterator<Item = OsString>,
) -> Result<Vec<OsString>, Failure> {
    let words: Vec<OsString> =
        matches.get_many("command").expect("clap demands a command").cloned().collect();
    let first = words[0].to_string_lossy();
    let before = all.len().checked_sub(words.len() + 1);
    let behind_dashes = before.and_then(|at| { all }.nth(at)).is_some_and(|word| word == "--");
    if first.len() < 2 || !first.starts_with('-') || behind_dashes {
        return Ok(words);
    }
    let given = first.split('=').next().unwrap_or_default();
    let names: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    let hint = nearest::name(given.trim_start_matches('-'), &names).map_or_else(
        || format!("'uncopy {} --help' lists the options", command.get_name()),
        |near| format!("did you mean --{near}?"),
    );
    Err(failure!("unknown option {given}").advise(hint))
}

/// Executes the program; comes back only if that cannot be done.
pub fn main(matches: &ArgMatches) -> ExitCode {
    let words = match program_words(&command(), matches, std::env::args_os()) {
        Ok(words) => words,
        Err(why) => {
            uncopy_measure::complain(&why);
            return ExitCode::from(uncopy_measure::words::MISUSED);
        }
    };
    let mut environment = Environment::own();
    for complaint in variables::report(|env| given(matches).any(|(spec, _)| spec.env == env)) {
        if complaint.drop {
            environment.remove(&complaint.name);
        }
    }

    let name = printable(&words[0]);
    let found = program::find(&words[0], environment.get("PATH"));
    let found = found.and_then(|file| program::loaded(&file).map(|loaded| (file, loaded)));
    let (file, loaded) = match found {
        Ok(files) => files,
        Err(why) => {
            uncopy_measure::complain(why.text.within(name));
            return ExitCode::from(why.status);
        }
    };

    let record = match matches.get_one::<PathBuf>("record").map(|file| record::make_room(file)) {
        Some(Err(why)) => {
            uncopy_measure::complain(&why);
            return ExitCode::from(uncopy_measure::words::MISUSED);
        }
        Some(Ok(file)) => Some(file),
        None => None,
    };
    let requested = matches.get_one::<PathBuf>("library").map(PathBuf::as_path);
    let library = library::find(requested);
    let mut obstacles: Vec<Failure> = [checks::obstacle(&loaded), library.as_ref().err().cloned()]
        .into_iter()
        .flatten()
        .collect();
    let required = matches.get_flag("require");
    match userfaultfd::check() {
        // Rings need none.
        Err(why) if (wants_tcp(matches, &environment) || log::is_wanted(matches)) && !required => {
            uncopy_measure::complain(why.within("nothing is elided"));
        }
        Err(why) => obstacles.push(why),
        Ok(()) => {}
    }
    if required
        && wants_tcp(matches, &environment)
        && let Ok(library) = &library
    {
        let name = environment.get(options::TCP_SERVICE).and_then(OsStr::to_str);
        obstacles.extend(tcp::obstacle(name, library));
    }
    let log = log::wanted(matches).and_then(|wanted| match wanted {
        Ok(log) => Some(log),
        Err(why) if required => {
            obstacles.push(why);
            None
        }
        Err(why) => {
            uncopy_measure::complain(why.within("no log"));
            None
        }
    });
    let consequence = if required { "refused" } else { "running plainly" };
    for obstacle in &obstacles {
        uncopy_measure::complain(obstacle.clone().within(consequence));
    }
    match library {
        Ok(library) if obstacles.is_empty() => {
            prepare(&mut environment, &library);
            if environment.get(options::COSTS).is_none()
                && let Some(costs) = cache::handed_on()
            {
                environment.set(options::COSTS, costs);
            }
            for (spec, value) in given(matches) {
                environment.set(spec.env, options::text(spec, value));
            }
            if required {
                // (The program is what this process becomes.)
                environment.set(options::REQUIRED_OF, std::process::id().to_string());
            }
            if let Some(file) = record {
                environment.set(options::RECORD, file);
            }
            if let Some(told) = log {
                environment.set(options::LOG, told.directory);
                // (If the command line does not say, a variable stays as it is: the user's, or that
                // of a program around this one.)
                if let Some(answers) = told.answers {
                    environment
                        .set(options::LOG_SYNC, if answers { log::ANSWERS } else { log::CALL });
                }
                let answers = environment.get(options::LOG_SYNC);
                let answers = answers.is_some_and(|how| how == log::ANSWERS);
                if answers && wants_tcp(matches, &environment) {
                    uncopy_measure::complain(
                        Failure::new("with --tcp syncs are as ever, and answers do not wait")
                            .advise("leave out --tcp, or --log-sync=answers"),
                    );
                }
                if let Some(files) = told.files {
                    environment.set(options::LOG_FILES, files);
                }
            }
            sum_up(&mut environment);
        }
        _ if required => return ExitCode::from(options::REFUSED),
        _ => {}
    }

    let error = exec::exec(&file, &words, &environment);
    uncopy_measure::complain(failure!("{name}: cannot be executed").because(&error));
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Connections within this host are to go through shared memory.
fn wants_tcp(matches: &ArgMatches, environment: &Environment) -> bool {
    const TCP: &Spec = &OPTIONS[options::index_of("tcp")];
    let variable = || environment.get(TCP.env).and_then(OsStr::to_str);
    let given = matches.get_one::<u64>(TCP.name).copied();
    given.or_else(|| options::parse(TCP, variable()?).ok()).unwrap_or(TCP.default) != 0
}

/// Puts `library` into a program's environment.
fn prepare(environment: &mut Environment, library: &Path) {
    let preload = library::preload_value(library, environment.get(library::PRELOAD));
    environment.set(library::PRELOAD, preload);
    environment.set(library::VARIABLE, library);
}

/// With `--verbose` all that the program starts is summed up with it, unless the program is itself
/// part of such a sum.
fn sum_up(environment: &mut Environment) {
    const VERBOSE: &Spec = &OPTIONS[options::index_of("verbose")];
    let text = environment.get(VERBOSE.env).and_then(OsStr::to_str).unwrap_or_default();
    if options::parse(VERBOSE, text) != Ok(options::VERBOSE)
        || environment.get(options::SUMMARY).is_some()
    {
        return;
    }
    let session =
        environment.get("XDG_RUNTIME_DIR").and_then(|path| CString::new(path.as_bytes()).ok());
    let file = family::make(session).map(|file| OsString::from_vec(file.into_bytes()));
    environment.set(options::SUMMARY, file.unwrap_or_else(|| family::without_file().into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(words: &[&str]) -> Result<ArgMatches, clap::Error> {
        command().try_get_matches_from([&["run"], words].concat())
    }

    #[test]
    fn every_row_of_the_table_is_an_option() {
        for spec in OPTIONS {
            let least = options::text(spec, spec.min);
            let found = matches(&[&format!("--{}={least}", spec.name), "--", "true"]).unwrap();
            assert_eq!(found.get_one::<u64>(spec.name), Some(&spec.min), "{}", spec.name);
        }
        assert!(matches(&["--threshold=1", "--", "true"]).is_err());
    }

    #[test]
    fn the_programs_own_options_stay_its_own() {
        let found =
            matches(&["--verbose", "--threshold", "64K", "ls", "--verbose=no", "-l"]).unwrap();
        assert_eq!(found.get_one::<u64>("verbose"), Some(&1));
        assert_eq!(found.get_one::<u64>("threshold"), Some(&65536));
        let words: Vec<&OsString> = found.get_many("command").unwrap().collect();
        assert_eq!(words, ["ls", "--verbose=no", "-l"]);
    }
}
