//! A program's command line, and its end.

use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches, Parser};
use serde::de::DeserializeOwned;

use crate::outcome::{Outcome, complain};
use crate::printable::printable;

/// Exit status where the command line is not understood.
pub const MISUSED: u8 = 2;

/// This program's command line, or the status to end with; what is wrong is said.
///
/// # Errors
/// The command line is not understood.
pub fn understood<T: Parser>() -> Result<T, ExitCode> {
    match T::try_parse() {
        Ok(words) => Ok(words),
        Err(why) if why.use_stderr() => {
            // (It repeats words of the command line.)
            let text = why.render().to_string();
            text.lines().for_each(|line| eprintln!("{}", printable(line)));
            Err(ExitCode::from(MISUSED))
        }
        Err(help) => help.exit(),
    }
}

/// The status to end with; what went wrong is said.
pub fn status(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

/// What a hidden process is told, as JSON.
///
/// # Errors
/// The text is not of the type.
pub fn told<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
}

/// A subcommand with options. What the type of the options says about itself is not for the user:
/// `augment_args` would put it in the place of the subcommand's own sentence.
pub fn with_args<T: Args>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    T::augment_args(command).about(about)
}

/// Reads the options of a subcommand that was declared with clap's derive.
///
/// # Errors
/// They are not understood.
pub fn parsed<T: FromArgMatches>(matches: &clap::ArgMatches) -> Outcome<T> {
    T::from_arg_matches(matches).map_err(|e| e.to_string())
}
