//! A program's command line, and its end.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Command, FromArgMatches, Parser};
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::outcome::complain;
use crate::printable::printable;

/// Exit status where the command line is not understood.
pub const MISUSED: u8 = 2;

/// This program's command line, or the status to end with; what is wrong is said.
///
/// # Errors
/// The command line is not understood.
pub fn understood<T: Parser>() -> Result<T, ExitCode> {
    T::try_parse().map_err(misunderstood)
}

/// Says what is wrong with a command line, and gives the status to end with. Help that was asked
/// for is printed, and ends the process.
pub fn misunderstood(why: clap::Error) -> ExitCode {
    if !why.use_stderr() {
        why.exit();
    }
    let text = why.render().to_string();
    if why.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        text.lines().for_each(|line| eprintln!("{}", printable(line)));
    } else {
        complain(in_form(&text));
    }
    ExitCode::from(MISUSED)
}

/// clap's message of several paragraphs, in the form of all other failures.
fn in_form(text: &str) -> Failure {
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let wrong = paragraphs.next().unwrap_or_default();
    let mut lines = wrong.strip_prefix("error: ").unwrap_or(wrong).lines().map(str::trim);
    let what = lines.next().unwrap_or_default().to_owned();
    let (known, named): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with('['));
    let what = [what, named.join(", ")].join(" ");
    let (mut tips, mut help) = (Vec::new(), "--help".to_owned());
    for line in paragraphs.flat_map(str::lines).map(str::trim) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            tips.push(tip);
        }
        if let Some(usage) = line.strip_prefix("Usage: ") {
            let words = usage.split(' ').take_while(|word| !word.starts_with(['[', '<', '-']));
            let length: usize = words.map(|word| word.len() + 1).sum();
            help = format!("{} --help", &usage[..length.saturating_sub(1).min(usage.len())]);
        }
    }
    let (what, advice) = match what.trim().split_once("; ") {
        Some((what, advice)) => (what.to_owned(), Some(advice.to_owned())),
        None => (what.trim().to_owned(), None),
    };
    let failure = Failure::new(what);
    let failure = match known.first() {
        Some(known) => failure.because(known.trim_matches(['[', ']'])),
        None => failure,
    };
    match advice.or_else(|| (!tips.is_empty()).then(|| tips.join(", "))) {
        Some(advice) => failure.advise(advice),
        None => failure.advise(format_args!("'{help}' lists what there is")),
    }
}

/// The status to end with; what went wrong is said.
pub fn status(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

/// The orders of a hidden process, as JSON.
///
/// # Errors
/// The text is not of the type.
pub fn told<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
}

/// A subcommand with options. The doc comment of the options' type is not for the user:
/// `augment_args` would put it in the place of the subcommand's own sentence.
pub fn with_args<T: Args>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    T::augment_args(command).about(about)
}

/// Reads the options of a subcommand that was declared with clap's derive.
///
/// # Errors
/// They are not understood.
pub fn parsed<T: FromArgMatches>(matches: &clap::ArgMatches) -> Result<T, Failure> {
    T::from_arg_matches(matches).map_err(|why| in_form(&why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn an_error_of_claps_in_paragraphs_is_one_line_with_what_to_do() {
        let command = || {
            Command::new("uncopy").subcommand(
                Command::new("log")
                    .arg(Arg::new("store").long("store").value_parser(["direct", "dax"]))
                    .arg(Arg::new("size").long("size").value_parser(crate::values::size))
                    .arg(Arg::new("where").required(true)),
            )
        };
        let said = |words: &[&str]| {
            let why = command().try_get_matches_from([&["uncopy"], words].concat()).unwrap_err();
            in_form(&why.render().to_string()).to_string()
        };
        assert_eq!(
            said(&["log", "--stroe", "dax", "."]),
            "unexpected argument '--stroe' found; a similar argument exists: '--store'"
        );
        assert_eq!(
            said(&["log"]),
            "the following required arguments were not provided: <where>; \
             'uncopy log --help' lists what there is"
        );
        assert_eq!(
            said(&["log", "--store", "disk", "."]),
            "invalid value 'disk' for '--store <store>' (possible values: direct, dax); \
             '--help' lists what there is"
        );
        assert_eq!(
            said(&["log", "--size", "much", "."]),
            "invalid value 'much' for '--size <size>': 'much' is not a size; \
             write 65536, 64K or 1M"
        );
    }
}
