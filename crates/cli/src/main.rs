//! `uncopy`: starts unmodified programs without their copies, and measures what that gains.

mod demo;
mod doctor;
mod examples;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod foreign_bytes;
mod helping;
mod log;
mod options_table;
mod pages;
mod profile;
mod replay;
mod report;
mod run;
#[cfg(test)]
mod screens;
mod stack;
mod startup;
mod stat;
mod table;
mod tcp;
mod tcp_service;
mod top;
mod trial;
mod unit;

use std::process::ExitCode;

use clap::{Args, Command};
use uncopy_measure::words::{misunderstood, parsed, status, with_args};
use uncopy_measure::{build, echo};

fn command() -> Command {
    let demo = with_args::<demo::DemoArgs>(
        Command::new("demo").about("Show in about a minute what uncopy does, in plain words"),
    );
    let stat = with_args::<stat::StatArgs>(
        Command::new("stat").about("Show what programs under uncopy did, and do"),
    );
    let top = with_args::<top::TopArgs>(
        Command::new("top").about("Show all programs under uncopy on the whole screen"),
    );
    let report = with_args::<report::ReportArgs>(
        Command::new("report").about("Collect what belongs to a report of a bug"),
    );
    let program = Command::new("uncopy")
        .version(build::SHORT)
        .long_version(build::long())
        .about("Starts unmodified programs without their copies")
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(run::command())
        .subcommand(trial::command())
        .subcommand(profile::command())
        .subcommand(stat)
        .subcommand(top)
        .subcommand(demo)
        .subcommand(doctor::command())
        .subcommand(unit::enable_command())
        .subcommand(unit::disable_command())
        .subcommand(
            Command::new("options")
                .about("Print the table of options, variables, defaults and ranges"),
        )
        .subcommand(tcp::command())
        .subcommand(report)
        .subcommand(log::command())
        .subcommand(
            echo::server::ServerArgs::augment_args(Command::new(echo::server::NAME)).hide(true),
        )
        .subcommand(helping::command())
        .subcommand(replay::command())
        .subcommand(trial::supervisor::command())
        .subcommand(tcp_service::command())
        .subcommand(log::start::command())
        .subcommand(pages::command());
    helping::short_and_long(examples::add(program))
}

fn main() -> ExitCode {
    stack::with_room(program)
}

fn program() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(why) => return misunderstood(why),
    };
    let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
    let outcome = match name {
        "run" => return run::main(matches),
        "profile" => return profile::main(matches),
        "try" => trial::main(matches),
        helping::NAME => helping::main(matches, command()),
        "options" => options_table::main(),
        "demo" => parsed(matches).and_then(|args| demo::main(&args)),
        "stat" => parsed(matches).and_then(|args| stat::main(&args)),
        "top" => parsed(matches).and_then(|args| top::main(&args)),
        "report" => parsed(matches).and_then(|args| report::main(&args)),
        "doctor" => return doctor::main(matches),
        "enable" => unit::enable(matches),
        "disable" => unit::disable(matches),
        echo::server::NAME => parsed(matches).and_then(|args| echo::server::main(&args)),
        "tcp" => tcp::main(matches),
        "log" => log::main(matches),
        log::start::NAME => log::start::main(matches),
        replay::NAME => replay::main(matches),
        trial::supervisor::NAME => trial::supervisor::main(matches),
        tcp_service::NAME => tcp_service::main(matches),
        pages::NAME => pages::main(matches, command()),
        _ => unreachable!("clap knows only the subcommands above"),
    };
    status(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_says_what_it_is_for() {
        fn check(command: &Command) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
                let fine = !about.is_empty() && !about.contains("ptions of");
                assert!(fine, "{}: '{about}'", sub.get_name());
                check(sub);
            }
        }
        check(&command());
    }
}
