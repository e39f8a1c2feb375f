//! `uncopy __pages DIR`: manual pages and shell completions, from the same definitions as `--help`.
//! For whoever makes packages.
//!
//! | file | one idea |
//! | --- | --- |
//! | `sections` | what a page has beside `--help` |
//! | `completions` | scripts of shells |

mod completions;
mod sections;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::aot::Shell;
use clap_mangen::Man;
use uncopy_measure::{Failure, build, failure};

/// The hidden subcommand.
pub const NAME: &str = "__pages";

/// The command's arguments.
pub fn command() -> Command {
    let directory = Arg::new("directory").required(true).value_parser(value_parser!(PathBuf));
    Command::new(NAME).hide(true).about("Write manual pages and completions").arg(directory)
}

/// Writes them.
pub fn main(matches: &ArgMatches, program: Command) -> Result<(), Failure> {
    let directory: &PathBuf = matches.get_one("directory").expect("clap demands it");
    write_all(directory, &program)
        .map_err(|e| failure!("cannot write into {}", directory.display()).because(e))
}

/// Where distributions look for a shell's completions, below the directory.
fn place(shell: Shell) -> Option<&'static str> {
    match shell {
        Shell::Bash => Some("bash-completion/completions/uncopy"),
        Shell::Zsh => Some("zsh/vendor-completions/_uncopy"),
        Shell::Fish => Some("fish/vendor_completions.d/uncopy.fish"),
        _ => None,
    }
}

fn write_all(directory: &Path, program: &Command) -> std::io::Result<()> {
    let program = visible(program.clone());
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let Some(place) = place(shell) else { continue };
        let file = directory.join(place);
        fs::create_dir_all(file.parent().unwrap_or(directory))?;
        fs::write(file, completions::script(shell, &program))?;
    }
    let manual = directory.join("man/man1");
    fs::create_dir_all(&manual)?;
    let mut names = Vec::new();
    names_of(&program, "uncopy", &mut names);
    page(&manual, program, "uncopy", &names)
}

/// The names of the pages of a command and of all below it.
fn names_of(command: &Command, name: &str, names: &mut Vec<String>) {
    names.push(name.to_owned());
    for sub in command.get_subcommands() {
        names_of(sub, &format!("{name}-{}", sub.get_name()), names);
    }
}

/// Without what no user calls.
fn visible(command: Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(after) = command.get_after_long_help() {
        shown = shown.after_help(after.clone());
    }
    shown = shown.version(build::SHORT).disable_help_subcommand(true);
    shown = shown.args(command.get_arguments().filter(|arg| arg.get_id() != "help").cloned());
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    shown.subcommands(subcommands.map(|sub| visible(sub.clone())))
}

/// The page of a command, and those of its subcommands.
fn page(directory: &Path, command: Command, name: &str, all: &[String]) -> std::io::Result<()> {
    let subcommands: Vec<Command> = command.get_subcommands().cloned().collect();
    let titled = command.name(name.to_owned()).display_name(name.to_owned());
    let titled = titled.bin_name(name.replace('-', " "));
    let mut text = Vec::new();
    let more = sections::text(name, &titled, all);
    Man::new(titled).date(build::DATE).manual("uncopy").render(&mut text)?;
    text.extend_from_slice(more.as_bytes());
    fs::write(directory.join(format!("{name}.1")), text)?;
    for sub in subcommands {
        let name = format!("{name}-{}", sub.get_name());
        page(directory, sub, &name, all)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_page_and_hidden_ones_have_none() {
        let directory = tempfile::tempdir().unwrap();
        write_all(directory.path(), &crate::command()).unwrap();
        let page = |name: &str| fs::read_to_string(directory.path().join("man/man1").join(name));
        assert!(page("uncopy-run.1").unwrap().contains("threshold"));
        assert!(page("uncopy-tcp-flows.1").is_ok());
        assert!(page("uncopy-__echo-server.1").is_err());
        for name in ["uncopy.1", "uncopy-run.1", "uncopy-tcp-flows.1", "uncopy-enable.1"] {
            let text = page(name).unwrap();
            for section in ["ENVIRONMENT", "FILES", "BUGS", "SEE ALSO"] {
                assert!(text.contains(section), "{name}: {section}");
            }
        }
        assert!(
            page("uncopy-run.1").unwrap().contains("UNCOPY\\_THRESHOLD")
                || page("uncopy-run.1").unwrap().contains("UNCOPY_THRESHOLD")
        );
        assert!(page("uncopy-tcp.1").unwrap().contains("uncopy\\-tcp\\-flows(1)"));
        let bash = fs::read_to_string(directory.path().join(place(Shell::Bash).unwrap())).unwrap();
        assert!(bash.contains("--threshold") && !bash.contains("echo-server"), "{bash}");
    }
}
