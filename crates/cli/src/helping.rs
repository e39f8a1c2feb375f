//! Help: `uncopy help COMMAND`, and `-h`, which is shorter than `--help`.

use clap::{Arg, ArgMatches, Command};
use uncopy_measure::{Failure, failure};

/// The subcommand.
pub const NAME: &str = "help";

/// The command's arguments.
pub fn command() -> Command {
    let words = Arg::new("words").value_name("COMMAND").num_args(0..).help("Whose help");
    Command::new(NAME).about("Show the help of a command").arg(words)
}

/// Shows what `--help` of that command shows.
pub fn main(matches: &ArgMatches, mut program: Command) -> Result<(), Failure> {
    program.build();
    let mut found = &mut program;
    for word in matches.get_many::<String>("words").into_iter().flatten() {
        let name = found.get_name().to_owned();
        let next = found.get_subcommands_mut().find(|sub| sub.get_name() == word);
        found = next.ok_or_else(|| {
            failure!("{name} has no command '{word}'")
                .advise(format_args!("'{name} --help' lists what there is"))
        })?;
    }
    found.print_long_help().map_err(|e| Failure::new("cannot write").because(e))
}

/// Longer help of an option says it in its first clause for `-h`.
const LONG: usize = 64;
/// A shorter text says nothing by itself (`Over a device: ...`).
const SHORT: usize = 24;

/// `-h` has an option's first clause, and nothing behind the list; `--help` has all.
pub fn short_and_long(command: Command) -> Command {
    below("", command)
}

fn below(before: &str, command: Command) -> Command {
    let name = format!("{before}{}", command.get_name());
    let command = command.mut_args(|arg| {
        let Some(help) = arg.get_help().filter(|_| arg.get_long_help().is_none()).cloned() else {
            return arg;
        };
        let whole = help.to_string();
        let short = first_clause(&whole).to_owned();
        if short == whole { arg } else { arg.help(short).long_help(help) }
    });
    let command = match command.get_after_help().cloned() {
        Some(more) => {
            command.after_help(format!("'{name} --help' says more.")).after_long_help(more)
        }
        None => command,
    };
    command.mut_subcommands(|sub| below(&format!("{name} "), sub))
}

/// Without variables and defaults; if it is long, up to the first `;`, full stop, `where`, or `:`.
fn first_clause(text: &str) -> &str {
    let text = text.split(" [").next().unwrap_or(text);
    if text.len() <= LONG {
        return text;
    }
    let colon = text.find(": ").filter(|at| *at >= SHORT);
    let end = ["; ", ". ", ", where "].iter().filter_map(|end| text.find(end)).chain(colon).min();
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_shown_of_a_command_below_a_command_and_not_of_what_there_is_none() {
        let shown = |words: &[&str]| {
            let matches = command().try_get_matches_from([&["help"], words].concat()).unwrap();
            main(&matches, crate::command())
        };
        assert_eq!(shown(&["tcp", "flows"]), Ok(()));
        assert!(shown(&["tcp", "flaws"]).unwrap_err().to_string().contains("no command 'flaws'"));
    }

    #[test]
    fn short_help_is_the_first_clause() {
        let long =
            "Cap on memory held in extents, in bytes; 0 means an eighth of the machine's memory";
        assert_eq!(first_clause(long), "Cap on memory held in extents, in bytes");
        let device = "Over a device: how many connections there can be at the same time over it";
        assert_eq!(first_clause(device), device);
        assert_eq!(first_clause("Only say: what would be done"), "Only say: what would be done");
    }

    #[test]
    fn help_of_run_is_shorter_by_its_letter_and_names_every_option() {
        let mut command = crate::command().term_width(100);
        command.build();
        let run = command.find_subcommand_mut("run").unwrap();
        let (short, long) = (run.render_help().to_string(), run.render_long_help().to_string());
        assert!(3 * short.len() < 2 * long.len(), "{} of {}:\n{short}", short.len(), long.len());
        for arg in run.get_arguments().filter_map(Arg::get_long) {
            assert!(short.contains(&format!("--{arg}")), "{arg}:\n{short}");
        }
    }
}
